#!/usr/bin/env python3
# queues.py - ports with several queues, each served by another engine: two unetds in namespaces joined by a veth pair with two queues, and
# clients on both sides that compare every byte; and refused configurations.
#
# Usage: queues.py UNETD UNETCTL EXAMPLES      (77: no root, no network namespaces)
import contextlib
import json
import os
import subprocess
import sys

from daemon import WAIT, directory, main, one_line, require, run, wait_until
from spaces import Host, Spaces, can_be_made

UNETD, UNETCTL, EXAMPLES = (os.path.abspath(p) for p in sys.argv[1:4])
PACKET = "dpdk:net_af_packet0,iface=eth0,queues=2"
SIZES = (0, 48, 49, 1000, 1472, 5000, 20000)  # all together, no more frames than a link between engines holds
SERVERS = 4  # on each side: with as many clients, more endpoints than engines


def environment(path):
    return os.environ | {"UNET_NI": "unix:" + path}


@contextlib.contextmanager
def echo_servers(path):
    servers = [subprocess.Popen([os.path.join(EXAMPLES, "echo_server"), f"echo{i}"], env=environment(path), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL) for i in range(SERVERS)]
    try:
        yield
    finally:
        for server in servers:
            server.kill()
            server.wait(WAIT)


def exchange(paths, size):
    """Traffic from both sides at once. Every client has a server of its own and compares every byte of its answers."""
    hosts = {"alpha": "beta", "beta": "alpha"}
    clients = [subprocess.Popen([os.path.join(EXAMPLES, "echo_client"), "--wait", str(WAIT // 2), "-n", "50", "-s", str(size),
                                 f"echo{i}@{hosts[host]}"], env=environment(paths[host]), stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True) for host in hosts for i in range(SERVERS)]
    for client in clients:
        out, _ = client.communicate(timeout=WAIT)
        require(client.returncode == 0, f"messages of {size} bytes: {client.returncode} {out}")


def report(path):
    status, out, err = run(UNETCTL, "all", "--json", "--socket", path)
    require(status == 0, f"unetctl all: {err}")
    return json.loads(out)


def check_engines(path, arrive_at_both):
    """Both queues were used, and every frame found its endpoint."""
    told = report(path)
    require(told["ports"][0]["queues"] == 2, f"the port: {told['ports']}")
    for engine in told["engines"]:
        require(engine["ports"] == [0], f"an engine has no queue of the port: {engine}")
        require(engine["counters"]["transmitted_frames"] != 0, f"an engine has sent nothing by its queue: {engine}")
        require(engine["counters"]["received_frames"] != 0 or not arrive_at_both, f"nothing has arrived at a queue: {engine}")
        lost = {name: count for name, count in engine["drops"].items() if count != 0 and name != "not_ours"}
        require(not lost, f"drops: {lost}")
    # The port counts frames of all queues: all that the engines counted before, minus those for which udp had no station.
    sent, arrived = (sum(engine["counters"][name] for engine in told["engines"]) for name in ("transmitted_frames", "received_frames"))

    def whole():
        of_port = report(path)["ports"][0]["counters"]
        # The report has no figures of an engine that is busy for long.
        left, came = of_port.get("tx_frames", 0) + of_port.get("udp_no_neighbour", 0), of_port.get("rx_frames", 0)
        return left >= sent and came >= arrived and of_port.get("link_up") == 1

    wait_until(whole, f"the port's counters are not those of both queues: {sent} frames sent, {arrived} arrived, {told['ports']}")


def over(ports, idle="adaptive", arrive_at_both=False):
    """`ports`: of each side."""
    with Spaces("a", "b") as spaces, directory() as d, contextlib.ExitStack() as stack:
        spaces.join("a", "eth0", "b", "eth0", queues=2)
        paths = {"alpha": d + "/a", "beta": d + "/b"}
        for host, path, port in zip("ab", paths.values(), ports):
            stack.enter_context(Host(UNETD, spaces, host, path, port, "--engines", "2", "--idle", idle))
        for path in paths.values():
            stack.enter_context(echo_servers(path))
        for size in SIZES:
            exchange(paths, size)
        for path in paths.values():
            check_engines(path, arrive_at_both)


def test_af_packet():
    # Our frames have no field that the kernel's hash uses: all frames of a host may arrive at one queue.
    for idle in ("adaptive", "block"):
        over([PACKET] * 2, idle)


def test_udp():
    for address in ("10.85.1.{}", "fd00:85:1::{}"):
        ports = [f"udp:address={address.format(own)}/{24 if '.' in address else 64},peers={address.format(other)},ports=16 / {PACKET}"
                 for own, other in ((2, 3), (3, 2))]
        over(ports, "block", arrive_at_both=True)


def test_vlan():
    over(["vlan:id=7 / " + PACKET] * 2)


def refused(spaces, d, port, *args, words):
    daemon = Host(UNETD, spaces, "a", d + "/a", port, *args, "--log", "error")
    require(not daemon.ready, f"{port} {args} is taken")
    daemon.process.wait(WAIT)
    err = daemon.process.stderr.read()
    if "has no driver" not in err:  # DPDK may have been built without it
        one_line(err, "unetd", words)


def test_refusals():
    packet, two = "dpdk:net_af_packet0,iface=eth0,", ("--engines", "2")
    with Spaces("a", "b") as spaces, directory() as d:
        spaces.join("a", "eth0", "b", "eth0", queues=2)
        refused(spaces, d, packet + "queues=0", *two, words="queues: '0' is not a whole number from 1 to 8")
        refused(spaces, d, packet + "queues=9", *two, words="queues: '9' is not a whole number from 1 to 8")
        refused(spaces, d, packet + "queues=3", *two, words="port 0 has 3 queues for 2 engines")
        refused(spaces, d, packet + "queues=2", words="port 0 has 2 queues for 1 engine")
        for pairs, queues, counted in ((1, 2, "2 queues"), (4, 2, "2 queues"), (4, 1, "1 queue:")):
            refused(spaces, d, packet + f"queues={queues},qpairs={pairs}", *two, words=f"qpairs={pairs} for {counted}")
        refused(spaces, d, packet + "qpairs=2", *two, words="qpairs=2 for 1 queue:")
        refused(spaces, d, "dpdk:net_af_xdp0,iface=eth0,queues=2", *two, words="the interface has fewer for AF_XDP")
        refused(spaces, d, "dpdk:net_memif0,role=server,queues=2", *two, words="a memif has one queue")
        refused(spaces, d, "faulty:loss=1% / " + packet + "queues=2", *two, words="faulty: needs a wire with one queue")


if not can_be_made():
    print("skipped: network namespaces need root and iproute2")
    sys.exit(77)
sys.exit(main(globals()))
