#!/usr/bin/env python3
# sockets_routing.py - the routing of an unmodified program's sockets to a backend, by unet-sockets. Sockets of the NI do not become the
# kernel's while the NI is away, and kernel sockets do not block those of the NI. Also the library's cost for an idle program.
#
# Usage: sockets_routing.py UNETD UNET_SOCKETS     (77: no unet-sockets)
#        sockets_routing.py --peer SCENE ADDRESS   the scene of the program
import contextlib
import errno
import os
import signal
import socket
import struct
import sys
import threading
import time

from daemon import IS_ROOT, NOBODY, WAIT, Skipped, Unetd, directory, require, run
from ip_spaces import OURS, VERSIONS
from program_scenes import begin, begun, network_interface, tell

UNETD, UNET_SOCKETS = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")
MIN_TTL, MIN_HOPS = 21, 73  # IP_MINTTL, IPV6_MINHOPCOUNT: only the kernel has them
PORT, RESTARTS, HOPS, LOOKS, LOOPBACK = 8500, 4, 7, 100, {4: "127.0.0.1", 6: "::1"}
IP_RECVTTL = 12  # missing in Python's module


# ---- the program


def say(text):
    os.write(1, f"{text}\n".encode())


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def connection(address):
    """Over ipstack: the client's end and the server's."""
    with socket.create_server((address, PORT), family=family_of(address)) as listener:
        client = socket.create_connection((address, PORT))
        server, _ = listener.accept()
    for each in (client, server):
        each.settimeout(WAIT)
    return client, server


def error_of(call):
    try:
        call()
    except OSError as e:
        return errno.errorcode[e.errno]
    return "0"


def away(address):
    """The NI is killed, and comes back."""
    client, _server = connection(address)
    datagrams = socket.socket(family_of(address), socket.SOCK_DGRAM)
    any_address = "::" if ":" in address else "0.0.0.0"

    def new(kind=socket.SOCK_STREAM):
        return socket.socket(family_of(address), kind)

    bound = new(socket.SOCK_DGRAM)
    bound.bind((address, 0))
    six = ":" in address
    bound.setsockopt(*((socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS) if six else (socket.IPPROTO_IP, socket.IP_TTL)), HOPS)
    say("ready")
    sys.stdin.readline()
    calls = {"recv": lambda: client.recv(1), "connect": lambda: new().connect((address, PORT)),
             "sendto": lambda: datagrams.sendto(b"x", (address, PORT)),
             "connect datagrams": lambda: new(socket.SOCK_DGRAM).connect((address, PORT)), "bind": lambda: new().bind((address, PORT)),
             "bind any": lambda: new().bind((any_address, PORT)), "listen": lambda: new().listen(1)}
    for name, call in calls.items():
        say(f"{name}: {error_of(call)}")
    loopback = "::1" if ":" in address else "127.0.0.1"
    with socket.create_server((loopback, PORT), family=family_of(address)) as listener, socket.create_connection((loopback, PORT)):
        listener.accept()[0].close()
    # While the NI is away, an option that only the kernel has is accepted; it is gone when the binding comes back.
    bound.setsockopt(*((socket.IPPROTO_IPV6, MIN_HOPS) if six else (socket.IPPROTO_IP, MIN_TTL)), 5)
    say("loopback: 0")
    sys.stdin.readline()
    end = time.monotonic() + WAIT
    while (error := error_of(lambda: connection(address))) != "0" and time.monotonic() < end:
        time.sleep(0.05)
    say(f"back: {error}")
    # A socket's options come back, too.
    hears = new(socket.SOCK_DGRAM)
    hears.bind((address, 0))
    hears.setsockopt(*((socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT) if six else (socket.IPPROTO_IP, IP_RECVTTL)), 1)
    bound.sendto(b"x", hears.getsockname()[:2])
    ancillary = hears.recvmsg(1, 100)[1]
    say(f"hops: {struct.unpack('i', ancillary[0][2])[0]}")


