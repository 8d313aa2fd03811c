#!/usr/bin/env python3
# guide_page.py - the programs of a page of docs/ and the commands that build and run them, as written, on the files that `meson install`
# leaves.
#
# Usage: guide_page.py MESON BUILD_DIRECTORY PAGE PACKAGE PROGRAMS   (the name for pkg-config; the least number of programs)
import os
import sys

from daemon import main
from guide import check_guide

MESON, BUILD, PAGE, PACKAGE, PROGRAMS = sys.argv[1:6]


def test_the_page():
    check_guide(MESON, os.path.realpath(BUILD), PAGE, PACKAGE, least=int(PROGRAMS))


if __name__ == "__main__":
    sys.exit(main(globals()))
