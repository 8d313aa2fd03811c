#!/usr/bin/env python3
# links.py - the interface of a wire changes while unetd and a program of unet-sockets run: MTU, name, carrier; it is deleted and made anew.
# The kernel in namespace b is the other side.
#
# Usage: links.py UNETD UNETCTL UNET_SOCKETS      (77: no root, no network namespaces, or no unet-sockets)
#        links.py --peer serve | app              the kernel's side, and the program
import contextlib
import errno
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading

from daemon import WAIT, directory, main, require, run, wait_until
from ip_spaces import KERNELS, OUR_ADDRESSES, PREFIX, VERSIONS, Lines
from program_scenes import environment
from spaces import Host, Spaces, can_be_made, ip, quiet_up

UNETD, UNETCTL, UNET_SOCKETS = map(os.path.abspath, sys.argv[1:4]) if len(sys.argv) == 4 else [""] * 3
PORT = 8900
IP_MTU, IP_MTU_DISCOVER, DO = 14, 10, 2


# ---- the kernel's side, and the program


def serve():
    """Echoes streams and datagrams, through all changes of the interface."""
    listener = socket.create_server(("0.0.0.0", PORT))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("0.0.0.0", PORT))

    def echo(stream):
        with stream, contextlib.suppress(OSError):
            while part := stream.recv(65536):
                stream.sendall(part)

    def accept():
        while True:
            threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print("ready", flush=True)
    while True:
        data, peer = datagrams.recvfrom(65536)
        with contextlib.suppress(OSError):
            datagrams.sendto(data, peer)


