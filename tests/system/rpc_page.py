#!/usr/bin/env python3
# rpc_page.py - the programs of docs/RPC.md and the commands that build and run them, as written, on the files that `meson install` leaves.
#
# Usage: rpc_page.py MESON REPOSITORY BUILD_DIRECTORY
import os
import sys

from daemon import main
from guide import check_guide

MESON = sys.argv[1]
ROOT, BUILD = (os.path.realpath(p) for p in sys.argv[2:4])


def test_the_page():
    check_guide(MESON, BUILD, os.path.join(ROOT, "docs", "RPC.md"), "unet-rpc")


if __name__ == "__main__":
    sys.exit(main(globals()))
