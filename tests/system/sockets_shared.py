#!/usr/bin/env python3
# sockets_shared.py - processes that share a port (SO_REUSEPORT), with clients on Linux's kernel and on the same NI. Each process gets a
# share of the connections. None is lost when another process is killed or joins, or by an upgrade or restart of the NI. tshark checks the
# captures.
#
# Usage: sockets_shared.py UNETD UNETCTL SOCKETS_PEER   (77: no root, no network namespaces)
#        sockets_shared.py --peer ...                   the kernel's side, in its namespace
import collections
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys

from daemon import WAIT, directory, main, require, run, wait_until
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel, heard, looks_right
from spaces import Host, Spaces, can_be_made
from tcp_linux import PORT

UNETD, UNETCTL, SOCKETS_PEER = map(os.path.abspath, sys.argv[1:4]) if len(sys.argv) == 4 else ("", "", "")
MEMBERS, EACH = 4, 1000
GROUP = 1  # of SO_REUSEPORT; any other number would do


# ---- the kernel's side


def talk(streams):
    """Exchanges data on every stream. Returns those that were reset, and those that go on."""
    dead = []
    for stream in streams:
        try:
            stream.sendall(b"x")
        except (ConnectionResetError, BrokenPipeError):
            dead.append(stream)
    for stream in streams:
        try:
            require(stream in dead or stream.recv(1) == b"x", "the echo")
        except (ConnectionResetError, BrokenPipeError):
            dead.append(stream)
    for stream in dead:
        streams.remove(stream)
    return len(dead)


