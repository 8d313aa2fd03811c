#!/usr/bin/env python3
# takeover.py - a supervised unetd as its operator and a service manager see it: what ends it, what it survives, and what is refused.
#
# Usage: takeover.py UNETD UNETCTL ECHO_SERVER ECHO_CLIENT
import os
import resource
import signal
import socket
import subprocess
import sys
import time

from daemon import IS_ROOT, NOBODY, WAIT, Unetd, beside, directory, main, require, run, wait_until
from takeover_ni import (ANOTHER, ECHO_CLIENT, FORMAT, HANG, TAKE, UNETCTL, UNETD, Ni, ends_with, falls_back, other, refused, script,
                         stands_by, upgrade)


def what_is_held(report):
    """All objects in the report, without the asking process's own."""
    ends = [{k: e[k] for k in ("id", "name", "pid", "uid") if k in e} for e in report["endpoints"]]
    return ends, report["names"], report["users"], report["held"]["engine"]


def test_all_is_as_before():
    with directory() as d, Ni(d) as ni:
        ni.echo()
        # Each report has one connection of this test; the engine may still have the earlier one.
        before = []
        wait_until(lambda: before.append(what_is_held(ni.report())) or (len(before) > 1 and before[-1] == before[-2]), "no rest")
        for replace in (ni.kill, lambda: upgrade(ni), lambda: ni.kill(signal.SIGSEGV)):
            replace()
            wait_until(lambda: what_is_held(ni.report()) == before[-1], f"not as before: {before[-1]} but {what_is_held(ni.report())}")
            ni.echo()
            ni.echo("--size", "60000")


def test_standby():
    with directory() as d, Ni(d, standby=True) as ni:
        first, second = stands_by(ni)
        # The standby NI takes over: no other is started for it.
        ni.late()
        os.kill(first, signal.SIGKILL)
        ni.echo()
        require(ni.children()[0] == second, "another than the one that stood by")
        # The next NI has not loaded yet, and is waited for.
        wait_until(lambda: len(ni.children()) == 2, "no other is started")
        os.kill(second, signal.SIGKILL)
        ni.go()
        ni.echo()
        # The death of a standby NI is not noticed by clients.
        first, second = stands_by(ni)
        os.kill(second, signal.SIGKILL)
        wait_until(lambda: second not in ni.children(), "the supervisor does not see it die")
        os.kill(first, signal.SIGKILL)
        ni.echo()
        upgrade(ni)
        first, second = stands_by(ni)
        ni.echo()
        ni.daemon.process.send_signal(signal.SIGTERM)
        ends_with(ni, 0)
        require(not os.path.exists(f"/proc/{first}") and not os.path.exists(f"/proc/{second}"), "one is left")


def test_standby_with_a_port():
    """DPDK's EAL starts in the standby NI, and the port is opened when the old NI has ended."""
    with directory() as d:
        os.chmod(d, 0o777)
        with Ni(d, "--port", "dpdk:net_ring0,hugepages=never", *(["--user", "nobody"] if IS_ROOT else []), standby=True) as ni:
            for _ in range(2):
                first, second = stands_by(ni)
                os.kill(first, signal.SIGKILL)
                ni.echo()
                require(ni.children()[0] == second, "another than the one that stood by")
                require(len(ni.report()["ports"]) == 1, "the port is missing")


def test_upgrade():
    with directory() as d, Ni(d) as ni:
        old = ni.serving()
        status, out, err = ni.ctl("upgrade")
        require(status == 0 and "upgraded" in out, f"upgrade: {status} {out!r} {err!r}")
        wait_until(lambda: old not in ni.children(), "the old one stays")
        script(d + "/another", ANOTHER.format(unetd=UNETD))
        upgrade(ni, "--binary", d + "/another")
        with open(f"/proc/{ni.serving()}/cmdline") as file:
            require("--keeper-fd" in file.read(), "not a child of the supervisor")
        ni.echo()


def test_what_cannot_take_over():
    with directory() as d, Ni(d) as ni:
        program = d + "/other"
        for format in (FORMAT - 1, 77):
            other(program, HANG, format)
            refused(ni, "--binary", program, says=f"writes journals of format {format}")
        for text in ("#!/bin/sh\nexit 3\n", "#!/bin/sh\nkill -9 $$\n"):
            script(program, text)
            refused(ni, "--binary", program, says="before it could take over: its log says why")
        other(program, HANG, before="HELLO = 99")
        refused(ni, "--binary", program, says="wrote what is no journal")
        other(program, HANG, before="path = b''")
        refused(ni, "--binary", program, says="names the control socket '', and clients are connected at")
        other(program, HANG, user=NOBODY)
        refused(ni, "--binary", program, says=f"makes it user {NOBODY}'s")


def test_taking_over_fails():
    """The old NI has let go already: its program is started again, even if the file is no longer in place."""
    with directory() as d, Ni(d) as ni:
        program = d + "/other"
        other(program, TAKE + "sys.exit(3)\n")
        falls_back(ni, "--binary", program, says="ended with status 3")
        other(ni.program, TAKE + "import os; os.abort()\n")
        falls_back(ni, says="was killed by signal 6")
        ni.kill()
        ni.echo()
        # The path counts again as soon as it leads to a working unetd.
        os.unlink(ni.program)
        ni.kill()
        ni.echo()
        os.symlink(UNETD, ni.program)
        upgrade(ni)
        ni.echo()