class App:
    """Each line of standard input is a command, answered by a line."""

    def __init__(self):
        self.to = (KERNELS[4], PORT)
        self.stream = None
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.connect(self.to)
        self.udp.settimeout(1)

    def mtu(self):
        return self.udp.getsockopt(socket.IPPROTO_IP, IP_MTU)

    def whole(self, size):
        """Sends a datagram with don't-fragment."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, DO)
            udp.settimeout(1)
            udp.connect(self.to)
            return self.echo(udp, size)

    def datagram(self, size):
        return self.echo(self.udp, size)

    @staticmethod
    def echo(udp, size):
        udp.send(os.urandom(int(size)))
        return len(udp.recv(65536))

    def open(self):
        self.stream = socket.create_connection(self.to, timeout=WAIT)

    def call(self, size):
        sender = threading.Thread(target=self.stream.sendall, args=(bytes(int(size)),))
        sender.start()
        left = int(size)
        while left != 0:
            left -= len(self.stream.recv(65536)) or left
        sender.join()

    def segment(self):
        return struct.unpack("I", self.stream.getsockopt(socket.IPPROTO_TCP, 2, 4))[0]

    def connect(self):
        with socket.create_connection(self.to, timeout=5):
            pass


def app():
    state = App()
    print("ready", flush=True)
    for line in sys.stdin:
        name, *args = line.split()
        try:
            said = getattr(state, name)(*args)
            print("ok" if said is None else said, flush=True)
        except OSError as error:
            print("timeout" if isinstance(error, TimeoutError) else errno.errorcode.get(error.errno, str(error)), flush=True)


# ---- the test


class Scene:
    def __init__(self, spaces, daemon, d):
        self.spaces, self.d = spaces, d
        # Drain unetd's log, so that unetd never waits for room in the pipe.
        self.log = []
        for pipe in (daemon.process.stdout, daemon.process.stderr):
            threading.Thread(target=lambda pipe=pipe: self.log.extend(iter(pipe.readline, "")), daemon=True).start()

    def __enter__(self):
        me = [sys.executable, os.path.abspath(sys.argv[0]), "--peer"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.server = subprocess.Popen(["ip", "netns", "exec", self.spaces["b"], *me, "serve"], **pipes)
        self.app = subprocess.Popen(["ip", "netns", "exec", self.spaces["a"], UNET_SOCKETS, *me, "app"], env=environment(self.d), **pipes)
        self.answers = Lines(self.app.stdout)
        try:
            require(Lines(self.server.stdout).next() == "ready" and self.answers.next() == "ready", "the programs do not come up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for each in (self.server, self.app):
            each.kill()
            each.wait(WAIT)

    def does(self, *words):
        self.app.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.app.stdin.flush()
        return self.answers.next()

    def says(self, what, *words):
        last = [""]

        def same():
            last[0] = self.does(*words)
            return last[0] == str(what)

        try:
            wait_until(same, "")
        except Exception as error:
            raise type(error)(f"{' '.join(map(str, words))}: {last[0]} instead of {what}") from error

    def port(self):
        status, out, err = run(UNETCTL, "all", "--json", "--socket", f"{self.d}/s")
        require(status == 0, f"unetctl: {err}")
        return json.loads(out)["ports"][0]

    def shows(self, **what):
        wait_until(lambda: all(self.port()[key] == value for key, value in what.items()), f"unetctl ports: {self.port()}, not {what}")

    def logged(self, text):
        wait_until(lambda: any(text in line for line in self.log), f"the log has no '{text}': {self.log}")


def make_pair(spaces):
    spaces.join("a", "eth0", "b", "eth0")
    ip("-n", spaces["b"], "address", "add", f"{KERNELS[4]}/{PREFIX[4]}", "dev", "eth0")


@contextlib.contextmanager
def scene(wire):
    with directory() as d, Spaces("a", "b") as spaces:
        make_pair(spaces)
        addresses = [each for each, v in zip(OUR_ADDRESSES, VERSIONS) if v == 4]
        with Host(UNETD, spaces, "a", f"{d}/s", f"{wire}:iface=eth0", "--ip", f"0={','.join(addresses)},unprobed") as daemon:
            with Scene(spaces, daemon, d) as made:
                yield made


def unfinished(s):
    """By default the kernel leaves checksums to an interface, which libpcap does not show."""
    run("ip", "netns", "exec", s.spaces["b"], "ethtool", "-K", "eth0", "tx", "on")
    s.says("timeout", "datagram", 10)
    wait_until(lambda: s.does("datagram", 10) and s.port()["counters"]["rx_unfinished_checksum"], f"none is counted: {s.port()}")
    s.logged("unfinished checksum")
    require(s.port()["counters"]["rx_unfinished_checksum"] >= 1, "it is not counted")
    run("ip", "netns", "exec", s.spaces["b"], "ethtool", "-K", "eth0", "tx", "off")
    s.says(10, "datagram", 10)


def set_mtu(s, mtu):
    for host in ("a", "b"):
        ip("-n", s.spaces[host], "link", "set", "eth0", "mtu", str(mtu))


def mtu_changes(s):
    s.says(1500, "mtu")
    s.says("ok", "open")
    s.says("ok", "call", 100_000)
    require(s.does("whole", 1472) == "1472", "a datagram of the MTU")
    set_mtu(s, 1000)
    s.logged("interface eth0 has an MTU of 1000")
    s.shows(mtu=1000, link="up")
    s.says(1000, "mtu")
    require(s.does("whole", 1472) == "EMSGSIZE", "a datagram above the MTU")
    s.says(972, "whole", 972)
    s.says(5000, "datagram", 5000)
    s.says("ok", "call", 100_000)
    require(int(s.does("segment")) <= 960, "TCP's segments are longer than the MTU")
    set_mtu(s, 1500)
    s.says(1500, "mtu")
    s.says(1472, "whole", 1472)
    s.shows(mtu=1500)
    ip("-n", s.spaces["a"], "link", "set", "eth0", "mtu", "2000")
    s.logged("the port was made for 1500")
    s.says(1500, "mtu")


def deleted(s):
    s.says("ok", "open")
    s.says("ok", "call", 1000)
    ip("-n", s.spaces["a"], "link", "delete", "eth0")
    s.logged("interface eth0 is gone")
    s.shows(link="gone")
    s.says("ENETUNREACH", "connect")
    s.says("ENETUNREACH", "datagram", 10)
    make_pair(s.spaces)  # with new Ethernet addresses
    s.logged("interface eth0 is back")
    s.shows(link="up")
    s.says(10, "datagram", 10)
    s.says("ok", "connect")
    s.says("ok", "call", 100_000)  # the connection of before the change


def down_and_named(s):
    ip("-n", s.spaces["b"], "link", "set", "eth0", "down")
    s.logged("eth0 has lost its carrier")
    s.shows(link="no carrier")
    quiet_up(s.spaces["b"], "eth0")
    s.logged("eth0 has a carrier again")
    ip("-n", s.spaces["a"], "link", "set", "eth0", "down")
    s.logged("eth0 is down")
    s.shows(link="down")
    s.says("ENETUNREACH", "datagram", 10)
    ip("-n", s.spaces["a"], "link", "set", "eth0", "name", "eth9")
    s.logged("interface eth0 is now called eth9")
    quiet_up(s.spaces["a"], "eth9")
    s.says(10, "datagram", 10)
    ip("-n", s.spaces["a"], "link", "set", "eth9", "address", "02:00:00:00:86:99")
    s.logged("has the address 02:00:00:00:86:99 now")
    s.says(10, "datagram", 10)


def test_wires():
    for wire in ("packet", "pcap"):
        for change in (mtu_changes, deleted, down_and_named):
            print(f"      {wire}: {change.__name__}", flush=True)
            with scene(wire) as s:
                change(s)


def test_tap():
    with directory() as d, Spaces("a") as spaces:
        with Host(UNETD, spaces, "a", f"{d}/s", "tap:name=unet0", "--ip", "0=10.0.0.7/24,unprobed") as daemon:
            s = Scene(spaces, daemon, d)
            for change, shown in ((("set", "unet0", "mtu", "1000"), {"mtu": 1000}), (("set", "unet0", "down"), {"link": "down"}),
                                  (("set", "unet0", "up"), {"link": "up"}), (("delete", "unet0"), {"link": "gone"})):
                ip("-n", spaces["a"], "link", *change)
                s.shows(**shown)
            s.logged("gone: IP traffic stops until unetd is started again")


def test_checksums():
    require(shutil.which("ethtool"), "there is no ethtool: scripts/install-packages")
    with scene("pcap") as s:
        unfinished(s)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        {"serve": serve, "app": app}[sys.argv[2]]()
        sys.exit(0)
    if not os.path.exists(UNET_SOCKETS) or not can_be_made():
        print("skipped: needs unet-sockets, root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
