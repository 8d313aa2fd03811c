#!/usr/bin/env python3
# takeover.py - a unetd with a keeper as its operator and a service manager see it: what ends it, what does not, and what is refused.
#
# Usage: takeover.py UNETD UNETCTL ECHO_SERVER ECHO_CLIENT
import json
import os
import signal
import subprocess
import sys

from daemon import IS_ROOT, WAIT, Unetd, directory, main, require, run, wait_until

UNETD, UNETCTL, ECHO_SERVER, ECHO_CLIENT = (os.path.abspath(p) for p in sys.argv[1:5])

# Stands where unetd stood: holds the pause open until a file is there.
LATE = """#!/bin/sh
while [ ! -e "{directory}/go" ]; do sleep 0.01; done
exec "{unetd}" "$@"
"""

# A unetd of another release, as far as the keeper hears of it.
OTHER = """#!{python}
import socket, struct, sys, time
fd = next(int(a.split("=")[1]) for a in sys.argv if a.startswith("--keeper-fd="))
hello = struct.pack("=II32s", 77, 0, b"9.9.9")
item = struct.pack("=IIIIQII", 3, len(hello), 0, 0, 0, 0, 0) + hello
socket.socket(fileno=fd).send(struct.pack("=II", 0x754e4a31, 1) + item)
time.sleep({wait})
"""


def script(path, text):
    new = path + ".new"
    with open(new, "w") as file:
        file.write(text)
    os.chmod(new, 0o755)
    os.rename(new, path)


