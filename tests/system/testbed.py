#!/usr/bin/env python3
# testbed.py - testbeds as a user runs them: every wire, programs on hosts, refusals, deaths in between, nothing left behind.
#
# Usage: testbed.py TESTBED UNETD_DIRECTORY...   (the directories of unetd, unetctl, unet-bench and the echo programs)
import functools
import json
import os
import signal
import subprocess
import sys
import time

from daemon import IS_ROOT, Failure, directory, main, one_line, require, wait_until

TESTBED = os.path.abspath(sys.argv[1])
DIRECTORIES = [os.path.abspath(path) for path in sys.argv[2:]]
NAME = f"t{os.getpid()}"
SKIP = 77
WAIT = 120  # seconds; an upper bound for what takes one
STATE = "/run/unet-testbed"


def run(*args, cwd=None):
    done = subprocess.run([TESTBED, *args], capture_output=True, text=True, timeout=WAIT, check=False, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def good(*args):
    status, out, err = run(*args)
    require(status == 0, f"testbed {' '.join(args)}: exit status {status}: {out}{err}")
    return out


def left(name):
    """The remains of a testbed: state, namespaces, unetds."""
    found = [path for path in (f"{STATE}/{name}", f"{STATE}/{name}.lock") if os.path.exists(path)]
    if os.path.isdir("/run/netns"):
        found += [entry for entry in os.listdir("/run/netns") if entry.startswith(f"unet-testbed.{name}.")]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0].endswith("/unetd") and any(f"{STATE}/{name}/" in word for word in words):
            found.append(f"unetd {pid}")
    return found


class Up:
    """A testbed for the length of a with block, which then removes it and checks for remains."""

    def __init__(self, *args, name=NAME):
        self.name, self.args = name, args

    def __enter__(self):
        self.said = good("up", "--name", self.name, *self.args)
        return functools.partial(self.on, good), functools.partial(self.on, run)

    def on(self, how, command, *args):
        return how(command, "--name", self.name, *args)

    def __exit__(self, kind, *_):
        status, out, err = run("down", "--name", self.name)
        if kind is None:
            require(status == 0, f"down: {out}{err}")
            require(not left(self.name), f"left behind: {left(self.name)}")