def memory(kind):
    """A size in bytes from the process's status."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(kind + ":"))


def grows(address):
    """The NI goes and comes back, many times."""
    for time_ in range(RESTARTS):
        end = time.monotonic() + WAIT
        while (error := error_of(lambda: connection(address))) != "0" and time.monotonic() < end:
            time.sleep(0.05)
        kept = connection(address)
        if time_ == 0:
            first = memory("VmSize")
        say(f"connected: {error}")
        sys.stdin.readline()
        require(error_of(lambda: kept[0].recv(1)) == "ECONNRESET", "no reset")
    say(f"grew by {(memory('VmSize') - first) >> 20} MiB")


def options(address):
    """Repeated settings of a socket without a backend are stored once."""
    one = socket.socket(family_of(address))
    for n in range(100):
        one.settimeout(n)
    before = memory("VmRSS")
    for n in range(100_000):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", n % 7 + 1, 0))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, n % 2)
    say(f"grew by {(memory('VmRSS') - before) >> 10} KiB")
    listener = socket.create_server((address, PORT), family=family_of(address))
    one.connect(listener.getsockname()[:2])
    say(f"kept {one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)}")


def waits(address):
    """One thread blocks in a kernel connect() of a dual socket; the others go on."""
    client, server = connection(address)
    loopback, any_address = ("::1", "::") if ":" in address else ("127.0.0.1", "0.0.0.0")
    full = socket.socket(family_of(address))
    full.bind((loopback, 0))
    full.listen(0)
    waiting = [socket.socket(family_of(address)) for _ in range(2)]
    for each in waiting:  # the last finds the queue full: its SYN is repeated
        each.setblocking(False)
        each.connect_ex(full.getsockname())
    bound = socket.socket(family_of(address))
    bound.bind((any_address, 0))
    begins = threading.Event()

    def connects():
        begins.set()
        with contextlib.suppress(OSError):
            bound.connect(full.getsockname())

    threading.Thread(target=connects, daemon=True).start()
    begins.wait(WAIT)
    time.sleep(0.2)
    client.sendall(b"ping")
    say(f"got: {server.recv(4).decode()}")
    os._exit(0)


def daemon(address, close):
    """A child closes all descriptors, as daemons do, and serves: its own descriptors do not get the numbers of the library's."""
    child = os.fork()
    if child == 0:
        close()
        with socket.create_server((address, PORT), family=family_of(address)) as listener:
            for _ in range(3):
                stream, _ = listener.accept()
                stream.sendall(stream.recv(4))
                stream.recv(4)
        os._exit(0)
    answers, end = [], time.monotonic() + WAIT
    while len(answers) < 3 and time.monotonic() < end:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((address, PORT), WAIT) as client:
            time.sleep(0.1)  # the server sleeps
            client.sendall(b"ping")
            answers.append(client.recv(4))
    say(f"{answers} {os.waitpid(child, 0)[1]}")


def closes_all(address):
    daemon(address, lambda: os.closerange(3, 4096))


def closes_each(address):
    daemon(address, lambda: [error_of(lambda fd=fd: os.close(fd)) for fd in range(3, 1024)])


def asks(address, port):
    """The backend of a listener at the loopback address: the kernel lists its own."""
    here, family = (address, int(port)), family_of(address)
    with socket.create_server(here, family=family) as listener, socket.create_connection(here) as client:
        server, _ = listener.accept()
        client.sendall(b"ping")
        said = server.recv(4).decode()
        datagrams = socket.socket(family, socket.SOCK_DGRAM)
        datagrams.bind(here)
        datagrams.sendto(b"x", here)
        datagrams.recv(1)
        with open(f"/proc/net/tcp{'6' * (family == socket.AF_INET6)}", encoding="ascii") as table:
            sockets = [line.split()[1:4:2] for line in table]
        listed = any(local.endswith(f":{int(port):04X}") and state == "0A" for local, state in sockets)  # 0A: listens
        say(f"{said}: {'kernel' if listed else 'ours'}")


