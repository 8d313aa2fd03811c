#!/usr/bin/env python3
# splitc_page.py - the programs of docs/SPLITC.md's "In one sitting" and the commands that build and run them, as written, on the files that
# `meson install` leaves.
#
# Usage: splitc_page.py MESON REPOSITORY BUILD_DIRECTORY
#
# An indented block of the section that begins with "// NAME.cc - " is that file. In the others, a line that begins with "$ " is a command,
# and the lines below are its output, in any order.
import glob
import os
import re
import subprocess
import sys

from daemon import WAIT, directory, main, require, run

MESON = sys.argv[1]
ROOT, BUILD = (os.path.realpath(p) for p in sys.argv[2:4])
MARK = "==== command"


def blocks():
    with open(os.path.join(ROOT, "docs", "SPLITC.md"), encoding="utf-8") as page:
        section = page.read().split("\n## In one sitting\n")[1].split("\n## ")[0]
    found = re.findall(r"(?:^    .*\n(?:\n(?=    ))*)+", section, re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found]


def files_and_commands():
    """The files to write, and pairs of a command and its output."""
    files, commands = {}, []
    for block in blocks():
        if name := re.match(r"// (\w+\.cc?) - ", block):
            files[name[1]] = block
            continue
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            else:
                require(commands, f"'{line}' is printed by no command")
                commands[-1][1].append(line)
    return files, commands


def installed(there):
    """The environment of a user of the installed files."""
    status, out, err = run(MESON, "install", "-C", BUILD, "--no-rebuild", "--destdir", there)
    require(status == 0, f"meson install: {out}{err}")
    package, = glob.glob(there + "/**/unet-splitc.pc", recursive=True)
    library, = glob.glob(there + "/**/libunet_splitc.so", recursive=True)
    program, = glob.glob(there + "/**/bin/unet-run", recursive=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("UNET_")}
    return env | {"PKG_CONFIG_PATH": os.path.dirname(package), "PKG_CONFIG_SYSROOT_DIR": there, "LD_LIBRARY_PATH": os.path.dirname(library),
                  "PATH": os.path.dirname(program) + ":" + env["PATH"]}


def test_the_page():
    files, commands = files_and_commands()
    require(len(files) >= 3 and len(commands) >= 2 * len(files), f"the page has lost its programs: {sorted(files)}, {commands}")
    for name in files:
        require(any(name in command for command, _ in commands), f"{name} is not built")
    with directory() as d, directory() as there:
        for name, text in files.items():
            with open(os.path.join(d, name), "w", encoding="utf-8") as file:
                file.write(text)
        script = "set -e\n" + "".join(f"{command}\necho '{MARK}'\n" for command, _ in commands)
        done = subprocess.run(["bash", "-c", script], cwd=d, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * WAIT,
                              env=installed(there))
    printed = done.stdout.split(MARK + "\n")
    require(done.returncode == 0, f"'{commands[min(len(printed), len(commands)) - 1][0]}' ended with {done.returncode}: {printed[-1]}")
    for (command, wanted), out in zip(commands, printed):
        require(sorted(out.splitlines()) == sorted(wanted), f"'{command}' prints\n{out}")
        print(f"      $ {command}")


def test_checks_that_the_library_lacks():
    program = "#include <am/splitc/splitc.h>\nint nothing(int, char**) { return 0; }\n" \
              "int main(int argc, char** argv) { return unet::splitc::run(argc, argv, nothing); }\n"
    with directory() as d, directory() as there:
        with open(d + "/nothing.cc", "w", encoding="utf-8") as file:
            file.write(program)
        env = installed(there)
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "unet-splitc"], capture_output=True, text=True, check=True, env=env).stdout
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