def kernel_calls(address):
    """Runs `open N`, `talk` and `datagrams N`, and prints the outcome of each in a line."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    streams = []
    print("ready", flush=True)
    for line in sys.stdin:
        what, *count = line.split()
        if what == "open":
            wanted = len(streams) + int(count[0])
            while len(streams) < wanted:
                with contextlib.suppress(ConnectionError):  # to a member that has just been killed
                    streams.append(socket.create_connection((address, PORT), timeout=WAIT))
            print("open", flush=True)
        elif what == "talk":
            print(f"reset {talk(streams)} of {len(streams)}", flush=True)
        else:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            for _ in range(int(count[0])):
                with socket.socket(family, socket.SOCK_DGRAM) as one:
                    one.settimeout(WAIT)
                    one.sendto(b"y", (address, PORT))
                    require(one.recv(10) == b"y", "a datagram")
            print("heard", flush=True)
    return "done"


PEER = {"calls": kernel_calls}


# ---- the test


class Ni:
    def __init__(self, spaces, d, daemon):
        self.spaces, self.socket, self.daemon = spaces, f"{d}/s", daemon
        self.env = os.environ | {"UNET_NI": f"unix:{d}/s"}
        self.running = contextlib.ExitStack()

    def program(self, *words):
        process = subprocess.Popen([SOCKETS_PEER, *map(str, words)], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.line = Lines(process.stdout).next
        self.running.callback(lambda: (process.kill(), process.wait(WAIT)))
        return process

    def member(self, group=GROUP):
        process = self.program("echo", PORT, group)
        line = process.line()
        require(line == "ready", f"a member: {line}")
        return process

    def kernel(self, address):
        peer = subprocess.Popen(["ip", "netns", "exec", self.spaces["b"], sys.executable, os.path.abspath(__file__), "--peer", "calls",
                                 address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        peer.line = Lines(peer.stdout).next
        self.running.callback(lambda: (peer.kill(), peer.wait(WAIT)))

        def ask(*words):
            peer.stdin.write((" ".join(map(str, words)) + "\n").encode())
            peer.stdin.flush()

        peer.ask = ask
        require(peer.line() == "ready", "the kernel's side")
        return peer

    def ctl(self, *words):
        status, out, err = run(UNETCTL, "--socket", self.socket, *words)
        require(status == 0, f"{words}: {err}")
        return out

    def shares(self):
        """The number of connections of each process."""
        found = json.loads(self.ctl("ss", "--json", "state", "established", "sport", "=", f":{PORT}"))
        return collections.Counter(each["pid"] for each in found)

    def near(self):
        return sorted(each["counters"]["near_in"] for each in json.loads(self.ctl("ss", "--stacks", "--json")))

    def restart(self):
        """Kills the serving NI; its supervisor starts another."""
        pid = self.daemon.process.pid
        found = []

        def serves():
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                found[:] = [int(each) for each in file.read().split()]
            return len(found) == 1

        wait_until(serves, "not one network interface")
        victim = found[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: serves() and found[0] != victim, "none takes its place")

    def upgrade(self):
        status, _, err = run(UNETCTL, "upgrade", "--socket", self.socket)
        require(status == 0, f"no upgrade: {err}")


@contextlib.contextmanager
def interface(*more):
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        with Host(UNETD, spaces, "a", f"{d}/s", "pcap:iface=eth0", "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed", *more) as daemon:
            ni = Ni(spaces, d, daemon)
            with heard(spaces["b"], f"{d}/wire.pcap"), ni.running:
                yield ni
        looks_right(f"{d}/wire.pcap")


def said(peer, *words):
    peer.ask(*words)
    return peer.line()


def test_members_come_and_go():
    with interface("--takeover", "60", "--no-standby") as ni:
        members = [ni.member() for _ in range(MEMBERS)]
        peer = ni.kernel(OURS[4])
        require(said(peer, "open", EACH) == "open", "connections")
        require(said(peer, "talk") == f"reset 0 of {EACH}", "the first words")
        shares = ni.shares()
        require(len(shares) == MEMBERS and sum(shares.values()) == EACH, f"{shares}")
        require(all(each > EACH // MEMBERS // 2 for each in shares.values()), f"some have too little: {shares}")
        # A member joins while connections are opened, and one is killed while more are.
        peer.ask("open", EACH // 2)
        wait_until(lambda: sum(ni.shares().values()) > EACH, "nothing is opened")
        members.append(ni.member())
        require(peer.line() == "open", "connections while a member comes")
        peer.ask("open", EACH // 2)
        wait_until(lambda: ni.shares()[members[-1].pid] > 0, "the one that came has got nothing")
        members[0].send_signal(signal.SIGKILL)
        members[0].wait(WAIT)
        require(peer.line() == "open", "connections while one is killed")
        require(said(peer, "talk").startswith("reset "), "it talks")
        # Living members keep their connections: these are the ones left, and none of them is reset any more.
        left = sum(ni.shares().values())
        require(said(peer, "talk") == f"reset 0 of {left}", "a living member's connection was reset")
        # By hash, the killed member has a quarter of the first ones, and perhaps a fifth of the last, if they were open before its death.
        require(left > EACH * (2 - 2.5 / MEMBERS), f"only {left} are left")
        for end in ni.upgrade, ni.restart:
            end()
            require(said(peer, "talk") == f"reset 0 of {left}", f"{end.__name__}() has cost connections")
        require(said(peer, "open", 100) == "open" and sum(ni.shares().values()) == left + 100, "no connections after an upgrade")
        require(said(peer, "talk") == f"reset 0 of {left + 100}", "those after an upgrade")


def test_datagrams():
    with interface() as ni:
        for _ in range(3):
            ni.member(group=99)
        for v in VERSIONS:
            require(said(ni.kernel(OURS[v]), "datagrams", 60) == "heard", "datagrams")


def test_a_stranger_has_it_not():
    with interface() as ni:
        ni.member(group=99)
        for group in 0, 1, 98:
            line = ni.program("echo", PORT, group).line()
            require(line.startswith("listen: Address already in use"), line)


def test_neighbours():
    with interface() as ni:
        for _ in range(MEMBERS):
            ni.member()
        for _ in range(2):
            caller = ni.program("call", OURS[4], PORT, 1000, 100)
            require(caller.line() == "done" and caller.line() == "near 100", "calls by neighbours' channels")
        require(ni.near() == [50] * MEMBERS, f"near connections are not given out in turn: {ni.near()}")


def test_a_member_calls_its_own_port():
    with interface() as ni:
        require(ni.program("itself", OURS[4], PORT, GROUP, 10).line() == "own 10", "alone")
        ni.member()
        require(ni.program("itself", OURS[4], PORT, GROUP, 10).line() == "own 5", "of two")


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        print(PEER[sys.argv[2]](*sys.argv[3:]), flush=True)
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