PATIENCE = 10  # seconds: enough for a unetd to come up, also on a busy machine


@beside
def test_upgrade_hangs_before_it_comes_up():
    with directory() as d, Ni(d, seconds=PATIENCE) as ni:
        script(d + "/other", "#!/bin/sh\nexec sleep 60\n")
        refused(ni, "--binary", d + "/other", says=f"did not come up in {PATIENCE} s")


@beside
def test_upgrade_hangs_before_it_is_ready():
    with directory() as d, Ni(d, seconds=PATIENCE) as ni:
        other(d + "/other", TAKE + HANG)
        falls_back(ni, "--binary", d + "/other", says=f"was not ready in {PATIENCE} s")


@beside
def test_next_one_hangs():
    """The program was replaced, then the NI crashed: the program that has served before is tried again."""
    with directory() as d, Ni(d, seconds=PATIENCE) as ni:
        ni.late()
        ni.kill()
        wait_until(lambda: ni.ctl("names")[0] == 0, "nobody serves")
        ni.echo()


def test_other_format():
    """The program was replaced by another release, then the NI crashed: the program that ran is started again."""
    with directory() as d, Ni(d) as ni:
        other(ni.program, HANG, 77)
        ni.kill()
        ni.echo()


def test_journal_is_broken():
    """An NI that the supervisor itself has to kill counts as a fault."""
    with directory() as d, Ni(d) as ni:
        other(ni.program, TAKE + "say(4)\nlink.send(b'something else')\n" + HANG)
        ni.kill()
        ends_with(ni, 1)
        require("no journal" in ni.daemon.process.stderr.read(), "not said")


def test_limit_of_open_files():
    """The supervisor holds the descriptors of all clients: its limit is as high as possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with directory() as d:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        try:
            ni = Ni(d).__enter__()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        try:
            for pid in (ni.daemon.process.pid, ni.serving()):
                now = resource.prlimit(pid, resource.RLIMIT_NOFILE)
                require(now[0] == now[1] >= hard, f"{pid} may open {now} files")
        finally:
            ni.__exit__()


def test_without_a_supervisor():
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
            upgrade(ni)
            ni.kill()
            ni.echo()


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


@beside
def test_nobody_comes_in_time():
    with directory() as d, Ni(d, seconds=PATIENCE) as ni:
        ni.go()
        ni.late()
        upgrade(ni)
        os.unlink(d + "/go")
        ni.kill()
        ends_with(ni, 1)


def test_supervisor_dies():
    with directory() as d, Ni(d) as ni:
        ni.daemon.process.kill()
        ni.daemon.process.wait(WAIT)
        ni.server.wait(WAIT)
        wait_until(lambda: not os.path.exists(ni.path), "the network interface does not stop when its supervisor is gone")


def test_faults():
    with directory() as d, Ni(d) as ni:
        faults = []
        while ni.daemon.process.poll() is None:
            faults = [at for at in faults if time.monotonic() - at < 60] + [time.monotonic()]  # a very slow machine needs some more
            ni.kill(signal.SIGSEGV)
            if len(faults) < 5:
                ni.echo()
            else:
                wait_until(lambda: ni.daemon.process.poll() is not None or time.monotonic() - faults[0] > 60, "neither this nor that")
        ends_with(ni, 1)


def is_bound(other, name):
    try:
        other.bind(name)
    except OSError:
        return False
    return True


@beside
def test_a_wire_is_waited_for():
    """The wire is in use for longer than the NIs' attempts would last, at a second each, before too many failures."""
    with directory() as d, Ni(d, "--port", f"dpdk:net_memif0,role=server,socket={d}/wire") as ni:
        supervisor, victim = ni.daemon.process, ni.serving()
        supervisor.send_signal(signal.SIGSTOP)
        os.kill(victim, signal.SIGKILL)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            wait_until(lambda: is_bound(other, f"\0{d}/wire"), "the wire is not free")
            supervisor.send_signal(signal.SIGCONT)
            time.sleep(7)
            require(supervisor.poll() is None, "the supervisor has given up")
        ni.echo()


def is_waited_for(path):
    """A client has connected, and is not accepted yet."""
    with open("/proc/net/unix") as file:
        return any(line.split()[5] == "02" and line.rstrip().endswith(path) for line in file)


def test_client_connects_in_the_pause():
    with directory() as d, Ni(d) as ni:
        ni.late()
        ni.kill()
        client = subprocess.Popen([ECHO_CLIENT, "--path", "ni", "--count", "100", "echo"], env=ni.env, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: is_waited_for(ni.path), "the client does not connect")
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
        # The supervisor's descriptors of the memory are closed a moment later.
        wait_until(lambda: all(u["endpoints"] == 0 and u["memory"] == 0 for u in ni.report()["users"]), "its memory is charged still")
        report = ni.report()
        require(not report["names"], f"left: {report}")


if __name__ == "__main__":
    sys.exit(main(globals()))
