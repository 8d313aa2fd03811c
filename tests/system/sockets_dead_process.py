#!/usr/bin/env python3
# sockets_dead_process.py - sockets of applications that have ended, with Linux's kernel as the peer. It gets a reset at once from a killed
# application. Connections that an application had closed end as if it still ran, also during an upgrade of the NI. `unetctl ss` lists them.
# tshark checks the captures.
#
# Usage: sockets_dead_process.py UNETD UNETCTL SOCKETS_PEER   (77: no root, no network namespaces)
#        sockets_dead_process.py --peer ...                   the kernel's side, in its namespace
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys

from daemon import WAIT, directory, main, require, run, wait_until
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel, heard, looks_right
from spaces import Host, Spaces, can_be_made
from tcp_linux import PORT

UNETD, UNETCTL, SOCKETS_PEER = map(os.path.abspath, sys.argv[1:4]) if len(sys.argv) == 4 else ("", "", "")
HELD = 50


# ---- the kernel's side


def kernel_hears(address, count):
    """Idle connections: when their other end is killed, each is reset without having sent anything."""
    streams = [socket.create_connection((address, PORT), timeout=WAIT) for _ in range(int(count))]
    for stream in streams:
        stream.sendall(b"x")
        require(stream.recv(1) == b"x", "the echo")
    print("open", flush=True)
    sys.stdin.readline()
    poller = select.poll()
    for stream in streams:
        poller.register(stream, select.POLLIN)
    left = {stream.fileno(): stream for stream in streams}
    while left:
        ready = poller.poll(WAIT * 1000)
        if not ready:
            return f"{len(left)} of {len(streams)} heard nothing"
        for number, _ in ready:
            try:
                return f"something was read: {left[number].recv(1)}"
            except ConnectionResetError:
                poller.unregister(number)
                del left[number]
    return "reset"


