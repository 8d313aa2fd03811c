#!/usr/bin/env python3
# sockets_moves.py - a server forks for each connection, by unet-sockets. The child's stack gets the connection, with the bytes that were
# not read. A connection that the parent keeps open stays with the parent, which carries its bytes.
#
# Usage: sockets_moves.py UNETD UNETCTL UNET_SOCKETS        (77: not root)
#        sockets_moves.py --server ADDRESS...               the server
#        sockets_moves.py --client                          its client
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

from daemon import IS_ROOT, require, run
from ip_spaces import VERSIONS
from program_roles import both_ours, network_interface, over_a_wire

PORT = 8410
TRIES = 5
SIZES = [1, 100_000, 300_000]
SCENES = {  # the state before the fork, and whether the connection then moves to the child's stack (None: either)
    "plain": True,    # a new connection
    "late": True,     # a part of the first request has arrived, unread
    "begun": True,    # the parent has answered a line
    "half": None,     # the client has sent everything, and its FIN: the socket is gone before the test can look
    "keeps": False,   # a new connection, but the parent does not close it
    "tardy": False,   # a new connection, but the parent closes it a second later
    "polled": None,   # a thread of the parent polls it: it moves when that call ends in time
}
CROWD = 120                        # connections at once
MOVES_AT_ONCE, MOVES_EACH_SECOND = 64, 20  # limits of one process; it carries the other connections


# ---- the server, and its client


def port_of(scene):
    return PORT + list(SCENES).index(scene)


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def receive(stream, size):
    data = bytearray()
    while len(data) < size:
        piece = stream.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def serve(stream):
    """Sends each request back behind the child's number."""
    while (head := receive(stream, 4)) is not None:
        data = receive(stream, *struct.unpack("<I", head))
        stream.sendall(struct.pack("<I", os.getpid()) + data)


def before_fork(scene, stream):
    if scene == "late":
        require(select.select([stream], [], [], 20)[0], "nothing comes")
        time.sleep(0.05)
        stream.recv(3, socket.MSG_PEEK)
    elif scene == "begun":
        stream.sendall(receive(stream, 6))
    elif scene == "half":
        poll = select.poll()
        poll.register(stream, select.POLLRDHUP)
        require(poll.poll(20_000), "no end comes")
    elif scene == "polled":
        poll = select.poll()
        poll.register(stream, select.POLLPRI)
        threading.Thread(target=poll.poll, args=(20_000,), daemon=True).start()
        time.sleep(0.05)


def server(*addresses):
    """A listener for each scene and address."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listeners = {socket.create_server((address, PORT + i), family=family_of(address)): scene
                 for i, scene in enumerate(SCENES) for address in addresses}
    print("ready", flush=True)
    kept = []
    while True:
        for listener in select.select(list(listeners), [], [])[0]:
            stream, _ = listener.accept()
            before_fork(listeners[listener], stream)
            if os.fork() == 0:
                for each in listeners:
                    each.close()
                serve(stream)
                stream.shutdown(socket.SHUT_WR)
                os._exit(0)
            if listeners[listener] == "keeps":
                kept.append(stream)
            else:
                if listeners[listener] == "tardy":
                    time.sleep(1)
                stream.close()


def crowd(address):
    """Opens CROWD connections, prints each child's number and the seconds that this took, and closes them at the next line."""
    began = time.monotonic()
    streams, children = [], []
    for _ in range(CROWD):
        streams.append(socket.create_connection((address, PORT), timeout=60))
        streams[-1].sendall(struct.pack("<I", 1) + b"x")
        children.append(struct.unpack("<I", receive(streams[-1], 5)[:4])[0])
    print(*children, time.monotonic() - began, flush=True)
    sys.stdin.readline()
    for stream in streams:
        stream.close()
    print("ended", flush=True)


