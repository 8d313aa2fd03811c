# guide.py - the programs of a guide in docs/ and the commands that build and run them, as written, on the files that `meson install` leaves;
# used by splitc_page.py and guide_page.py.
#
# An indented block that begins with "// NAME.cc - " is that file. In a block of commands, a line that begins with "$ " is a command, and the
# lines below are its output, in any order.
import glob
import os
import re
import subprocess

from daemon import IS_ROOT, WAIT, directory, require, run

MARK = "==== command"
# Ports of its own, and no process that stays.
ALONE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"] if IS_ROOT else []


def blocks(document, section):
    """The indented blocks of a section; without one, those of the document that begin as a file or a command does."""
    with open(document, encoding="utf-8") as page:
        text = page.read()
    if section is not None:
        text = text.split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = re.findall(r"(?:^    .*\n(?:\n(?=    ))*)+", text, re.M)
    found = [part for block in found for part in re.split(r"\n\n(?=\$ )", re.sub(r"^    ", "", block, flags=re.M))]
    return found if section is not None else [block for block in found if re.match(r"// \w+\.cc? - |\$ ", block)]


def files_and_commands(document, section):
    """The files to write, and pairs of a command and its output."""
    files, commands = {}, []
    for block in blocks(document, section):
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


def installed(meson, build, there, package):
    """The environment of a user of the installed files."""
    status, out, err = run(meson, "install", "-C", build, "--no-rebuild", "--destdir", there)
    require(status == 0, f"meson install: {out}{err}")
    described, = glob.glob(there + f"/**/{package}.pc", recursive=True)
    library, = glob.glob(there + f"/**/lib{package.replace('-', '_')}.so", recursive=True)
    program, = glob.glob(there + "/**/bin/unet-run", recursive=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("UNET_")}
    return env | {"PKG_CONFIG_PATH": os.path.dirname(described), "PKG_CONFIG_SYSROOT_DIR": there, "LD_LIBRARY_PATH": os.path.dirname(library),
                  "PATH": os.path.dirname(program) + ":" + env["PATH"]}


def check_guide(meson, build, document, package, section=None, least=1):
    """Runs all of it. `least`: the document has that many programs, and each is built and run."""
    files, commands = files_and_commands(document, section)
    require(len(files) >= least and len(commands) >= 2 * len(files), f"the page has lost its programs: {sorted(files)}, {commands}")
    for name in files:
        require(any(name in command for command, _ in commands), f"{name} is not built")
    with directory() as d, directory() as there:
        os.symlink(os.path.join(os.path.dirname(document), "..", "apps"), os.path.join(d, "apps"))
        for name, text in files.items():
            with open(os.path.join(d, name), "w", encoding="utf-8") as file:
                file.write(text)
        script = "set -e\n" + ("ip link set lo up\n" if IS_ROOT else "") + "".join(f"{command}\necho '{MARK}'\n" for command, _ in commands)
        done = subprocess.run([*ALONE, "bash", "-c", script], cwd=d, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * WAIT,
                              env=installed(meson, build, there, package))
    printed = done.stdout.split(MARK + "\n")
    require(done.returncode == 0, f"'{commands[min(len(printed), len(commands)) - 1][0]}' ended with {done.returncode}: {printed[-1]}")
    for (command, wanted), out in zip(commands, printed):
        require(sorted(out.splitlines()) == sorted(wanted), f"'{command}' prints\n{out}")
        print(f"      $ {command}")
