#!/usr/bin/env python3
# sockets_stress.py - a thousand connections that come and go at random, by unmodified programs on U-Net's sockets (sockets_stress.c). First
# no process is killed, and every connection is complete. Then some are killed all the time: every byte is verified, the others are not
# disturbed, and nothing is held at the end. Also with a kernel at one end, and with an NI that is killed. The soak (UNET_LONG) lasts
# longer.
#
# Usage: sockets_stress.py UNETD UNETCTL UNET_SOCKETS SOCKETS_STRESS   (77: no root, no network namespaces)
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

from daemon import WAIT, directory, main, require, run, wait_until
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, give_kernel
from program_roles import Side, end, with_loopback
from spaces import Host, Spaces, can_be_made, ip

UNETD, UNETCTL, UNET_SOCKETS, STRESS = map(os.path.abspath, sys.argv[1:5]) if len(sys.argv) == 5 else [""] * 4
SECONDS = 60 if "UNET_LONG" in os.environ else 2
NOBODY = {4: "10.86.0.77", 6: "fd00:86::77"}  # unused addresses of the network
WORKERS, SLOW = 3, 20
PORT, PORT_KILLED, PORT_STEADY, PORT_PREFORK = 8300, 8310, 8320, 8330
GROWTH_MAX = 48 << 20  # of the NI's memory: a leaked process costs several MiB, and a hundred are killed


