#!/usr/bin/env python3
# sockets_fast_open.py - TCP Fast Open (RFC 7413) between sockets of ipstack and Linux's kernel, in both roles: the first connection brings
# a cookie, and the data of all others is in their SYNs, as the kernel confirms.
#
# Usage: sockets_fast_open.py UNETD SOCKETS_PEER   (77: no root, no network namespaces)
#        sockets_fast_open.py --peer ...           the kernel's side, in its namespace
import contextlib
import os
import socket
import subprocess
import sys

from daemon import WAIT, directory, main, require
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel, in_kernel, looks_right
from spaces import Host, Spaces, can_be_made
from tcp_linux import PORT, family

UNETD, SOCKETS_PEER = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")
COUNT = 6
MSG_FASTOPEN = 0x20000000
TCPI_OPT_SYN_DATA = 32


def had_syn_data(stream):
    return stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5] & TCPI_OPT_SYN_DATA != 0


def talk(stream, data, begun):
    stream.sendall(data[begun:])
    stream.shutdown(socket.SHUT_WR)
    came = b""
    while part := stream.recv(1 << 16):
        came += part
    return came == data


# ---- the kernel's side


def kernel_fast_call(address, size):
    """Opens one connection after the other; returns those without data in the SYN."""
    late = []
    for number in range(COUNT):
        data = os.urandom(int(size))
        with socket.socket(family(address), socket.SOCK_STREAM) as stream:
            begun = stream.sendto(data, MSG_FASTOPEN, (address, PORT))
            stream.settimeout(WAIT)  # not before: without a cookie, a nonblocking socket gets EINPROGRESS
            if not talk(stream, data, begun):
                return f"{number} came back otherwise"
            if not had_syn_data(stream):
                late.append(number)
    return late == [0] or late


def kernel_fast_echo(address):
    with socket.socket(family(address), socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
        server.settimeout(WAIT)
        server.bind((address, PORT))
        server.listen(16)
        print("listening", flush=True)
        late = []
        for number in range(COUNT):
            with server.accept()[0] as stream:
                if not had_syn_data(stream):
                    late.append(number)
                while part := stream.recv(1 << 16):
                    stream.sendall(part)
        return late == [0] or late


PEER = {"call": kernel_fast_call, "echo": kernel_fast_echo}


# ---- the test


@contextlib.contextmanager
def wire():
    with directory() as d, Spaces("a", "b") as spaces:
        spaces.join("a", "eth0", "b", "eth0")
        give_kernel(spaces, KERNELS)
        subprocess.run(["ip", "netns", "exec", spaces["b"], "sh", "-c", "echo 3 > /proc/sys/net/ipv4/tcp_fastopen"], check=True)
        port = f"capture:file={d}/wire.pcapng / pcap:iface=eth0"
        with Host(UNETD, spaces, "a", f"{d}/s", port, "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed") as host:
            yield spaces, os.environ | {"UNET_NI": f"unix:{d}/s"}
            require(host.stop() == 0, "unetd did not end well")
        looks_right(f"{d}/wire.pcapng")


@contextlib.contextmanager
def application(env, *words):
    process = subprocess.Popen([SOCKETS_PEER, *map(str, words)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Lines(process.stdout).next
    finally:
        process.kill()
        process.wait(WAIT)


def test_the_kernel_calls():
    with wire() as (spaces, env), application(env, "echo", PORT) as line:
        require(line() == "ready", "the application's side")
        for v, size in zip(VERSIONS, (500, 100_000)):
            right, err = in_kernel(spaces["b"], "call", OURS[v], size)
            require(right, f"IPv{v}: {err}")


def test_the_kernel_listens():
    with wire() as (spaces, env):
        for v in VERSIONS:
            peer = subprocess.Popen(["ip", "netns", "exec", spaces["b"], sys.executable, os.path.abspath(__file__), "--peer", "echo",
                                     KERNELS[v]], stdout=subprocess.PIPE, text=True)
            try:
                require(peer.stdout.readline().strip() == "listening", "the kernel's side")
                with application(env, "fast", KERNELS[v], PORT, 500, COUNT) as line:
                    answer = line()
                    require(answer == "done", f"IPv{v}: {answer}")
                out, _ = peer.communicate(timeout=WAIT)
                require(out.strip() == "True", f"IPv{v}: late were {out}")
            finally:
                peer.kill()
                peer.wait(WAIT)


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        print(PEER[sys.argv[2]](*sys.argv[3:]))
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