class Ni:
    """A unetd with a keeper, started by a path that can lead elsewhere later, and an echo server on it."""

    def __init__(self, d, *args, seconds=60):
        self.directory, self.path, self.program = d, d + "/s", d + "/unetd"
        os.symlink(UNETD, self.program)
        self.args = ["--socket", self.path, "--host", "alpha", "--takeover", str(seconds), *args]

    def __enter__(self):
        self.daemon = Unetd(self.program, *self.args).__enter__()
        self.env = os.environ | {"UNET_NI": "unix:" + self.path}
        self.server = subprocess.Popen([ECHO_SERVER, "echo"], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: "echo" in self.ctl("names")[1], "the echo server does not come up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.server.wait(WAIT)
        if self.daemon.process.poll() is None:
            self.daemon.stop()
        self.daemon.__exit__()

    def children(self):
        pid = self.daemon.process.pid
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                return [int(each) for each in file.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            return []

    def kill(self, with_signal=signal.SIGKILL):
        """Kills the network interface that serves, and waits until the keeper has noticed."""
        victim = self.serving()
        os.kill(victim, with_signal)
        wait_until(lambda: victim not in self.children(), "the keeper does not see it die")

    def serving(self):
        wait_until(lambda: len(self.children()) == 1, "not one network interface")
        return self.children()[0]

    def late(self):
        script(self.program, LATE.format(directory=self.directory, unetd=UNETD))

    def go(self):
        open(self.directory + "/go", "w").close()

    def ctl(self, *args):
        return run(UNETCTL, *args, "--socket", self.path)

    def report(self):
        status, out, err = self.ctl("all", "--json")
        require(status == 0, f"no report: {err}")
        return json.loads(out)

    def echo(self, *args):
        status, out, err = run(ECHO_CLIENT, "--path", "ni", "--count", "100", *args, "echo", env=self.env)
        require(status == 0 and "0 wrong, 0 lost" in out, f"echo: {status} {out!r} {err!r}")


def what_is_held(report):
    """Object by object, without what a process that asks has itself."""
    ends = [{k: e[k] for k in ("id", "name", "pid", "uid") if k in e} for e in report["endpoints"]]
    return ends, report["names"], report["users"], report["held"]["engine"]


def test_all_is_as_before():
    with directory() as d, Ni(d) as ni:
        ni.echo()
        # Of our own connections one is there each time; the engine may still have the one before.
        before = []
        wait_until(lambda: before.append(what_is_held(ni.report())) or (len(before) > 1 and before[-1] == before[-2]), "no rest")
        for replace in (ni.kill, lambda: ni.ctl("upgrade"), lambda: ni.kill(signal.SIGSEGV)):
            replace()
            wait_until(lambda: what_is_held(ni.report()) == before[-1], f"not as before: {before[-1]} but {what_is_held(ni.report())}")
            ni.echo()
            ni.echo("--size", "60000")


def test_upgrade():
    with directory() as d, Ni(d) as ni:
        old = ni.serving()
        status, out, err = ni.ctl("upgrade")
        require(status == 0 and "upgraded" in out, f"upgrade: {status} {out!r} {err!r}")
        wait_until(lambda: old not in ni.children(), "the old one stays")
        os.symlink(UNETD, d + "/another")
        status, out, err = ni.ctl("upgrade", "--binary", d + "/another")
        require(status == 0, f"upgrade --binary: {status} {err!r}")
        with open(f"/proc/{ni.serving()}/cmdline") as file:
            require("--keeper-fd" in file.read(), "not a child of the keeper")
        ni.echo()


def refused(ni, *args, says):
    old = ni.serving()
    status, _, err = ni.ctl("upgrade", *args)
    require(status == 1 and says in err and err.count("\n") == 1, f"{says!r} is not in {status} {err!r}")
    require(ni.serving() == old, "the old one does not go on")
    ni.echo()


def test_what_cannot_take_over():
    with directory() as d, Ni(d) as ni:
        script(d + "/other", OTHER.format(python=sys.executable, wait=60))
        refused(ni, "--binary", d + "/other", says="writes journals of format 77")
        script(d + "/other", "#!/bin/sh\nexit 3\n")
        refused(ni, "--binary", d + "/other", says="ended with status 3")
        open(d + "/none", "w").close()
        refused(ni, "--binary", d + "/none", says="is not a program")


def test_other_format():
    """The program was replaced by another release, and then the network interface crashed."""
    with directory() as d, Ni(d) as ni:
        script(ni.program, OTHER.format(python=sys.executable, wait=60))
        ni.kill()
        require(ni.daemon.process.wait(WAIT) == 1, "the keeper does not give up")
        err = ni.daemon.process.stderr.read()
        require("cannot go on with one of format" in err and "unetctl drain --wait" in err, f"not explained: {err!r}")
        require(not os.path.exists(ni.path), "its socket is left")


def test_without_a_keeper():
    with directory() as d, Unetd(UNETD, "--socket", d + "/s"):
        status, _, err = run(UNETCTL, "upgrade", "--socket", d + "/s")
        require(status == 1 and "--takeover" in err, f"{status} {err!r}")


def test_upgrade_with_less_rights():
    if not IS_ROOT:
        return
    with directory() as d:
        os.chmod(d, 0o777)
        with Ni(d, "--user", "nobody") as ni:
            refused(ni, "--binary", UNETD, says="runs no program but")
            status, _, err = ni.ctl("upgrade")
            require(status == 0, f"upgrade: {err!r}")
            ni.kill()
            ni.echo()


def ends_with(ni, status):
    require(ni.daemon.process.wait(WAIT) == status, f"not status {status}")
    require(not os.path.exists(ni.path), "its socket is left")
    ni.server.wait(WAIT)  # it has learned it


def test_stop():
    with directory() as d, Ni(d) as ni:
        child = ni.serving()
        ni.daemon.process.send_signal(signal.SIGTERM)
        ends_with(ni, 0)
        require(not os.path.exists(f"/proc/{child}"), "the network interface is left")


def test_stop_in_the_pause():
    with directory() as d, Ni(d) as ni:
        ni.late()
        ni.kill()
        ni.daemon.process.send_signal(signal.SIGTERM)
        ends_with(ni, 0)


def test_nobody_comes_in_time():
    with directory() as d, Ni(d, seconds=1) as ni:
        ni.late()
        ni.kill()
        ends_with(ni, 1)


def test_keeper_dies():
    with directory() as d, Ni(d) as ni:
        ni.daemon.process.kill()
        ni.daemon.process.wait(WAIT)
        ni.server.wait(WAIT)
        wait_until(lambda: not os.path.exists(ni.path), "the network interface does not stop when its keeper is gone")


def test_faults():
    with directory() as d, Ni(d) as ni:
        for _ in range(4):
            ni.kill(signal.SIGSEGV)
            ni.echo()
        ni.kill(signal.SIGSEGV)
        ends_with(ni, 1)


def test_client_connects_in_the_pause():
    with directory() as d, Ni(d) as ni:
        ni.late()
        ni.kill()
        client = subprocess.Popen([ECHO_CLIENT, "--path", "ni", "--count", "100", "echo"], env=ni.env, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        try:
            ni.go()
            out, err = client.communicate(timeout=WAIT)
        finally:
            client.kill()
        require(client.returncode == 0 and "0 wrong, 0 lost" in out, f"{out!r} {err!r}")


def test_client_dies_in_the_pause():
    with directory() as d, Ni(d) as ni:
        ni.late()
        ni.kill()
        ni.server.kill()
        ni.server.wait(WAIT)
        ni.go()
        wait_until(lambda: not ni.report()["endpoints"], "the dead client's endpoint is left")
        report = ni.report()
        require(not report["names"] and all(u["endpoints"] == 0 and u["memory"] == 0 for u in report["users"]), f"left: {report}")


if __name__ == "__main__":
    sys.exit(main(globals()))