def idles(*addresses):
    """Has a socket of each kind, and is idle."""
    streams = [connection(address) for address in addresses]
    idle = [socket.create_server((address, PORT), family=family_of(address)) for address in addresses]
    for address in addresses:
        idle.append(socket.socket(family_of(address), socket.SOCK_DGRAM))
        idle[-1].bind((address, PORT))
    say("ready")
    sys.stdin.readline()
    for client, server in streams:
        client.sendall(b"ping")
        say(f"got: {server.recv(4).decode()}")


def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def another_user(address):
    """A child changes its user, and serves what it has inherited, listens and connects; then its parent changes its user, too."""
    "".encode("idna")  # the first use reads a file
    family = family_of(address)
    listener = socket.create_server((address, PORT), family=family)
    called = socket.create_server((address, PORT + 1), family=family)
    bound = socket.socket(family, socket.SOCK_DGRAM)
    bound.bind((address, PORT))
    child = os.fork()
    if child == 0:
        become_nobody()
        for _ in range(3):
            stream, _ = listener.accept()
            stream.sendall(stream.recv(4) + b"%d" % os.getuid())
        data, peer = bound.recvfrom(10)
        bound.sendto(data + b"%d" % os.getuid(), peer)
        with socket.create_server((address, PORT + 2), family=family) as own, socket.create_connection((address, PORT + 1)) as caller:
            caller.sendall(b"anew")
            own.accept()[0].sendall(b"own")
        os._exit(0)
    said = []
    for _ in range(3):
        with socket.create_connection((address, PORT), WAIT) as client:
            client.sendall(b"ping")
            said.append(client.recv(10).decode())
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.settimeout(1)
        for _ in range(WAIT):
            client.sendto(b"pong", (address, PORT))
            with contextlib.suppress(socket.timeout):
                said.append(client.recv(10).decode())
                break
    said.append(called.accept()[0].recv(4).decode())
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((address, PORT + 2), WAIT) as client:
            said.append(client.recv(3).decode())
            break
    say(f"{' '.join(said)}, {os.waitpid(child, 0)[1]}")
    become_nobody()
    with socket.create_connection((address, PORT + 1)) as client:
        called.accept()[0].sendall(b"still")
        say(f"{client.recv(5).decode()} {error_of(lambda: socket.create_server((address, PORT + 3), family=family))}")


PEERS = {each.__name__: each for each in (another_user, asks, away, closes_all, closes_each, grows, idles, options, waits)}


# ---- the test


def test_another_user():
    if not IS_ROOT:
        raise Skipped("needs root")
    for v in VERSIONS:
        with directory() as d, network_interface(UNETD, d), begun(UNET_SOCKETS, d, "another_user", OURS[v]) as program:
            for wanted in (f"ping{NOBODY} ping{NOBODY} ping{NOBODY} pong{NOBODY} anew own, 0", "still 0"):
                said = program.lines.next()
                require(said == wanted, f"IPv{v}: {said}, not {wanted}")


def test_away():
    expected = ["recv: ECONNRESET", "connect: ENETDOWN", "sendto: ENETDOWN", "connect datagrams: ENETDOWN", "bind: ENETDOWN",
                "bind any: ENETDOWN", "listen: ENETDOWN", "loopback: 0"]
    for v in VERSIONS:
        with directory() as d, network_interface(UNETD, d) as daemon, begun(UNET_SOCKETS, d, "away", OURS[v]) as program:
            require(program.lines.next() == "ready", "the program")
            daemon.stop(signal.SIGKILL)
            tell(program, "")
            for line in expected:
                said = program.lines.next()
                require(said == line, f"IPv{v}: {said}, not {line}")
            with network_interface(UNETD, d):
                tell(program, "")
                said = program.lines.next()
                require(said == "back: 0", f"IPv{v}: {said}")
                said = program.lines.next()
                require(said == f"hops: {HOPS}", f"IPv{v}: {said}")


def test_daemons():
    for scene in ("closes_all", "closes_each"):
        for v in VERSIONS:
            with directory() as d, network_interface(UNETD, d), begun(UNET_SOCKETS, d, scene, OURS[v]) as program:
                said = program.lines.next()
                require(said == f"{[b'ping'] * 3} 0", f"{scene}, IPv{v}: {said}")