def until_signalled(host, then):
    """A program on a host that prints "on", and does something at SIGTERM."""
    script = f"trap '{then}' TERM; echo on; while :; do sleep 0.05; done"
    return subprocess.Popen([TESTBED, "exec", "--name", NAME, host, "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True)


def unetds(name=NAME):
    return [host["pid"] for host in json.loads(good("status", "--json", "--name", name))]


def test_every_wire():
    """An echo over each wire: `up` itself tests it."""
    for wire, hosts in (("af_packet", "3"), ("memif", "2"), ("af_xdp", "2"), ("pcap", "2")):
        status, out, err = run("up", "--name", NAME, "-n", hosts, "--wire", wire)
        require(not run("down", "--name", NAME)[0] and not left(NAME), f"{wire}: left behind: {left(NAME)}")
        if status == 1 and wire in ("af_xdp", "pcap") and "did not start" in err:
            one_line(err, "testbed", "unetd of h")
            print(f"      {wire} cannot be opened here: {err.strip()}")
            continue
        require(status == 0 and "an echo from each other" in out, f"{wire}: {status}: {out}{err}")


def test_programs_on_hosts():
    with Up("-n", "3", "--loss", "0.1%", "--mtu", "1400") as (ok, any_way):
        port = "faulty:loss=0.1%,seed=3 / dpdk:net_af_packet0,iface=eth0,mtu=1400"
        require(port in ok("status"), "the third port is not as asked for")
        said = ok("exec", "2", "--", "sh", "-c", 'echo "$UNET_RANK of $UNET_SIZE on $UNET_TESTBED_HOST"')
        require(said == "2 of 3 on h2\n", f"environment: {said}")
        out = ok("exec", "all", "--", "sh", "-c", "echo of $UNET_RANK")
        require(sorted(out.splitlines()) == ["h0| of 0", "h1| of 1", "h2| of 2"], f"on all: {out}")
        require(any_way("exec", "h1", "--", "sh", "-c", "exit 7")[0] == 7, "exit status")
        require(any_way("exec", "all", "--", "sh", "-c", "exit $UNET_RANK")[0] == 1, "exit status on all")
        require("h1" in ok("exec", "1", "unetctl", "all", "--json"), "unetctl finds its unetd")
        for host in ("1", "all"):
            one = until_signalled(host, "exit 9")
            for _ in range(3 if host == "all" else 1):
                require("on" in one.stdout.readline(), "the program says nothing")
            one.send_signal(signal.SIGTERM)
            require(one.wait(WAIT) == 9, f"the signal did not reach the program on {host}: {one.returncode}")
            one.stdout.close()
        require("unetd ready at" in ok("logs", "2"), "no log")
        require(f"{NAME}  3 hosts" in run("list")[1], "not in the list")
        records = json.loads(ok("bench", "--size", "64", "--seconds", "0.05", "--json"))
        require(len(records) == 12 and all(record["arrived"] > 0 for record in records), f"bench: {records}")
        require("from h2" in ok("bench", "--size", "64", "--seconds", "0.02"), "no matrix")
        # No process of the user's survives `down`, even if it ignores SIGTERM.
        stubborn = until_signalled("0", "")
        require("on" in stubborn.stdout.readline(), "the program says nothing")
    require(stubborn.wait(WAIT) == -signal.SIGKILL, f"a program on a host survived it: {stubborn.returncode}")
    stubborn.stdout.close()


def test_two_at_once():
    with Up("-n", "2"), Up("-n", "2", "--bridge", name=NAME + "b"):
        for name in (NAME, NAME + "b"):
            status, _, err = run("up", "--name", name)
            require(status == 1, f"a second '{name}': {status}")
            one_line(err, "testbed", "is up already (2 hosts)", "testbed down")
    status, out, _ = run("down", "--name", NAME)
    require(status == 0 and "nothing to remove" in out, f"down again: {status} {out}")


def test_deaths():
    with Up("-n", "2") as (ok, any_way):
        os.kill(unetds()[1], signal.SIGKILL)
        wait_until(lambda: any_way("status")[0] == 1, "status does not see that a unetd was killed")
        require("h1  unetd not running" in any_way("status")[1], "status does not say which")
    # A recorded pid that now belongs to another process: its start time differs.
    with Up("-n", "2"):
        with subprocess.Popen(["sleep", "1000"]) as other:
            path = f"{STATE}/{NAME}/state.json"
            with open(path, encoding="utf-8") as file:
                state = json.load(file)
            state["hosts"][0]["pid"] = other.pid
            with open(path, "w", encoding="utf-8") as file:
                json.dump(state, file)
            good("down", "--name", NAME)
            require(other.poll() is None, "down killed a process that is not of the testbed")
            other.kill()
        require(not left(NAME), f"left behind: {left(NAME)}")


def test_interrupted():
    """`up` is interrupted at several moments, and removes all it has made. After SIGKILL, `down` finds it."""
    for number, after in ((signal.SIGINT, 0), (signal.SIGKILL, 0.1), (signal.SIGINT, 0.2), (signal.SIGKILL, 0.4), (signal.SIGTERM, 0.5)):
        up = subprocess.Popen([TESTBED, "up", "--name", NAME, "-n", "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda up=up: os.path.exists(f"{STATE}/{NAME}") or up.poll() is not None, "up makes nothing")
        time.sleep(after)  # any moment will do, also one after the end
        up.send_signal(number)
        _, err = up.communicate(timeout=WAIT)
        if number != signal.SIGKILL and up.returncode != 0:
            require(up.returncode == 128 + number and err == "testbed: interrupted\n", f"interrupted: {up.returncode} {err}")
            require(not left(NAME), f"interrupted after {after} s: left behind: {left(NAME)}")
        good("down", "--name", NAME)
        require(not left(NAME), f"after {after} s: left behind: {left(NAME)}")


def test_interrupted_in_a_step():
    """The kernel may be slow to make a namespace. A killed `ip` would make it after the clean-up."""
    with directory() as d:
        with open(d + "/ip", "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\n{{ echo >>"{d}/begun"; sleep 0.7; PATH={os.environ["PATH"]} exec ip "$@"; }} &\nwait $!\n')
        os.chmod(d + "/ip", 0o755)
        up = subprocess.Popen([TESTBED, "up", "--name", NAME], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=os.environ | {"PATH": f"{d}:{os.environ['PATH']}"})
        wait_until(lambda: os.path.exists(d + "/begun"), "up makes nothing")
        up.send_signal(signal.SIGINT)
        _, err = up.communicate(timeout=WAIT)
        require(up.returncode == 128 + signal.SIGINT and err == "testbed: interrupted\n", f"interrupted: {up.returncode} {err}")
        time.sleep(1)  # any late namespace exists by now
        require(not left(NAME), f"left behind: {left(NAME)}")


def test_real_hosts():
    """Through a stand-in for ssh that runs the given text here."""
    with directory() as d:
        with open(d + "/ssh", "w", encoding="ascii") as file:
            file.write('#!/bin/sh\n[ "$1" = user@here ] || exit 255\nshift\nexec sh -c "$*"\n')
        os.chmod(d + "/ssh", 0o755)
        memif = f"socket={d}/memif.sock"
        with open(d + "/hosts", "w", encoding="ascii") as file:
            file.write(f"# two\nalpha user@here dpdk:net_memif0,role=server,{memif}\n"
                       f"beta user@here faulty:delay=10us / dpdk:net_memif0,role=client,{memif}\n")
        args = ["--hosts", d + "/hosts", "--ssh", d + "/ssh", "--remote-path", ":".join(DIRECTORIES)]
        with Up(*args) as (ok, any_way):
            state = json.loads(open(f"{STATE}/{NAME}/state.json", encoding="utf-8").read())
            require("beta" in ok("exec", "1", "--", "sh", "-c", 'echo "$UNET_TESTBED_HOST it\'s"; unetctl all'), "environment")
            require(any_way("exec", "alpha", "--", "sh", "-c", "exit 7")[0] == 7, "exit status")
            one = until_signalled("beta", "exit 9")
            require("on" in one.stdout.readline(), "the program says nothing")
            one.send_signal(signal.SIGTERM)
            require(one.wait(WAIT) == 9, f"the signal did not reach the program: {one.returncode}")
            one.stdout.close()
            require("unetd ready at" in ok("logs", "0"), "no log")
            require(len(json.loads(ok("bench", "--size", "64", "--seconds", "0.05", "--json"))) == 4, "bench")
            os.kill(unetds()[0], signal.SIGKILL)
            wait_until(lambda: any_way("status")[0] == 1, "status does not see that a unetd was killed")
        for host in state["hosts"]:
            require(not os.path.exists(host["directory"]), f"{host['directory']} is left")
        with open(d + "/hosts", "w", encoding="ascii") as file:
            file.write("alpha user@here none\nbeta user@there none\n")
        status, _, err = run("up", "--name", NAME, *args)
        require(status == 1, f"a host that does not answer: {status}")
        require("beta (user@there)" in err, err)
        require(not left(NAME), f"left behind: {left(NAME)}")


WRONG = [
    ([], "COMMAND"), (["walk"], "walk"), (["up", "-n", "1"], "2 to 32"), (["up", "-n", "x"], "2 to 32"),
    (["up", "--wire", "string"], "memif"), (["up", "--wire", "memif", "-n", "3"], "two hosts"),
    (["up", "--wire", "memif", "--bridge"], "bridge"), (["up", "--loss", "2"], "1%"), (["up", "--delay", "5"], "50us"),
    (["up", "--mtu", "1"], "256"), (["up", "--name", "a.b"], "a.b"), (["up", "--hosts", "/nonexistent/x"], "/nonexistent/x"),
    (["exec", "0"], "which program"), (["exec"], "HOST"), (["bench", "--seconds", "0"], "3600"), (["down", "more"], "more"),
]


def test_wrong_words():
    for args, part in WRONG:
        status, out, err = run(*args)
        require(status == 2 and out == "", f"testbed {args}: exit status {status}: {out}{err}")
        one_line(err, "testbed: ", part)
    status, _, err = run("exec", "--name", NAME, "0", "--", "true")
    require(status == 1, f"exec without a testbed: {status}")
    one_line(err, "testbed: ", f"there is no testbed '{NAME}'")
    require("For example" in good("--help") and "For example" in good("up", "--help"), "--help does not teach")


def test_not_root():
    done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, TESTBED, "up"],
                          capture_output=True, text=True, timeout=WAIT, check=False, env={"PATH": os.environ["PATH"]}, cwd="/")
    if "No such file" in done.stderr or "ermission denied" in done.stderr:
        return  # the other user may have no access to the build directory
    require(done.returncode == 1, f"not root: {done.returncode} {done.stderr}")
    one_line(done.stderr, "testbed: ", "need root", "unshare")


if not IS_ROOT:
    print("skipped: network namespaces need root")
    sys.exit(SKIP)
try:
    sys.exit(main(dict(globals())))
except Failure as failure:
    sys.exit(str(failure))
finally:
    for each in (NAME, NAME + "b"):
        subprocess.run([TESTBED, "down", "--name", each], check=False, capture_output=True, timeout=WAIT)
