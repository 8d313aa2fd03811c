# takeover_ni.py - a supervised unetd, and programs that stand in its place; for the tests of takeovers.
#
# Usage of the tests: TEST UNETD UNETCTL ECHO_SERVER ECHO_CLIENT
import json
import os
import re
import signal
import sys

from daemon import WAIT, EchoNi, Unetd, require, run, wait_until

UNETD, UNETCTL, ECHO_SERVER, ECHO_CLIENT = (os.path.abspath(p) for p in sys.argv[1:5])

# Takes unetd's place: prolongs the pause until a file is there.
LATE = """#!/bin/sh
while [ ! -e "{directory}/go" ]; do sleep 0.01; done
exec "{unetd}" "$@"
"""

# Takes unetd's place, or stands beside it.
ANOTHER = """#!/bin/sh
exec "{unetd}" "$@"
"""

# Greets the supervisor as a unetd of some release does, and then misbehaves.
OTHER = """#!{python}
import ctypes, os, signal, socket, struct, sys, time
link = socket.socket(fileno=next(int(a.split("=")[1]) for a in sys.argv if a.startswith("--keeper-fd=")))
path = sys.argv[sys.argv.index("--socket") + 1].encode()
def item(op, value=b"", kind=0, a=0):
    return struct.pack("=IIIIQII", op, len(value), kind, a, 0, 0, 0) + value + bytes(-len(value) % 8)
def say(op, value=b"", kind=0, a=0):
    link.send(struct.pack("=II", 0x754e4a31, 1) + item(op, value, kind, a))
def orders(*ops):
    got = link.recv(1 << 17)
    return any(op.to_bytes(4, "little") == got[8:12] for op in ops)
def mark(name):
    open("{directory}/" + name, "w").close()
def marked(name):
    return os.path.exists("{directory}/" + name)
def first(name):
    return not marked(name) and mark(name) is None
def wait_for(name):
    while not marked(name): time.sleep(0.01)
# Gives these orders, and ends in order when it is told to.
def serve(*given):
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    for each in (READY, *given): say(each)
    while not stopped: time.sleep(0.01)
    say(STOP)
PUT, HELLO, READY, UPGRADE, STOP, RELEASE, RELEASED = 1, 3, 4, 5, 6, 7, 8
{before}
say(HELLO, struct.pack("=II32s104s", {format}, {user}, b"9.9.9", path))
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its supervisor
{then}
"""
TAKE = "link.recv(1 << 17)\n"
HANG = "time.sleep(60)\n"
with open(os.path.join(os.path.dirname(__file__), "../../ni/service/journal_link.h"), encoding="utf-8") as header:
    JOURNAL = header.read()
FORMAT = int(re.search(r"kJournalFormat = (\d+);", JOURNAL)[1])
# Kinds of journal records, by name.
KINDS = re.findall(r"^  (\w+)(?: = 1)?,", re.search(r"enum class JournalKind[^{]*{(.*?)};", JOURNAL, re.DOTALL)[1], re.MULTILINE)
KIND_UPGRADE = 1 + KINDS.index("upgrade")


def other(path, then, format=FORMAT, user=os.geteuid(), before=""):
    script(path, OTHER.format(python=sys.executable, directory=os.path.dirname(path), format=format, user=user, before=before, then=then))


def script(path, text):
    new = path + ".new"
    with open(new, "w") as file:
        file.write(text)
    os.chmod(new, 0o755)
    os.rename(new, path)


class Ni(EchoNi):
    """With a supervisor, started by a path that can lead elsewhere later."""

    def __init__(self, d, *args, seconds=60, standby=False):
        self.directory, self.program, self.standby = d, d + "/unetd", standby
        os.symlink(UNETD, self.program)
        super().__init__((self.program, UNETCTL, ECHO_SERVER), d + "/s", "--takeover", str(seconds),
                         *([] if standby else ["--no-standby"]), *args)

    def end(self):
        if self.daemon.process.poll() is None:
            self.daemon.stop()

    def children(self):
        pid = self.daemon.process.pid
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                return [int(each) for each in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            return []

    def kill(self, with_signal=signal.SIGKILL):
        """Kills the serving NI, and waits until the supervisor has noticed."""
        victim = self.serving()
        os.kill(victim, with_signal)
        wait_until(lambda: victim not in self.children(), "the supervisor does not see it die")

    def end_one_that_serves(self):
        """kill(), until another NI serves, possibly the standby one."""
        victim = stands_by(self)[0] if self.standby else self.serving()
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: victim not in self.children(), "the supervisor does not see it die")

    def serving(self):
        found = []
        wait_until(lambda: found.append(self.children()) or len(found[-1]) == 1, "not one network interface")
        return found[-1][0]

    def late(self):
        """From now on the next NI does not come up before go()."""
        script(self.program, LATE.format(directory=self.directory, unetd=UNETD))

    def go(self):
        open(self.directory + "/go", "w").close()

    def report(self):
        status, out, err = self.ctl("all", "--json")
        require(status == 0, f"no report: {err}")
        return json.loads(out)

    def echo(self, *args):
        status, out, err = run(ECHO_CLIENT, "--path", "ni", "--count", "100", *args, "echo", env=self.env)
        require(status == 0 and "0 wrong, 0 lost" in out, f"echo: {status} {out!r} {err!r}")


def upgrade(ni, *args):
    status, _, err = ni.ctl("upgrade", *args)
    require(status == 0, f"upgrade {args}: {err!r}")


def stands_by(ni):
    """The standby NI, loaded beside the serving one."""
    def name(pid):
        try:
            with open(f"/proc/{pid}/comm") as file:
                return file.read().strip()
        except (FileNotFoundError, ProcessLookupError):
            return ""
    found = []
    wait_until(lambda: found.append(ni.children()) or (len(found[-1]) == 2 and name(found[-1][1]) == "unetd-standby"), "none stands by")
    return found[-1]


def refused(ni, *args, says):
    old = ni.serving()
    status, _, err = ni.ctl("upgrade", *args)
    require(status == 1 and says in err and err.count("\n") == 1, f"{says!r} is not in {status} {err!r}")
    require(ni.serving() == old, "the old one does not go on")
    ni.echo()


def falls_back(ni, *args, says):
    status, _, err = ni.ctl("upgrade", *args)
    require(status == 1 and says in err and "the one before goes on" in err, f"{says!r} is not in {status} {err!r}")
    with open(f"/proc/{ni.serving()}/cmdline") as file:
        require("python" not in file.read(), "not the program that was there before")
    ni.echo()


def ends_with(ni, status):
    require(ni.daemon.process.wait(WAIT) == status, f"not status {status}")
    require(not os.path.exists(ni.path), "its socket is left")
    ni.server.wait(WAIT)  # the echo server has noticed


def wait_for(path):
    wait_until(lambda: os.path.exists(path), f"{path} is not there")


def scripted(d, program, seconds=60):
    """A supervisor that runs scripts as NIs."""
    return Unetd(program, "--socket", d + "/s", "--takeover", str(seconds), "--no-standby", executable=UNETD)