class Program:
    """A side of sockets_stress and its output, until end() or the end of the test."""

    def __init__(self, side, path, *words):
        self.words, self.path = words, path
        with open(path, "wb") as out:
            self.process = side.start(STRESS, *words, stdout=out, stderr=out)

    def said(self):
        with open(self.path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def check(self):
        """Nothing is wrong so far."""
        said = self.said()
        status = self.process.poll()
        require("WRONG" not in said and status in (None, 0), f"{self.words} ends with {status}: {said[-2000:]}")
        return said

    def counts(self):
        """The figures in its last line."""
        lines = re.findall(r"^(?:so far|done) (.*)$", self.check(), re.M)
        return {name: int(value) for name, value in (each.split("=") for each in lines[-1].split())} if lines else {}

    def must_end(self):
        wait_until(lambda: self.check() is not None and self.process.poll() == 0, f"{self.words} does not end: {self.said()[-500:]}")
        require(self.said().splitlines()[-1].startswith("done"), f"{self.words}: {self.said()[-500:]}")
        return self.counts()

    def kill(self):
        """Kills all of its processes at once, as the out-of-memory killer does."""
        self.check()
        end(self.process, signal.SIGKILL)

    # ---- for a server

    def workers(self):
        """The living workers; each has printed that it waits for connections."""
        alive = []
        for pid in map(int, re.findall(r"^worker (\d+)$", self.check(), re.M)):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                if file.read().rpartition(")")[2].split()[0] not in "ZX":
                    alive.append(pid)
        return alive

    def serves(self):
        return len(self.workers()) == WORKERS


class Stage:
    def __init__(self, server, client, address, d):
        self.server_side, self.client_side, self.address, self.d = server, client, address, d
        self.programs, self.random = [], random.Random(1)

    def start(self, side, *words):
        self.programs.append(Program(side, f"{self.d}/log-{len(self.programs)}", *words))
        return self.programs[-1]

    def serve(self, port, *each, address=None):
        server = self.start(self.server_side, "serve", address or self.address, port, WORKERS, *each)
        wait_until(server.serves, f"the server at {port} does not get ready: {server.said()}")
        return server

    def load(self, port, connections, seconds, what=NOBODY[4]):
        return self.start(self.client_side, "load", self.address, port, seconds, connections, self.random.randrange(1 << 32), what)

    def end(self):
        for each in self.programs:
            end(each.process, signal.SIGKILL)

    # ---- while no process is killed

    def calm(self):
        """Every connection is complete with every kind of server: all data arrived, both ways, and it ended as planned."""
        servers = [self.serve(PORT), self.serve(PORT_KILLED, "each"), self.serve(PORT_PREFORK, "prefork")]
        for load in [self.load(each.words[2], 100, 1) for each in servers]:
            counts = load.must_end()
            print(f"      {counts}", flush=True)
            require(counts["whole"] > 0 and counts["bytes"] > 0, f"nothing was served: {counts}")
            require(counts["cut"] + counts["early"] + counts["refused"] == 0, f"nobody was killed: {counts}")
        for each in servers:
            each.kill()

    # ---- while processes are killed

    def kill_worker(self, server):
        """Kills one worker at a time: the others serve meanwhile."""
        victim = self.random.choice(server.workers())
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: server.serves() and victim not in server.workers(), f"no worker in the place of {victim}: {server.said()}")

    def replace(self, one):
        one.kill()
        if one.words[0] == "serve":
            return self.serve(one.words[2], *one.words[4:], address=one.words[1])
        return self.load(one.words[2], one.words[4], one.words[3])

    def storm(self, seconds, scale):
        """Kills one worker after another until the time is over. Returns their number."""
        # An immediate replacement runs beside a process that has not quite exited, which would keep a shared listener's port bound.
        server, killed, steady = self.serve(PORT), self.serve(PORT_KILLED, "each"), self.serve(PORT_STEADY, address="0.0.0.0")
        servers = [server, self.serve(PORT_PREFORK, "prefork")]
        kept = [self.load(PORT, 300 * scale // 100, seconds) for _ in range(2)] + [self.load(PORT_KILLED, 100 * scale // 100, seconds)]
        kept.append(self.load(PORT_PREFORK, 40 * scale // 100, seconds))
        bystander = self.load(PORT_STEADY, 20, seconds, "steady")
        mortal = [killed] + [self.load(port, 140 * scale // 100, 10 * WAIT) for port in (PORT, PORT_KILLED)]
        kills, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.1)
            which = self.random.randrange(len(mortal) + 2)
            if which < len(mortal):
                mortal[which] = self.replace(mortal[which])
            else:
                self.kill_worker(self.random.choice(servers))
            kills += 1
            for each in self.programs:
                if each.process.poll() is None:
                    each.check()
        for each in [*kept, bystander]:
            counts = each.must_end()
            print(f"      {counts}", flush=True)
            require(counts["whole"] > 0 or each.words[2] == PORT_KILLED, f"nothing was served: {counts}")
            require(each is not bystander or counts["cut"] + counts["early"] + counts["refused"] == 0, f"a bystander's connections: {counts}")
        return kills


class Ni:
    """The NI of a test, and its resources."""

    def __init__(self, daemon, socket):
        self.daemon, self.socket = daemon, socket

    def ctl(self, *words):
        status, out, err = run(UNETCTL, "--socket", self.socket, *words)
        require(status == 0, f"{words}: {err}")
        return json.loads(out)

    def sockets(self):
        return self.ctl("ss", "--json", "--all")

    def has(self):
        """Resources that would grow with every leak."""
        pid = self.daemon.process.pid
        return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "endpoints": len(self.ctl("endpoints", "--json")),
                "clients": len(self.ctl("clients", "--json")), "channels": len(self.ctl("channels", "--json"))}

    def memory(self):
        with open(f"/proc/{self.daemon.process.pid}/status", encoding="utf-8") as file:
            status = file.read()
        return sum(int(re.search(rf"^{name}:\s+(\d+)", status, re.M)[1]) << 10 for name in ("RssAnon", "RssShmem"))


def network_interface(spaces, d, port):
    return Host(UNETD, spaces, "a", f"{d}/s", port, "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed")


@contextlib.contextmanager
def stage(role):
    """Roles: the server and the caller, each `ours` or `kernel`."""
    with directory() as d, directory() as files, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        with_loopback(spaces, "a", "b")
        give_kernel(spaces, KERNELS)
        sides = {"ours": Side(spaces["a"], files, [UNET_SOCKETS, f"unix:{d}/s"]), "kernel": Side(spaces["b"], files)}
        server, client = role
        with network_interface(spaces, d, "nowhere" if role == ("ours", "ours") else "packet:iface=eth0") as daemon:
            it = Stage(sides[server], sides[client], {"ours": OURS, "kernel": KERNELS}[server][4], files)
            it.ni = Ni(daemon, f"{d}/s")
            it.client_space = spaces["b"]
            with contextlib.ExitStack() as others:
                it.restart = lambda: restart(it, others.enter_context, lambda: network_interface(spaces, d, "nowhere"))
                others.callback(it.end)
                yield it


def restart(it, run_until_the_end, another):
    """Kills a client, and starts another in its place after a while."""
    require(it.ni.daemon.process.poll() is None, "there is no network interface to kill")
    it.ni.daemon.stop(signal.SIGKILL)
    time.sleep(0.3)
    it.ni = Ni(run_until_the_end(another()), it.ni.socket)


def storm(role, seconds, scale):
    with stage(role) as it:
        # One-time allocations happen here, before the measurement.
        it.calm()
        wait_until(lambda: it.ni.sockets() == [], "sockets of what was killed first")
        had, memory = it.ni.has(), it.ni.memory()
        kills = it.storm(seconds, scale)
        it.end()
        wait_until(lambda: it.ni.sockets() == [], f"sockets are left: {it.ni.sockets()}")
        wait_until(lambda: all(count <= had[what] for what, count in it.ni.has().items()), f"before: {had}, after: {it.ni.has()}")
        growth = it.ni.memory() - memory
        print(f"      {kills} killed; the network interface's memory grew by {growth >> 10} KiB", flush=True)
        require(growth < GROWTH_MAX, f"the network interface's memory grew by {growth >> 20} MiB")
        require(it.ni.daemon.stop() == 0, "unetd did not end well")


def test_storm_both_ours():
    storm(("ours", "ours"), SECONDS, 100)


def test_storm_server_ours():
    storm(("ours", "kernel"), SECONDS // 2, 50)


def test_storm_client_ours():
    storm(("kernel", "ours"), SECONDS // 2, 50)


RESETS = """
import socket, struct, sys
calls = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(int(sys.argv[3]))]
print("connected", flush=True)
sys.stdin.readline()
for each in calls:
    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    each.close()
"""


def test_lost_resets():
    """Each worker waits for a caller that vanished silently, since Linux sends a reset only once. Keep-alive finds that out, and the worker
    serves others."""
    with stage(("ours", "kernel")) as it:
        it.serve(PORT_PREFORK, "prefork")
        lost = ("blackhole", f"{it.address}/32")
        gone = it.client_side.start(sys.executable, "-c", RESETS, it.address, PORT_PREFORK, WORKERS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            require(gone.stdout.readline() == b"connected\n", "no connections")
            wait_until(lambda: sum(each["state"] == "LISTEN" and each["receive_queue"] != 0 for each in it.ni.sockets()) == 0, "not accepted")
            ip("-n", it.client_space, "route", "add", *lost)
            gone.communicate(b"\n", timeout=WAIT)
            ip("-n", it.client_space, "route", "delete", *lost)
        finally:
            end(gone, signal.SIGKILL)
        require(sum(each["state"] == "ESTAB" for each in it.ni.sockets()) == WORKERS, f"not lost: {it.ni.sockets()}")
        counts = it.load(PORT_PREFORK, 2 * WORKERS, 1).must_end()
        require(counts["whole"] > 0 and counts["cut"] + counts["early"] + counts["refused"] == 0, f"lost resets: {counts}")


def test_network_interface_killed():
    """When the NI is killed, connections are reset, listeners are bound again, and new connections work."""
    with stage(("ours", "ours")) as it:
        servers = [it.serve(PORT), it.serve(PORT_KILLED, "each"), it.serve(PORT_STEADY, address="0.0.0.0")]
        ports, long = (PORT, PORT_KILLED, PORT_STEADY), 10 * WAIT
        busy, slow = [it.load(port, 50, long) for port in ports], [it.load(port, SLOW, long, "slow") for port in ports]
        workers = [each.workers() for each in servers]

        def all_work():
            until = [each.counts().get("whole", 0) + 100 for each in busy]
            wait_until(lambda: all(each.counts().get("whole", 0) >= wanted for each, wanted in zip(busy, until)), "no connections are served")
            wait_until(lambda: all(each.counts().get("open") == SLOW for each in slow), "not all slow connections are open")
            require([each.workers() for each in servers] == workers, "a server's process has ended")

        for times in range(3):
            all_work()
            it.restart()
            wait_until(lambda: all(each.counts()["cut"] >= SLOW * (times + 1) for each in slow), "not all slow connections were reset")
            require(all(each.counts()["early"] == 0 for each in slow), "some had an end instead of a reset")
        all_work()
        it.end()
        wait_until(lambda: it.ni.sockets() == [], f"sockets are left: {it.ni.sockets()}")


if __name__ == "__main__":
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
