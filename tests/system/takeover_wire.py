#!/usr/bin/env python3
# takeover_wire.py - NIs of two hosts are killed and replaced while clients talk over the wire between them: channels go on, every echo is
# right, and nothing is left behind.
#
# Usage: takeover_wire.py UNETD UNETCTL ECHO_SERVER WIRE_ECHO      (77: no root, no network namespaces)
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

from daemon import WAIT, Failure, directory, main, require, run, wait_until
from spaces import Host, Spaces, can_be_made, ip

UNETD, UNETCTL, ECHO_SERVER, WIRE_ECHO = (os.path.abspath(p) for p in sys.argv[1:5])
AF_PACKET = "dpdk:net_af_packet0,iface=eth0"
A_MAC, B_MAC = "02:00:00:00:85:01", "02:00:00:00:85:02"


class Ni(Host):
    """A supervised unetd. The time after which silent hosts count as dead is long: it is not under test, and this machine may be slow."""

    def __init__(self, spaces, host, path, port, *args, config="", **more):
        self.path = path
        with open(path + ".toml", "w", encoding="ascii") as file:
            file.write(f"lost_after_ms = {WAIT * 1000}\n{config}")
        super().__init__(UNETD, spaces, host, path, port, "--takeover", "60", "--config", path + ".toml", *args, **more)

    def __exit__(self, *what):
        if self.process.poll() is None:
            self.stop()  # kill() would leave its NI alive for a moment
        super().__exit__(*what)

    def kill(self):
        os.kill(self.report()["ni"]["pid"], signal.SIGKILL)

    def upgrade(self):
        status, _, err = run(UNETCTL, "upgrade", "--socket", self.path)
        require(status == 0, f"upgrade: {err}")

    def report(self):
        status, out, err = run(UNETCTL, "all", "--json", "--socket", self.path)
        require(status == 0, f"no report: {err}")
        return json.loads(out)

    def held(self):
        """Its channels, and its identity as the other hosts know it."""
        report = self.report()
        held = report["held"]
        channels = sorted((c["endpoint"], c["channel"], c["state"], c["tag"], c["peer"]) for c in report["channels"])
        engine = {name: held["engine"][name] for name in ("endpoints", "channels", "tags")}
        service = {name: held["service"][name] for name in ("endpoints", "names", "requests", "tags")}
        signalling = {name: held["signalling"][name] for name in ("channels", "connects")}
        return channels, engine, service, signalling, report["ni"]["incarnation"]


class Echoes:
    """A client of an echo server on another host."""

    def __init__(self, ni, *args):
        self.client = subprocess.Popen([WIRE_ECHO, *args], env=os.environ | {"UNET_NI": "unix:" + ni.path}, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self):
        require(self.line() == "ready", "the client has no channel")
        return self

    def __exit__(self, *_):
        self.client.kill()
        self.client.communicate()

    def line(self):
        patience = threading.Timer(WAIT, self.client.kill)
        patience.start()
        line = self.client.stdout.readline().strip()
        patience.cancel()
        if not line:
            raise Failure(f"the client ends, or says nothing for {WAIT} s: {self.client.stderr.read()}")
        return line

    def go_on(self, count):
        """Waits for `count` lines of new echoes; one more line may have been under way."""
        for _ in range(count + 1):
            self.said = self.line()

    def end(self):
        _, err = self.client.communicate(timeout=WAIT)
        require(self.client.returncode == 0, f"the client: {err}")


@contextlib.contextmanager
def echo_server(ni, name="echo"):
    server = subprocess.Popen([ECHO_SERVER, name], env=os.environ | {"UNET_NI": "unix:" + ni.path}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: name in run(UNETCTL, "names", "--socket", ni.path)[1], "the echo server does not come up")
        yield server
        require(server.poll() is None, "the echo server has ended")
    finally:
        server.kill()
        said = server.communicate(timeout=WAIT)[1]
    require(not said, f"the echo server: {said}")


def replace_in_turn(a, b, clients):
    """Replaces one host's NI, or both at a time; the clients go on."""
    before = []
    wait_until(lambda: before.append((a.held(), b.held())) or (len(before) > 1 and before[-1] == before[-2]), "no rest")
    for what, change in (("a is killed", [a.kill]), ("b is killed", [b.kill]), ("both are killed", [a.kill, b.kill]),
                         ("a is upgraded", [a.upgrade]), ("b is upgraded", [b.upgrade]), ("b, and then a", [b.upgrade, a.kill])):
        for each in change:
            each()
        for client in clients:
            client.go_on(2)
        wait_until(lambda: (a.held(), b.held()) == before[-1], f"{what}: not as before: {before[-1]} but {(a.held(), b.held())}")
    for client in clients:
        print(f"      {client.said}", flush=True)


def over(port_a, port_b):
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        with Ni(spaces, "a", d + "/a", port_a) as a, Ni(spaces, "b", d + "/b", port_b, "--no-standby") as b:
            with echo_server(b):
                idle = a.held(), b.held()
                with Echoes(a, "connect", "echo@beta") as one, Echoes(a, "connect", "echo@beta") as other:
                    replace_in_turn(a, b, (one, other))
                    one.end()
                    other.end()
                wait_until(lambda: (a.held(), b.held()) == idle, f"left behind: {a.held()} {b.held()}, and not {idle}")
            require(a.stop() == 0 and b.stop() == 0, "a unetd did not end well")


def test_af_packet():
    over(AF_PACKET, AF_PACKET)


def over_af_xdp(port):
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        with contextlib.ExitStack() as stack:
            ni = Ni(spaces, "a", d + "/a", port)
            if not ni.ready:
                print(f"      AF_XDP cannot be opened here: {ni.process.stderr.read().strip()}", flush=True)
                ni.process.wait(WAIT)
                return
            stack.enter_context(ni)
    over(port, port)


def test_af_xdp():
    over_af_xdp("dpdk:net_af_xdp0,iface=eth0")


def test_xdp():
    over_af_xdp("xdp:iface=eth0")


def test_udp():
    """The wrapper of the new NI does not know the stations of before yet."""
    port = "udp:address=10.85.1.{}/24{} / " + AF_PACKET
    over(port.format(2, ",peers=10.85.1.3"), port.format(3, ""))


def test_static():
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        for host, mac in (("a", A_MAC), ("b", B_MAC)):
            ip("-n", spaces[host], "link", "set", "eth0", "address", mac)
        def fixed(endpoint, local, remote, peer):
            return f'[[channel]]\nendpoint = "{endpoint}"\nlocal_tag = {local}\nremote_tag = {remote}\npeer = "{peer}"\nport = 0\n'

        with Ni(spaces, "a", d + "/a", AF_PACKET, config=fixed("fixed", 7, 9, B_MAC)) as a, \
                Ni(spaces, "b", d + "/b", AF_PACKET, config=fixed("echo", 9, 7, A_MAC)) as b, \
                echo_server(b), Echoes(a, "static", "fixed") as client:
            replace_in_turn(a, b, (client,))
            client.end()


if not can_be_made():
    print("skipped: network namespaces need root and iproute2")
    sys.exit(77)
sys.exit(main(globals()))
