#!/usr/bin/env python3
# readme.py - runs the commands of README's "Five minutes", as written, one after the other, in a shell at the root of the repository.
#
# Usage: readme.py REPOSITORY BUILD_DIRECTORY
import os
import subprocess
import sys

import tour

ROOT, BUILD = (os.path.realpath(p) for p in sys.argv[1:3])
SKIP = 77
TESTBED = "./run " + tour.TESTBED


def check_program():
    """The program in README equals the example, except for the comment at its head."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as readme, \
            open(os.path.join(ROOT, "apps", "examples", "pingpong.c"), encoding="utf-8") as example:
        shown = readme.read().split("```c\n")[1].split("```")[0]
        program = example.read()
        if shown != program[program.index("#include"):]:
            sys.exit("README.md shows another program than apps/examples/pingpong.c")


def main():
    check_program()
    if BUILD != os.path.join(ROOT, "build"):
        print("skipped: ./run uses build/, and this is another build directory")
        return SKIP
    for path in filter(os.path.exists, tour.SOCKETS):
        print(f"skipped: {path} is there already")
        return SKIP
    lines, words = tour.commands(os.path.join(ROOT, "README.md")), tour.WORDS
    with_testbed = os.geteuid() == 0 and not os.path.exists("/run/unet-testbed/unet")
    if with_testbed:
        words = words + tour.TESTBED_WORDS
    else:
        print("without the testbed: that needs root, and that there is none")
        lines = [line for line in lines if TESTBED not in line]
    walk = tour.Tour(f"{BUILD}/apps/unetctl/unetctl", ROOT)
    try:
        for line in lines:
            walk.run(line)
    finally:
        walk.end()
        if with_testbed:
            subprocess.run(["bash", "-c", TESTBED + "down"], cwd=ROOT, stdout=subprocess.DEVNULL, timeout=tour.WAIT, check=False)
    if fault := walk.fault(words):
        return fault
    print(f"{len(lines)} commands of README.md ran as written")
    return 0 if len(lines) >= 5 else "README.md has lost its commands"


sys.exit(main())
