#!/usr/bin/env python3
# manual.py - the manual pages agree with --help: each describes every command and long option of a program, and no removed one.
#
# Usage: manual.py options PAGE PROGRAM [COMMAND...]
#        manual.py kernels PAGE UNET_RUN KERNEL...
#        manual.py roff PAGE...
import os
import re
import shutil
import subprocess
import sys

SKIP = 77
WAIT = 120  # seconds; an upper bound


def help_of(program, *command):
    done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, timeout=WAIT)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(command)} --help failed: {done.stderr}")
    return done.stdout


def long_options(text):
    """The options at line starts of the help: "  -n,--size UINT ..."."""
    options = set()
    for tag in re.findall(r"^  ?(-\S+)", text, re.M):
        options |= set(re.findall(r"--[a-z][a-z-]*", tag))
    return options


def tags(page):
    """The terms that the page describes: the line after each .TP, without its macros and escapes."""
    lines = open(page, encoding="ascii").read().split("\n")
    return [re.sub(r"^\.[A-Z]+ |\\f.", "", lines[i + 1]).replace("\\-", "-").replace('"', "")
            for i, line in enumerate(lines) if line == ".TP"]


def check_options(page, program, *commands):
    helps = [help_of(program)] + [help_of(program, *command.split()) for command in commands]
    there = set().union(*map(long_options, helps))
    described = {option for tag in tags(page) for option in re.findall(r"--[a-z][a-z-]*", tag)}
    wrong = [f"{option} is not described" for option in sorted(there - described)]
    wrong += [f"{option} is described, but --help does not have it" for option in sorted(described - there)]
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=WAIT, check=False)
    if version.returncode != 0 or not re.fullmatch(rf"{os.path.basename(program)} \d+\.\d+\.\d+\n", version.stdout):
        wrong.append(f"--version answers {version.stdout!r} and {version.returncode}")
    listed = re.findall(r"^  ([a-z]+)  ", helps[0], re.M) if commands else []
    wrong += [f"the test does not look at command {c}" for c in listed if c not in commands]
    wrong += [f"command {c} is not described" for c in commands if not any(re.match(rf"{c}\b", tag) for tag in tags(page))]
    if len(there) < 5:
        wrong.append(f"only {there} found in --help: is this test right?")
    return wrong


def sections(page):
    """The tags below each .SH and .SS, and the text."""
    parts = re.split(r"^\.S[HS] (.*)$", open(page, encoding="ascii").read(), flags=re.M)
    return {name: text for name, text in zip(parts[1::2], parts[2::2])}


def options_of(text):
    """The tags of a section, each with its description."""
    parts = re.split(r"^\.TP\n\.B\S* (.*)$", text.replace("\\-", "-"), flags=re.M)
    return {option: words for tag, words in zip(parts[1::2], parts[2::2]) for option in re.findall(r"--[a-z][a-z-]*", tag)}


def defaults_of(text):
    """The description of each option in the help of a program: "--side UINT:... elements on a side (default: 512)"."""
    parts = re.split(r"^  (?:-\w,)?(--[a-z-]+)", text, flags=re.M)
    found = {option: re.search(r"\(default: ([^)]*)\)", " ".join(words.split())) for option, words in zip(parts[1::2], parts[2::2])}
    return {option: match[1] if match else None for option, match in found.items()}


def check_kernels(page, unet_run, *kernels):
    described = sections(page)
    common = options_of(described["OPTIONS"])
    wrong = [f"{name} is no kernel" for name in described if name.startswith("kernel_") and name not in map(os.path.basename, kernels)]
    for kernel in kernels:
        name = os.path.basename(kernel)
        if name not in described:
            wrong.append(f"{name} is not described")
            continue
        there = defaults_of(subprocess.run([unet_run, "--", kernel, "--help"], capture_output=True, text=True, timeout=WAIT, check=True).stdout)
        lacks = re.findall(r"there is no\n\.BR (--[a-z-]+) \.", described[name].replace("\\-", "-"))
        on_page = {option: words for option, words in (options_of(described[name]) | common).items() if option not in lacks}
        if set(there) != set(on_page):
            wrong.append(f"{name}: --help has {sorted(there)}, the page {sorted(on_page)}")
        for option, words in on_page.items():
            said = re.search(r"\(default: ([^)]*)\)", words)
            if there.get(option) != (said[1] if said else None):
                wrong.append(f"{name}: {option} is {there.get(option)} by default, and not {said and said[1]}")
    if len(kernels) < 5:
        wrong.append("where are the kernels?")
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
    wrong = {"options": check_options, "kernels": check_kernels, "roff": check_roff}[sys.argv[1]](*sys.argv[2:])
    for line in wrong:
        print(f"{sys.argv[2]}: {line}")
    return 1 if wrong else 0


sys.exit(main())
