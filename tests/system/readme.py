#!/usr/bin/env python3
# readme.py - runs the commands of README's "Five minutes", as written, one after the other, in a shell at the root of the repository.
#
# Usage: readme.py REPOSITORY BUILD_DIRECTORY
import os
import signal
import socket
import subprocess
import sys
import time

ROOT, BUILD = (os.path.realpath(p) for p in sys.argv[1:3])
SKIP = 77
WAIT = 300  # seconds; an upper bound for what takes seconds
SOCKETS = ["/tmp/unet-demo.sock", "/tmp/unet-ip.sock"]
TESTBED = "./run testbed "


def commands():
    """The indented lines of the section that start with ./run; lines for two hosts do not."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as readme:
        section = readme.read().split("\n## Five minutes\n")[1].split("\n## ")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    ") and "./run" in line]


def check_program():
    """The program in README equals the example, except for the comment at its head."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as readme, \
            open(os.path.join(ROOT, "apps", "examples", "pingpong.c"), encoding="utf-8") as example:
        shown = readme.read().split("```c\n")[1].split("```")[0]
        program = example.read()
        if shown != program[program.index("#include"):]:
            sys.exit("README.md shows another program than apps/examples/pingpong.c")


def takes_connections(path):
    """The NI answers; its socket exists a moment earlier."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def has_listener(path):
    """A program listens on U-Net's sockets."""
    shown = subprocess.run([f"{BUILD}/apps/unetctl/unetctl", "--socket", path, "ss", "-l"], capture_output=True, text=True, timeout=WAIT,
                           check=False)
    return "LISTEN" in shown.stdout


def wait_until(what, condition):
    end = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what} did not appear")
        time.sleep(0.05)


def run(command, background):
    """A foreground command has to succeed; returns its output, or the process in the background."""
    if command.endswith("&"):
        process = subprocess.Popen(["bash", "-c", "exec env " + command[:-1]], cwd=ROOT, stdout=subprocess.DEVNULL)
        background.append(process)
        path = next((each for each in SOCKETS if each in command), None)
        if " unetd " in command:
            wait_until(path, lambda: takes_connections(path))
        elif " unet-sockets " in command:
            wait_until("a listener", lambda: has_listener(path))
        return ""
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=False)
    print(f"$ {command}\n{done.stdout}{done.stderr}")
    if done.returncode != 0:
        sys.exit(f"'{command}' ended with {done.returncode}")
    return done.stdout


def main():
    check_program()
    if BUILD != os.path.join(ROOT, "build"):
        print("skipped: ./run uses build/, and this is another build directory")
        return SKIP
    for path in filter(os.path.exists, SOCKETS):
        print(f"skipped: {path} is there already")
        return SKIP
    lines = commands()
    wanted_words = ["Hello", "over a local channel", "over the network interface", "0 wrong, 0 lost", "echo", "iperf Done"]
    with_testbed = os.geteuid() == 0 and not os.path.exists("/run/unet-testbed/unet")
    if with_testbed:
        wanted_words += ["is up: h0, h1, h2, h3", "stream as received", "is removed"]
    else:
        print("without the testbed: that needs root, and that there is none")
        lines = [line for line in lines if TESTBED not in line]
    background, printed = [], ""
    try:
        for line in lines:
            printed += run(line, background)
        for wanted in wanted_words:
            if wanted not in printed:
                return f"nothing printed says '{wanted}'"
    finally:
        for process in reversed(background):
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT)
        if with_testbed:
            subprocess.run(["bash", "-c", TESTBED + "down"], cwd=ROOT, stdout=subprocess.DEVNULL, timeout=WAIT, check=False)
    if any(map(os.path.exists, SOCKETS)):
        return "unetd has left its socket behind"
    print(f"{len(lines)} commands of README.md ran as written")
    return 0 if len(lines) >= 5 else "README.md has lost its commands"


sys.exit(main())
