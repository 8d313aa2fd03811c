# tour.py - the commands of README's "Five minutes", run as written, one after the other; for the tests that run them.
import os
import signal
import socket
import subprocess
import sys
import time

WAIT = 300  # seconds; an upper bound for what takes seconds
SOCKETS = ["/tmp/unet-demo.sock", "/tmp/unet-ip.sock"]
TESTBED = "testbed "
WORDS = ["Hello", "over a local channel", "over the network interface", "0 wrong, 0 lost", "echo", "iperf Done"]
TESTBED_WORDS = ["is up: h0, h1, h2, h3", "stream as received", "is removed"]


def commands(readme):
    """The indented lines of the section that start with ./run; lines for two hosts do not."""
    with open(readme, encoding="utf-8") as file:
        section = file.read().split("\n## Five minutes\n")[1].split("\n## ")[0]
    return [line.strip() for line in section.splitlines() if line.startswith("    ") and "./run" in line]


def takes_connections(path):
    """The NI answers; its socket exists a moment earlier."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def wait_until(what, condition):
    end = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what} did not appear")
        time.sleep(0.05)


class Tour:
    """Runs commands by bash. `inside`: a command before bash, such as chroot with the directory `root`."""

    def __init__(self, unetctl, directory, inside=(), root=""):
        self.unetctl, self.directory, self.shell, self.root = unetctl, directory, [*inside, "bash", "-c"], root
        self.background, self.printed = [], ""

    def has_listener(self, path):
        """A program listens on U-Net's sockets."""
        shown = subprocess.run([*self.shell, f"{self.unetctl} --socket {path} ss -l"], capture_output=True, text=True, timeout=WAIT, check=False)
        return "LISTEN" in shown.stdout

    def run(self, command):
        """A foreground command has to succeed."""
        if command.endswith("&"):
            self.background.append(subprocess.Popen([*self.shell, "exec env " + command[:-1]], cwd=self.directory, stdout=subprocess.DEVNULL))
            path = next((each for each in SOCKETS if each in command), None)
            if "unetd --socket" in command:
                wait_until(path, lambda: takes_connections(self.root + path))
            elif "unet-sockets " in command:
                wait_until("a listener", lambda: self.has_listener(path))
            return
        done = subprocess.run([*self.shell, command], cwd=self.directory, capture_output=True, text=True, timeout=WAIT, check=False)
        print(f"$ {command}\n{done.stdout}{done.stderr}")
        if done.returncode != 0:
            sys.exit(f"'{command}' ended with {done.returncode}")
        self.printed += done.stdout

    def end(self):
        for process in reversed(self.background):
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT)

    def fault(self, words):
        """What is wrong after the last command, or None."""
        for wanted in words:
            if wanted not in self.printed:
                return f"nothing printed says '{wanted}'"
        if any(os.path.exists(self.root + path) for path in SOCKETS):
            return "unetd has left its socket behind"
        return None