def client():
    """For each line, a scene and an address: prints the connection's process, and closes it at the next line."""
    for line in sys.stdin:
        scene, address = line.split()
        if scene == "crowd":
            crowd(address)
            continue
        with socket.create_connection((address, port_of(scene)), timeout=60) as stream:
            if scene == "begun":
                stream.sendall(b"hello\n")
                require(receive(stream, 6) == b"hello\n", "another answer")
            for size in SIZES if scene != "half" else SIZES[:1]:
                data = os.urandom(size)
                stream.sendall(struct.pack("<I", size) + data)
                if scene == "half":
                    stream.shutdown(socket.SHUT_WR)
                (pid,) = struct.unpack("<I", receive(stream, 4))
                require(receive(stream, size) == data, f"other data of {size} bytes comes back")
            print(pid, flush=True)
            sys.stdin.readline()
            if scene != "half":
                stream.shutdown(socket.SHUT_WR)
            require(stream.recv(1) == b"", "no end comes")
        print("ended", flush=True)


# ---- the test


def tell(process, line=""):
    process.stdin.write(f"{line}\n".encode())
    process.stdin.flush()


def is_in_stack(unetctl, ni, pid, scene):
    """Whether the stack of process `pid` has a connection of the scene."""
    status, told, error = run(unetctl, "--ni", ni, "ss", "-tp", "pid", pid)
    require(status == 0, f"unetctl: {error}")
    return f":{port_of(scene)}" in told


def whose(process, unetctl, ni, scene, address):
    """Whether the connection is in the stack of the child that answered."""
    tell(process, f"{scene} {address}")
    pid = process.stdout.readline().strip().decode()
    require(pid.isdigit(), "the client has no answer")
    moved = is_in_stack(unetctl, ni, pid, scene)
    tell(process)
    require(process.stdout.readline() == b"ended\n", "the connection does not end")
    return moved


def crowd_moves(process, unetctl, ni, address):
    """A process moves a bounded number of connections, and carries the others."""
    tell(process, f"crowd {address}")
    *children, seconds = process.stdout.readline().split()
    require(len(children) == CROWD, "the client has no answers")
    moved = sum(is_in_stack(unetctl, ni, pid.decode(), "plain") for pid in children)
    tell(process)
    require(process.stdout.readline() == b"ended\n", "the connections do not end")
    most = MOVES_AT_ONCE + MOVES_EACH_SECOND * float(seconds) + 8  # moves end a little later
    require(0 < moved <= most, f"{moved} of {CROWD} connections have moved in {float(seconds):.2f} s, not at most {most:.0f}")


def play(place, role, unetctl, ni):
    addresses = {v: role.addresses[v] for v in VERSIONS}
    process = None
    with role.server.server(sys.executable, __file__, "--server", *addresses.values(), ready="ready"):
        try:
            process = role.client.start(sys.executable, __file__, "--client", stdin=-1, stdout=-1)
            for scene, moves in SCENES.items():
                for v, address in addresses.items():
                    # A parent that loses its core on a busy machine keeps a connection.
                    tries = TRIES if moves else 1
                    moved = any(whose(process, unetctl, ni, scene, address) for _ in range(tries))
                    require(moves in (moved, None), f"{place}, {scene}, IPv{v}: {'moved' if moved else 'carried'}")
            crowd_moves(process, unetctl, ni, addresses[4])
        finally:
            process.stdin.close()
        require(process.wait(60) == 0, f"{place}: the client fails")


def main():
    if sys.argv[1] in ("--server", "--client"):
        return (server if sys.argv[1] == "--server" else client)(*sys.argv[2:])
    if not IS_ROOT:
        print("skipped: namespaces need root")
        return 77
    unetd, unetctl, sockets = map(os.path.abspath, sys.argv[1:4])
    places = {"both ours": lambda: both_ours(unetd, sockets, None),
              "a wire": lambda: over_a_wire(lambda spaces, d: network_interface(unetd, spaces, d, "packet:iface=eth0"), sockets, True)}
    passed = 0
    for place, make in places.items():
        with make() as role:
            play(place, role, unetctl, role.server.env["UNET_NI"])
        passed += 1
        print(f"ok    {place}")
    print(f"{passed} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
