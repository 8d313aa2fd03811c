#!/usr/bin/env python3
# sockets_ni_restart.py - the NI ends while threads of a program of unet-sockets sleep in calls, and comes back. Calls on a connection
# return, as after a reset; calls on bound sockets sleep on, and get what comes later. With connections on one host, and to a kernel over a
# wire.
#
# Usage: sockets_ni_restart.py UNETD UNET_SOCKETS       (77: no unet-sockets; over a wire only as root, with network namespaces)
#        sockets_ni_restart.py --peer SCENE ADDRESS...  the programs
import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

from daemon import WAIT, Skipped, directory, require
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel
from program_scenes import begin, begun, environment, network_interface
from spaces import Host, Spaces, can_be_made, ip

UNETD, UNET_SOCKETS = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")
SILENT, FULL, OWN = 8800, 8801, 8802  # ports: a peer that sends one byte only, a listener with a full queue, the program itself
MUCH = bytes(64 << 20)


# ---- the programs


def say(text):
    os.write(1, f"{text}\n".encode())


def new(address, kind=socket.SOCK_STREAM):
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)


def listening(address, port, backlog=16):
    listener = new(address)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(backlog)
    return listener


def silent(address):
    """Sends each caller a byte, and keeps the connection."""
    callers = [listening(address, FULL, 0)]
    for _ in range(3):
        callers.append(new(address))
        callers[-1].setblocking(False)
        callers[-1].connect_ex((address, FULL))
    listener = listening(address, SILENT)
    say("ready")
    while True:
        callers.append(listener.accept()[0])
        callers[-1].send(b"!")


def connection(peer, port=SILENT):
    stream = new(peer)
    stream.connect((peer, port))
    if stream.recv(1) != b"!":
        raise ConnectionError("no byte")
    return stream


def events_of(bits):
    names = {select.POLLIN: "IN", select.POLLOUT: "OUT", select.POLLERR: "ERR", select.POLLHUP: "HUP"}
    return " ".join(name for bit, name in names.items() if bits & bit)


def by_poll(sock, bits=select.POLLIN):
    poll = select.poll()
    poll.register(sock, bits)
    return events_of(poll.poll()[0][1])


def by_epoll(sock, bits=select.EPOLLIN):
    with select.epoll() as epoll:
        epoll.register(sock, bits)
        return events_of(epoll.poll()[0][1])


def by_select(sock):
    return " ".join(name for name, found in zip(("IN", "OUT"), select.select([sock], [], [])) if found)


def error_of(sock):
    return errno.errorcode[sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]


def after(waits):
    """The result of the wait, and then of recv()."""
    def call(sock):
        said = waits(sock)
        try:
            return f"{said}, then {len(sock.recv(1))} bytes"
        except OSError as e:
            return f"{said}, then {errno.errorcode[e.errno]}"
    return call


def heard(waits):
    """The result of the wait, and the datagram."""
    return lambda sock: f"{waits(sock)}, then {sock.recv(10).decode()}"


class Sleeping(threading.Thread):
    """In one call; its result, or the name of its error."""

    def __init__(self, name, call, *args):
        super().__init__(daemon=True)
        self.what, self.call, self.args, self.said = name, call, args, "sleeps"
        self.start()

    def run(self):
        try:
            self.said = str(self.call(*self.args))
        except OSError as e:
            self.said = errno.errorcode.get(e.errno, str(e))


def tell_all(threads):
    """Prints as soon as all of them have returned."""
    end = time.monotonic() + WAIT
    for each in threads:
        each.join(max(0, end - time.monotonic()))
        say(f"{each.what}: {each.said}")