def kernel_serves(address, count):
    """Reads each stream to its end, which must not be a reset, and then closes its own side."""
    with socket.create_server((address, PORT), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        server.settimeout(WAIT)
        print("listening", flush=True)
        streams = [server.accept()[0] for _ in range(int(count))]
        for stream in streams:
            stream.settimeout(WAIT)
            data = b""
            while part := stream.recv(65536):
                data += part
            require(data == bytes(i % 251 for i in range(10_000)), f"{len(data)} bytes that are others")
        print("read", flush=True)
        sys.stdin.readline()
        for stream in streams:
            stream.close()
    return "ended"


PEER = {"hears": kernel_hears, "serves": kernel_serves}


# ---- the test


class Ni:
    def __init__(self, spaces, d, daemon):
        self.spaces, self.capture, self.socket, self.daemon = spaces, f"{d}/wire.pcapng", f"{d}/s", daemon
        self.env = os.environ | {"UNET_NI": f"unix:{d}/s"}

    @contextlib.contextmanager
    def running(self, first, *words):
        process = subprocess.Popen([SOCKETS_PEER, *map(str, words)], env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.line = Lines(process.stdout).next
        try:
            line = process.line()
            require(line == first, f"{words}: {line}")
            yield process
        finally:
            process.kill()
            process.wait(WAIT)

    @contextlib.contextmanager
    def kernel(self, first, what, *args):
        peer = subprocess.Popen(["ip", "netns", "exec", self.spaces["b"], sys.executable, os.path.abspath(__file__), "--peer", what,
                                 *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            line = peer.stdout.readline().strip()
            require(line == first, f"the kernel's side: {line}")
            yield peer
        finally:
            peer.kill()
            peer.wait(WAIT)

    def ctl(self, *words):
        status, out, err = run(UNETCTL, "--socket", self.socket, *words)
        require(status == 0, f"{words}: {err}")
        return out

    def sockets(self, *words):
        return json.loads(self.ctl("ss", "--json", *words))

    def counter(self, name):
        return json.loads(self.ctl("stats"))["counters"]["engine"].get(name, 0)

    def kernels_sockets(self, *filters):
        _, out, _ = run("ip", "netns", "exec", self.spaces["b"], "ss", "-Htn", *filters)
        return [line for line in out.splitlines() if line]

    def upgrade(self):
        status, _, err = run(UNETCTL, "upgrade", "--socket", self.socket)
        require(status == 0, f"no upgrade: {err}")


@contextlib.contextmanager
def interface(*more):
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        port = f"capture:file={d}/wire.pcapng / pcap:iface=eth0" if not more else "pcap:iface=eth0"
        with Host(UNETD, spaces, "a", f"{d}/s", port, "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed", *more) as daemon:
            yield Ni(spaces, d, daemon)


def no_resets(capture):
    if shutil.which("tshark"):
        _, out, _ = run("tshark", "-r", capture, "-Y", "tcp.flags.reset == 1")
        require(out.strip() == "", f"resets:\n{out}")


def killed(ni, v, upgrades=0):
    with ni.running("ready", "echo", PORT) as echo, ni.kernel("open", "hears", OURS[v], HELD) as peer:
        for _ in range(upgrades):
            ni.upgrade()
        listed = ni.sockets("state", "established", "sport", "=", f":{PORT}")
        require(len(listed) == HELD and all(each["pid"] == echo.pid for each in listed), f"{len(listed)} connections are listed")
        echo.send_signal(signal.SIGKILL)
        echo.wait(WAIT)
        out, _ = peer.communicate("go on\n", timeout=WAIT)
        require(out.strip() == "reset", f"the kernel's ends of a killed application's streams: {out}")


def closed(ni, v, upgrade=False):
    """`leave` sends, waits for the acknowledgement, closes, and exits."""
    with ni.kernel("listening", "serves", KERNELS[v], 5) as peer:
        with ni.running("left", "leave", KERNELS[v], PORT, 5) as leaver:
            require(leaver.wait(WAIT) == 0, "it did not end well")
        require(peer.stdout.readline().strip() == "read", "the kernel's side has not got everything")
        if upgrade:
            ni.upgrade()
        peer.stdin.write("end\n")
        peer.stdin.flush()
        require(peer.stdout.readline().strip() == "ended", "the kernel's side")
        # The kernel's last FIN was acknowledged: no connection stays in LAST-ACK.
        wait_until(lambda: not ni.kernels_sockets("state", "last-ack"), "the kernel's FIN was not acknowledged")


def test_a_killed_application():
    with interface() as ni:
        for v in VERSIONS:
            killed(ni, v)
        wait_until(lambda: ni.counter("ip_left") == 2 * HELD, "not as many were left as there were")
        looks_right(ni.capture)


def test_closed_and_gone():
    with interface() as ni:
        for v in VERSIONS:
            closed(ni, v)
        wait_until(lambda: ni.counter("ip_left") == 10, "not as many were left as there were")
        looks_right(ni.capture)
        no_resets(ni.capture)


def test_through_upgrades():
    with interface("--takeover", "60") as ni:
        with heard(ni.spaces["b"], ni.capture):
            for v in VERSIONS:
                killed(ni, v, upgrades=1)
                closed(ni, v, upgrade=True)
            require(ni.daemon.stop() == 0, "the supervisor did not end well")
        looks_right(ni.capture)


def test_lists():
    with interface() as ni, ni.running("ready", "echo", PORT) as echo, ni.kernel("open", "hears", OURS[4], 3):
        listening = ni.sockets("-l")
        require({(each["protocol"], each["state"]) for each in listening} == {("tcp", "LISTEN"), ("udp", "UNCONN")}, f"{listening}")
        require(all(each["pid"] == echo.pid and each["local_port"] == PORT for each in listening), f"{listening}")
        streams = ni.sockets("-t", "-i")
        require(len(streams) == 3 and all(each["info"]["bytes_received"] == 1 for each in streams), f"{streams}")
        require(ni.sockets("-u") == [] and ni.sockets("sport", "=", ":1") == [], "a filter shows what it should not")
        text = ni.ctl("ss", "-tlp")
        require("LISTEN" in text and f"pid={echo.pid}" in text and f"*:{PORT}" in text, text)
        require("cubic" in ni.ctl("ss", "-ti"), "no numbers")
        stacks = json.loads(ni.ctl("ss", "--stacks", "--json"))
        require([each["counters"]["connections_in"] for each in stacks] == [3], f"{stacks}")
        with ni.running("open", "hold", OURS[4], PORT, 1):
            def both():
                return [each for each in ni.sockets("-t", "-i") if each["near"]]

            wait_until(lambda: len(both()) == 2 and all("info" in each for each in both()), "a stream of one host has no numbers")
            require(all(each["info"]["snd_wnd"] > 0 for each in both()), f"{both()}")
            lines = [line for line in ni.ctl("ss", "-ti").splitlines() if "near mss:" in line]
            require(len(lines) == 2 and all("snd_wnd:" in line and "cwnd:" not in line for line in lines), f"{lines}")
        status, _, err = run(UNETCTL, "--socket", ni.socket, "ss", "colour", "=", "red")
        require(status == 1 and "colour" in err, err)
        looks_right(ni.capture)


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        print(PEER[sys.argv[2]](*sys.argv[3:]), flush=True)
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
