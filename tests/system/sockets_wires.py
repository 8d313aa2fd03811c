#!/usr/bin/env python3
# sockets_wires.py - ipstack's sockets on both ends of wires without a kernel: memif, virtio and AF_XDP. Between two unetds, and between two
# applications with embedded NIs. Streams and datagrams in both roles, every byte checked.
#
# Usage: sockets_wires.py UNETD SOCKETS_PEER EMBEDDED   (without root and network namespaces, the tests that need them are skipped)
import contextlib
import os
import subprocess
import sys

from daemon import WAIT, Skipped, Unetd, directory, main, require
from ip_spaces import Lines, looks_right
from spaces import HAS_IPV6, Host, Spaces, can_be_made

UNETD, SOCKETS_PEER, EMBEDDED = map(os.path.abspath, sys.argv[1:4])
PORT = "7000"
HOSTS = {"alpha": "beta", "beta": "alpha"}
ADDRESSES = {"alpha": ["10.87.0.1"] + ["fd00:87::1"] * HAS_IPV6, "beta": ["10.87.0.2"] + ["fd00:87::2"] * HAS_IPV6}
LONG, SHORT, STREAMS = "4000000", "2000", "8"  # bytes of one stream, bytes of several, and how many


def of_ip(host):
    """The argument of --ip."""
    return "0=" + ",".join(f"{each}/{64 if ':' in each else 24}" for each in ADDRESSES[host]) + ",unprobed"


@contextlib.contextmanager
def program(command, env, *words):
    process = subprocess.Popen([*command, SOCKETS_PEER, *words], env=os.environ | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.line = Lines(process.stdout).next
    try:
        yield process
    finally:
        process.kill()
        process.wait(WAIT)


def exchange(environments, command=()):
    """Each side calls an echo service on the other."""
    for host, other in HOSTS.items():
        with program(command, environments[other], "echo", PORT) as echo:
            line = echo.line()
            require(line == "ready", f"the echo on {other}: {line}")
            for address in ADDRESSES[other]:
                for what in (["call", address, PORT, LONG, "1"], ["call", address, PORT, SHORT, STREAMS],
                             ["datagrams", address, PORT, "1400", "20"], ["datagrams", address, PORT, "20000", "5"]):
                    with program(command, environments[host], *what) as call:
                        lines = [call.line(), call.line()]
                        require(lines == ["done", "near 0"], f"from {host}, {what}: {lines}")
                        require(call.wait(WAIT) == 0, f"from {host}, {what}: it did not end well")
            require(echo.poll() is None, f"the echo on {other} has ended")


@contextlib.contextmanager
def unetds(d, port):
    with contextlib.ExitStack() as stack:
        for host in HOSTS:
            stack.enter_context(Unetd(UNETD, "--socket", f"{d}/{host}", "--host", host, "--port", port(host), "--ip", of_ip(host)))
        yield {host: {"UNET_NI": f"unix:{d}/{host}"} for host in HOSTS}


def memif(d, host, more=""):
    return f"dpdk:net_memif0,socket={d}/memif,role={'server' if host == 'alpha' else 'client'}{more}"


def over_memif(more=""):
    with directory() as d:
        with unetds(d, lambda host: f"capture:file={d}/{host}.pcapng,limit=20M / {memif(d, host, more if host == 'beta' else '')}") as environments:
            exchange(environments)
        for host in HOSTS:
            looks_right(f"{d}/{host}.pcapng")


def test_memif():
    over_memif()


def test_memif_zero_copy():
    over_memif(",zero-copy=yes")


def test_memif_embedded():
    with directory() as d:
        exchange({host: {"UNET_NI": f"embedded:{memif(d, host)};ip={of_ip(host)}", "UNET_EMBEDDED_LIBRARY": EMBEDDED} for host in HOSTS})


def test_virtio():
    """virtio ends leave checksums to each other. Under a wrapper that inspects frames they do not: then checksums are there."""
    for wrapper in ("", "faulty:seed=1 / "):
        with directory() as d:
            devices = {"alpha": f"{wrapper}dpdk:net_vhost0,iface={d}/v", "beta": f"dpdk:virtio_user0,path={d}/v,queues=1"}
            with unetds(d, devices.get) as environments:
                exchange(environments)


if can_be_made():

    def over_af_xdp(wire):
        with directory() as d, Spaces("a", "b") as spaces, contextlib.ExitStack() as stack:
            spaces.join("a", "eth0", "b", "eth0")
            for host in HOSTS:
                port = f"capture:file={d}/{host}.pcapng,limit=20M / {wire}"
                unetd = Host(UNETD, spaces, host[0], f"{d}/{host}", port, "--ip", of_ip(host))
                if not unetd.ready:
                    unetd.process.wait(WAIT)
                    raise Skipped(f"AF_XDP cannot be opened here: {unetd.process.stderr.read().strip()}")
                stack.enter_context(unetd)
            exchange({host: {"UNET_NI": f"unix:{d}/{host}"} for host in HOSTS})
            for host in HOSTS:
                looks_right(f"{d}/{host}.pcapng")

    def test_af_xdp():
        over_af_xdp("dpdk:net_af_xdp0,iface=eth0")

    def test_xdp():
        over_af_xdp("xdp:iface=eth0")


sys.exit(main(globals()))
