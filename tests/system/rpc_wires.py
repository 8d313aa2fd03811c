#!/usr/bin/env python3
# rpc_wires.py - calls on one host and between two unetds over wires, sound and impaired. Servers are killed and come back. A tally shows that
# no operation runs twice, and none of which its caller learned that it has not run.
#
# Usage: rpc_wires.py UNETD RPC_STORM      (without root and network namespaces, the tests that need them are skipped)
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

from daemon import WAIT, Unetd, directory, main, require, run
from spaces import Host, Spaces, can_be_made

UNETD, RPC_STORM = (os.path.abspath(p) for p in sys.argv[1:3])
IMPAIRED = "faulty:loss=3%,duplicate=1%,reorder=2%,corrupt=1%,seed={} / "
SUPERVISED = ("--takeover", "60", "--no-standby")
CALLS = 1500
SEED = int(os.environ.get("UNET_SEED", "1"))


class Storm:
    """A process of rpc_storm; killed at the end."""

    def __init__(self, path, word, *args):
        self.process = subprocess.Popen([RPC_STORM, *map(str, args)], env=os.environ | {"UNET_NI": "unix:" + path}, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline()
        require(line == word + "\n", f"instead of '{word}': {line or self.process.communicate()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self):
        out, err = self.process.communicate(timeout=5 * WAIT)
        require(self.process.returncode == 0 and err == "", f"a side ends with {self.process.returncode}: {out}{err}")
        return out


def storm(d, server_path, client_paths, target, kills, interfaces=()):
    """Callers, each with operations of its own, a server that is killed and started again, and supervised NIs that are killed."""
    tally = d + "/tally"
    with open(tally, "wb") as file:
        file.truncate(len(client_paths) * CALLS)
    pick = random.Random(SEED)
    name = target.partition("@")[0]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Storm(server_path, "ready", "serve", name, tally))
        callers = [stack.enter_context(Storm(path, "asking", "ask", target, tally, i * CALLS, CALLS, SEED + i))
                   for i, path in enumerate(client_paths)]
        for _ in range(kills):
            time.sleep(pick.uniform(0.05, 0.5))
            server.process.kill()
            server.process.wait()
            server = stack.enter_context(Storm(server_path, "ready", "serve", name, tally))
        for each in interfaces:
            time.sleep(pick.uniform(0.05, 0.5))
            kill_interface(each.process.pid)
        for each in callers:
            statuses = json.loads(each.end())
            require(statuses.get("ok", 0) > (0 if kills else CALLS / 2), f"few calls ended well: {statuses}")
        server.process.terminate()
        server.end()


def kill_interface(supervisor):
    """A supervisor without standby has one child: the NI."""
    status, out, err = run("pgrep", "-P", str(supervisor))
    require(status == 0, f"the supervisor has no NI: {err}")
    os.kill(int(out), signal.SIGKILL)


def test_local():
    with directory() as d, Unetd(UNETD, "--socket", d + "/a", "--log", "warning"):
        storm(d, d + "/a", [d + "/a", d + "/a"], "storm", kills=0)
        storm(d, d + "/a", [d + "/a", d + "/a"], "storm", kills=3)


def test_local_interface_killed():
    with directory() as d, Unetd(UNETD, "--socket", d + "/a", *SUPERVISED, "--log", "error") as ni:
        storm(d, d + "/a", [d + "/a", d + "/a"], "storm", 0, [ni, ni])
        ni.stop()


def between(prefix, kills):
    with directory() as d, contextlib.ExitStack() as stack:
        paths = {"alpha": d + "/a", "beta": d + "/b"}
        for number, (host, path) in enumerate(paths.items()):
            wire = f"dpdk:net_memif0,socket={d}/memif,role={'server' if number == 0 else 'client'}"
            stack.enter_context(Unetd(UNETD, "--socket", path, "--host", host, "--port", prefix.format(number + 1) + wire, "--log", "warning"))
        storm(d, paths["beta"], [paths["alpha"]], "storm@beta", kills)


def test_wire():
    between("", 0)


def test_wire_impaired():
    between(IMPAIRED, 0)


def test_wire_impaired_killed():
    between(IMPAIRED, 2)


if can_be_made():

    def test_veth_impaired():
        with Spaces("a", "b") as spaces, directory() as d, contextlib.ExitStack() as stack:
            spaces.join("a", "eth0", "b", "eth0")
            paths = {"alpha": d + "/a", "beta": d + "/b"}
            for number, (host, path) in enumerate(paths.items()):
                stack.enter_context(Host(UNETD, spaces, host[0], path, IMPAIRED.format(number + 1) + "dpdk:net_af_packet0,iface=eth0",
                                         "--log", "warning"))
            storm(d, paths["beta"], [paths["alpha"]], "storm@beta", kills=1)

    def test_veth_interfaces_killed():
        with Spaces("a", "b") as spaces, directory() as d, contextlib.ExitStack() as stack:
            spaces.join("a", "eth0", "b", "eth0")
            paths = {"alpha": d + "/a", "beta": d + "/b"}
            nis = [stack.enter_context(Host(UNETD, spaces, host[0], path, "dpdk:net_af_packet0,iface=eth0", *SUPERVISED, "--log", "error"))
                   for host, path in paths.items()]
            storm(d, paths["beta"], [paths["alpha"]], "storm@beta", 0, nis)
            for each in nis:
                each.stop()

sys.exit(main(globals()))
