#!/usr/bin/env python3
# probes.py - the probes in a program's notes are those of docs/PROBES.md, with equal numbers of arguments.
#
# Usage: probes.py PROGRAM PROBES_MD
import re
import subprocess
import sys

PROGRAM, DOCUMENT = sys.argv[1:3]


def documented():
    with open(DOCUMENT, encoding="utf-8") as file:
        rows = re.findall(r"^\| `(\w+)` \|[^|]*\| (.*) \|$", file.read(), re.MULTILINE)
    # Arguments are separated by commas. Text in brackets, or after a colon or semicolon, explains one.
    return {name: 0 if text == "-" else len(re.sub(r"\(.*?\)|, in ns.*", "", text).split(",")) for name, text in rows}


def compiled():
    notes = subprocess.run(["readelf", "-n", PROGRAM], capture_output=True, text=True, check=True).stdout
    found = {}
    for name, arguments in re.findall(r"Provider: unet\n\s*Name: (\w+)\n.*\n\s*Arguments: ?(.*)", notes):
        # An argument is SIZE@PLACE; a place may contain blanks and commas.
        found.setdefault(name, set()).add(len(re.findall(r"-?\d+@", arguments)))
    return found


def main():
    expected, found = documented(), compiled()
    if not expected or set(found) != set(expected):
        return f"{DOCUMENT} has {sorted(expected)}, {PROGRAM} has {sorted(found)}"
    for name, counts in found.items():
        if counts != {expected[name]}:
            return f"{name}: {sorted(counts)} arguments, and {expected[name]} documented"
    print(f"{len(found)} probes, as documented")
    return 0


sys.exit(main())