def asleep(own, peer):
    """One thread in each call, on connections to the peer and on sockets bound to `own`."""
    once = [Sleeping(name, call, connection(peer)) for name, call in
            {"recv": lambda s: s.recv(1), "recv_into": lambda s: s.recv_into(bytearray(10), 10, socket.MSG_WAITALL),
             "read": lambda s: os.read(s.fileno(), 1), "send": lambda s: s.sendall(MUCH), "poll": after(by_poll), "epoll": after(by_epoll),
             "select": after(by_select), "error": lambda s: f"{by_poll(s, select.POLLPRI)}, {error_of(s)}"}.items()]
    once.append(Sleeping("connect", lambda s: s.connect((peer, FULL)), new(peer)))
    mute, late = new(own, socket.SOCK_DGRAM), new(own, socket.SOCK_DGRAM)
    for each in (mute, late):
        each.bind((own, 0))
    mute.connect((peer, SILENT))
    connecting = new(peer)
    connecting.setblocking(False)
    connecting.connect_ex((peer, FULL))
    once.append(Sleeping("connect and poll", lambda s: f"{by_poll(s, select.POLLOUT)}, {error_of(s)}", connecting))
    listener = listening(own, OWN)
    datagrams = {}
    for name, call in {"recvfrom": lambda s: s.recv(10).decode(), "poll of datagrams": heard(by_poll), "epoll of datagrams": heard(by_epoll),
                       "select of datagrams": heard(by_select)}.items():
        bound = new(own, socket.SOCK_DGRAM)
        bound.bind((own, 0))
        datagrams[bound.getsockname()[:2]] = Sleeping(name, call, bound)
    waits = [Sleeping("poll of a listener", by_poll, listener), Sleeping("epoll of a listener", by_epoll, listener),
             Sleeping("select of a listener", by_select, listener)]
    time.sleep(0.5)  # until they sleep: the results do not depend on it
    say("ready")
    tell_all(once)
    # Calls that begin while the NI is away.
    tell_all([Sleeping("send of datagrams", lambda: mute.send(b"x")), Sleeping("write of datagrams", lambda: os.write(mute.fileno(), b"x")),
              Sleeping("recv of datagrams at once", lambda: mute.recv(1, socket.MSG_DONTWAIT)),
              Sleeping("whose peer", lambda: mute.getpeername()[1] == SILENT)])
    datagrams[late.getsockname()[:2]] = Sleeping("recvfrom begun meanwhile", lambda: late.recv(10).decode())
    sys.stdin.readline()  # there is an NI again
    say("new: " + again(lambda: connection(peer) is not None))

    def call_self():
        with new(own) as caller:
            caller.settimeout(WAIT)
            caller.connect((own, OWN))
            return True
    say("call: " + again(call_self))
    tell_all(waits)
    acceptor = Sleeping("accept", lambda s: s.accept()[0].recv(1) is not None, listener)
    tell_all([acceptor])
    sender = new(own, socket.SOCK_DGRAM)
    end = time.monotonic() + WAIT
    while any(each.is_alive() for each in datagrams.values()) and time.monotonic() < end:
        for to, each in datagrams.items():
            if each.is_alive():
                with contextlib.suppress(OSError):
                    sender.sendto(b"words", to)
        time.sleep(0.1)
    tell_all(datagrams.values())


def again(call):
    """Repeats the call until it succeeds: at first its peer may not be there yet."""
    end = time.monotonic() + WAIT
    while True:
        try:
            return str(call())
        except OSError as e:
            if time.monotonic() > end:
                return errno.errorcode.get(e.errno, str(e))
        time.sleep(0.05)


def accepting(own):
    """A thread sleeps in accept() all the while; a later client is accepted."""
    listener = listening(own, OWN)
    acceptor = Sleeping("accept", lambda: f"{len(listener.accept()[0].recv(1))} bytes")
    time.sleep(0.3)
    say("ready")
    sys.stdin.readline()

    def call_self():
        with new(own) as caller:
            caller.connect((own, OWN))
            return caller.send(b"!")
    say("call: " + again(call_self))
    tell_all([acceptor])


PEERS = {each.__name__: each for each in (accepting, asleep, silent)}


