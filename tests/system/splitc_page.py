#!/usr/bin/env python3
# splitc_page.py - the programs of docs/SPLITC.md's "In one sitting" and the commands that build and run them, as written, on the files that
# `meson install` leaves.
#
# Usage: splitc_page.py MESON REPOSITORY BUILD_DIRECTORY
import os
import subprocess
import sys

from daemon import directory, main, require, run
from guide import check_guide, installed

MESON = sys.argv[1]
ROOT, BUILD = (os.path.realpath(p) for p in sys.argv[2:4])
PACKAGE = "unet-splitc"


def test_the_page():
    check_guide(MESON, BUILD, os.path.join(ROOT, "docs", "SPLITC.md"), PACKAGE, section="In one sitting", least=3)


def test_checks_that_the_library_lacks():
    program = "#include <am/splitc/splitc.h>\nint nothing(int, char**) { return 0; }\n" \
              "int main(int argc, char** argv) { return unet::splitc::run(argc, argv, nothing); }\n"
    with directory() as d, directory() as there:
        with open(d + "/nothing.cc", "w", encoding="utf-8") as file:
            file.write(program)
        env = installed(MESON, BUILD, there, PACKAGE)
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", PACKAGE], capture_output=True, text=True, check=True, env=env).stdout
        if "UNET_SPLITC_STRICT" in flags:
            print("      not tried: this library checks")
            return
        for strict in (False, True):
            done = run("g++", "-std=c++20", *(["-DUNET_SPLITC_STRICT"] if strict else []), d + "/nothing.cc", "-o", d + "/nothing",
                       *flags.split(), env=env)
            require(done[0] == 0, done[2])
            status, _, err = run("unet-run", "-n", "2", "--", d + "/nothing", env=env)
            refused = "compiled with UNET_SPLITC_STRICT, and the library without" in err
            require((status != 0) == strict and refused == strict, f"strict {strict}: {status}: {err}")


if __name__ == "__main__":
    sys.exit(main(globals()))