def threads_of(pid):
    """State and number of context switches of each thread."""
    threads = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as file:
            status = dict(line.split(":", 1) for line in file)
        threads[int(task)] = status["State"].split()[0], sum(int(status[f"{kind}_ctxt_switches"]) for kind in ("voluntary", "nonvoluntary"))
    return threads


def test_idle():
    """The library has one thread of its own, which sleeps: no thread is woken often or found running."""
    with directory() as d, network_interface(UNETD, d), begun(UNET_SOCKETS, d, "idles", *(OURS[v] for v in VERSIONS)) as program:
        require(program.lines.next() == "ready", "the program")
        time.sleep(1)  # the helper polls for an eighth of a second before it sleeps
        before = threads_of(program.pid)
        require(len(before) <= 2, f"its threads are {before}")
        running = 0
        for _ in range(LOOKS):
            time.sleep(0.01)
            running += any(state == "R" for state, _ in threads_of(program.pid).values())
        after = threads_of(program.pid)
        require(set(after) == set(before), f"other threads: {before}, then {after}")
        switches = sum(after[each][1] - before[each][1] for each in before)
        require(switches < 50 and running < LOOKS // 2, f"{switches} switches, found running {running} times: {before}, then {after}")
        tell(program, "")
        for v in VERSIONS:
            said = program.lines.next()
            require(said == "got: ping", f"IPv{v}: {said}")


@contextlib.contextmanager
def changed(name, value):
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def test_loopback():
    """The kernel has loopback unless a rule names it, and the NI has the address; such an NI has no wire."""
    networks = {4: "127.0.0.0/8", 6: "::1"}
    with directory() as d, Unetd(UNETD, "--socket", f"{d}/s", "--port", "nowhere", "--ip", f"0={LOOPBACK[4]}/8,{LOOPBACK[6]}/128"):
        for v in VERSIONS:
            for rules, owner in (("", "kernel"), (f"ours {networks[v]}", "ours"), (f"ours tcp * {PORT}", "ours"),
                                 (f"ours {networks[10 - v]}", "kernel")):
                with changed("UNET_SOCKETS_RULES", rules), begun(UNET_SOCKETS, d, "asks", LOOPBACK[v], str(PORT)) as program:
                    said = program.lines.next()
                    require(said == f"ping: {owner}", f"{LOOPBACK[v]} with {rules}: {said}")
        for address in (f"{LOOPBACK[4]}/8", f"{LOOPBACK[6]}/128"):
            status, _, err = run(UNETD, "--socket", f"{d}/t", "--port", "dpdk:net_ring0", "--ip", f"0={address}")
            require(status != 0 and "no wire has that address" in err, f"{status}: {err}")


def test_memory():
    """A lost stack is freed: it has 66 MiB of addresses, of which this program touches little."""
    with directory() as d, contextlib.ExitStack() as all_:
        daemon = all_.enter_context(network_interface(UNETD, d))
        program = all_.enter_context(begun(UNET_SOCKETS, d, "grows", OURS[4]))
        for left in reversed(range(RESTARTS)):
            said = program.lines.next()
            require(said == "connected: 0", said)
            daemon.stop(signal.SIGKILL)
            tell(program, "")
            if left != 0:
                daemon = all_.enter_context(network_interface(UNETD, d))
        said = program.lines.next()
        require(said.startswith("grew by") and int(said.split()[2]) < 66, said)


def test_options():
    with directory() as d, network_interface(UNETD, d), begun(UNET_SOCKETS, d, "options", OURS[4]) as program:
        said = program.lines.next()
        require(said.startswith("grew by") and int(said.split()[2]) < 2048, said)
        said = program.lines.next()
        require(said == "kept 1", said)


def test_waits():
    for v in VERSIONS:
        with directory() as d, network_interface(UNETD, d), begun(UNET_SOCKETS, d, "waits", OURS[v]) as program:
            said = program.lines.next()
            require(said == "got: ping", f"IPv{v}: {said}")


if __name__ == "__main__":
    begin(PEERS, globals())