# ---- the test

CONNECTIONS = ["recv: ECONNRESET", "recv_into: ECONNRESET", "read: ECONNRESET", "send: ECONNRESET", "poll: IN ERR HUP, then ECONNRESET",
               "epoll: IN ERR HUP, then ECONNRESET", "select: IN, then ECONNRESET", "error: ERR HUP, ECONNRESET", "connect: ECONNRESET",
               "connect and poll: OUT ERR HUP, ECONNRESET"]
MEANWHILE = ["send of datagrams: ENETDOWN", "write of datagrams: ENETDOWN", "recv of datagrams at once: EAGAIN", "whose peer: True"]
LATER = ["new: True", "call: True", "poll of a listener: IN", "epoll of a listener: IN", "select of a listener: IN", "accept: True",
         "recvfrom: words", "poll of datagrams: IN, then words", "epoll of datagrams: IN, then words", "select of datagrams: IN, then words",
         "recvfrom begun meanwhile: words"]


def hear(program, lines, what):
    said = [program.lines.next() for _ in lines]
    wrong = [f"{each}, not {right}" for each, right in zip(said, lines) if each != right]
    require(not wrong, f"{what}: {'; '.join(wrong)}")


def tell(program):
    program.stdin.write("\n")
    program.stdin.flush()


@contextlib.contextmanager
def peer_runs(command, address, env=None):
    process = subprocess.Popen([*command, sys.executable, os.path.abspath(__file__), "--peer", "silent", address], env=env,
                               stdout=subprocess.PIPE)
    try:
        require(Lines(process.stdout).next() == "ready", "the peer")
        yield
    finally:
        process.kill()
        process.wait(WAIT)
        process.stdout.close()


def goes_and_comes(d, interface, scene, addresses, what, with_signal, first, later):
    """`interface()` runs an NI."""
    with interface() as daemon, contextlib.ExitStack() as all_:
        all_.enter_context(addresses[1]())
        program = all_.enter_context(begun(UNET_SOCKETS, d, scene, *addresses[0]))
        require(program.lines.next() == "ready", f"{what}: the program")
        daemon.stop(with_signal)
        hear(program, first, what)
        with interface():
            tell(program)
            hear(program, later, what)


def test_on_one_host():
    for with_signal in (signal.SIGKILL, signal.SIGTERM):
        for v in VERSIONS:
            with directory() as d:
                goes_and_comes(d, lambda: network_interface(UNETD, d), "asleep",
                               ([OURS[v], OURS[v]], lambda: peer_runs([UNET_SOCKETS], OURS[v], environment(d))),
                               f"IPv{v}, {with_signal.name}", with_signal, CONNECTIONS + MEANWHILE, LATER)


def test_over_a_wire():
    if not can_be_made():
        raise Skipped("needs root and network namespaces")
    for v in VERSIONS:
        with directory() as d, Spaces("a", "b") as spaces:
            spaces.join("a", "eth0", "b", "eth0")
            ip("-n", spaces["b"], "link", "set", "lo", "up")
            give_kernel(spaces, KERNELS)

            def interface():
                return Host(UNETD, spaces, "a", f"{d}/s", "packet:iface=eth0", "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed")

            goes_and_comes(d, interface, "asleep",
                           ([OURS[v], KERNELS[v]], lambda: peer_runs(["ip", "netns", "exec", spaces["b"]], KERNELS[v])),
                           f"IPv{v} over a wire", signal.SIGKILL, CONNECTIONS + MEANWHILE, LATER)


def test_accept():
    for v in VERSIONS:
        with directory() as d:
            goes_and_comes(d, lambda: network_interface(UNETD, d), "accepting", ([OURS[v]], contextlib.nullcontext), f"IPv{v}",
                           signal.SIGKILL, [], ["call: 1", "accept: 1 bytes"])


if __name__ == "__main__":
    begin(PEERS, globals())
