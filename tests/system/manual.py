#!/usr/bin/env python3
# manual.py - the manual pages say what --help says: each command and long option of a program, and none that is gone.
#
# Usage: manual.py options PAGE PROGRAM [COMMAND...]
#        manual.py roff PAGE...
import os
import re
import shutil
import subprocess
import sys

SKIP = 77
WAIT = 120  # seconds; only an upper bound


def help_of(program, *command):
    done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, timeout=WAIT)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(command)} --help failed: {done.stderr}")
    return done.stdout


def long_options(text):
    """Those at the beginning of a line of help: "  -n,--size UINT ..."."""
    options = set()
    for tag in re.findall(r"^  ?(-\S+)", text, re.M):
        options |= set(re.findall(r"--[a-z][a-z-]*", tag))
    return options


def tags(page):
    """What the page describes: the line after each .TP, without its macros and escapes."""
    lines = open(page, encoding="ascii").read().split("\n")
    return [re.sub(r"^\.[A-Z]+ |\\f.", "", lines[i + 1]).replace("\\-", "-").replace('"', "")
            for i, line in enumerate(lines) if line == ".TP"]


def check_options(page, program, *commands):
    helps = [help_of(program)] + [help_of(program, *command.split()) for command in commands]
    there = set().union(*map(long_options, helps))
    described = {option for tag in tags(page) for option in re.findall(r"--[a-z][a-z-]*", tag)}
    wrong = [f"{option} is not described" for option in sorted(there - described)]
    wrong += [f"{option} is described, but --help does not have it" for option in sorted(described - there)]
    listed = re.findall(r"^  ([a-z]+)  ", helps[0], re.M) if commands else []
    wrong += [f"the test does not look at command {c}" for c in listed if c not in commands]
    wrong += [f"command {c} is not described" for c in commands if not any(re.match(rf"{c}\b", tag) for tag in tags(page))]
    if len(there) < 5:
        wrong.append(f"only {there} found in --help: is this test right?")
    return wrong


def check_roff(*pages):
    if shutil.which("groff") is None:
        print("groff is not installed")
        sys.exit(SKIP)
    commands = [["groff", "-man", "-Tutf8", "-ww", "-z"]]
    if shutil.which("man") is not None:
        commands.append(["man", "--warnings", "-l"])
    wrong = []
    for page in pages:
        for command in commands:
            done = subprocess.run([*command, page], capture_output=True, text=True, timeout=WAIT, env=os.environ | {"MANWIDTH": "100"})
            if done.returncode != 0 or done.stderr:
                wrong.append(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return wrong


def main():
    wrong = {"options": check_options, "roff": check_roff}[sys.argv[1]](*sys.argv[2:])
    for line in wrong:
        print(f"{sys.argv[2]}: {line}")
    return 1 if wrong else 0


sys.exit(main())
