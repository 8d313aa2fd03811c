#!/usr/bin/env python3
# sockets_dual_homed.py - a program of unet-sockets on a host with a kernel interface beside the NI: sockets bound to all addresses are
# reached through both, and one program connects and sends to peers behind either.
#
# namespace a: the program; eth0 is the NI's (OURS), eth1 the kernel's (BESIDE)        namespace b: a kernel at both
#
# Usage: sockets_dual_homed.py UNETD UNET_SOCKETS     (77: no root, no network namespaces, or no unet-sockets)
#        sockets_dual_homed.py --peer SCENE ...       the programs
import contextlib
import ctypes
import errno
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import threading

from daemon import WAIT, directory, main, require, run
from ip_spaces import KERNELS, OUR_ADDRESSES, OURS, VERSIONS, Lines, give_kernel
from program_scenes import environment
from spaces import Host, Spaces, can_be_made, ip, sysctl

UNETD, UNET_SOCKETS = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")
PORT = 8700
BESIDE = {4: "10.87.0.1", 6: "fd00:87::1"}
BEHIND = {4: "10.87.0.2", 6: "fd00:87::2"}  # in b
LOOPBACK = {4: "127.0.0.1", 6: "::1"}
ANY = {4: "0.0.0.0", 6: "::"}
LONG = b"x" * 300_000
TRIES = 20  # of a datagram; each waits for a second


# ---- the programs


def say(text):
    os.write(1, f"{text}\n".encode())


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def plain(address):
    """The address as IPv4, also where an IPv6 socket received it."""
    return address.removeprefix("::ffff:")


def answer_stream(stream):
    """A datagram, its sender, and the address that it was sent to."""
    with stream:
        stream.settimeout(WAIT)
        data = b""
        while part := stream.recv(65536):
            data += part
        stream.sendall(f"{len(data)} {plain(stream.getpeername()[0])} {plain(stream.getsockname()[0])}".encode())


def answer_datagram(datagrams, wait=True):
    with contextlib.suppress(BlockingIOError):
        data, peer = datagrams.recvfrom(65536, 0 if wait else socket.MSG_DONTWAIT)
        datagrams.sendto(f"{len(data)} {plain(peer[0])}".encode(), peer)


def bound_to(address):
    listener = socket.socket(family_of(address))
    datagrams = socket.socket(family_of(address), socket.SOCK_DGRAM)
    for each in (listener, datagrams):
        each.bind((address, PORT))
    listener.listen(16)
    return listener, datagrams


def forever(call):
    while True:
        call()


def serve_by_threads(address):
    """Each service waits in a blocking call."""
    listener, datagrams = bound_to(address)
    threading.Thread(target=forever, args=[lambda: answer_stream(listener.accept()[0])], daemon=True).start()
    say("ready")
    forever(lambda: answer_datagram(datagrams))


def serve(address, selector):
    listener, datagrams = bound_to(address)
    with selector() as both:
        for each in (listener, datagrams):
            both.register(each, selectors.EVENT_READ)
        say("ready")
        while True:
            for key, _ in both.select():
                if key.fileobj is listener:
                    answer_stream(listener.accept()[0])
                else:
                    answer_datagram(datagrams, wait=False)


def serve_by_epoll(address):
    serve(address, selectors.EpollSelector)


def serve_by_poll(address):
    serve(address, selectors.PollSelector)


def serve_by_select(address):
    serve(address, selectors.SelectSelector)


def by_stream(address):
    with socket.create_connection((address, PORT), WAIT) as client:
        client.sendall(LONG)
        client.shutdown(socket.SHUT_WR)
        said = b""
        while part := client.recv(65536):
            said += part
        return said.decode(), client.getsockname()[0]


def by_datagram(client, address):
    """For a socket that may be unconnected."""
    client.settimeout(1)
    for _ in range(TRIES):
        client.sendto(b"words", (address, PORT))
        with contextlib.suppress(socket.timeout):
            said, peer = client.recvfrom(1000)
            return said.decode(), peer[0]
    return "nothing", ""


def ask(address):
    """Over TCP: the answer. Over UDP: the answer, and its sender."""
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as client:
        said = [*by_stream(address)[:1], *by_datagram(client, address)]
    say(" | ".join(said))


def ask_all(*addresses):
    """Asks each address, by one program; one datagram socket sends to all of them, forwards and backwards."""
    for address in addresses:
        said, own = by_stream(address)
        say(f"{said} | {own}")
    for bound in (False, True):
        with socket.socket(family_of(addresses[0]), socket.SOCK_DGRAM) as client:
            if bound:
                client.bind((ANY[6 if ":" in addresses[0] else 4], 0))
            for address in [*addresses, *reversed(addresses)]:
                say(" | ".join(by_datagram(client, address)))
    for address in addresses:
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as client:
            client.connect((address, PORT))
            client.settimeout(1)
            for _ in range(TRIES):
                client.send(b"word")
                with contextlib.suppress(socket.timeout):
                    say(f"{client.recv(1000).decode()} | {client.getsockname()[0]}")
                    break
            else:
                say("nothing")


MINTTL, CONGESTION_MARKS = 21, 8  # IP_MINTTL; TCPI_OPT_ECN
ATTACH_FILTER, DETACH_FILTER, BIND_TO_NUMBER, LOCK_BUFFERS = 26, 27, 62, 72  # of SOL_SOCKET
TAKES_ALL = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFFFFFF))  # an instruction of a filter
FILTER = struct.pack("HP", 1, ctypes.addressof(TAKES_ALL))
# Options that are set in order; of SOL_SOCKET, unless a level is given.
OPTIONS = {"nothing": [(socket.SO_KEEPALIVE, 1)], "advice": [(LOCK_BUFFERS, 3), (socket.SO_PRIORITY, 3)],
           "hops": [(socket.IPPROTO_IP, MINTTL, 5)], "no hops": [(socket.IPPROTO_IP, MINTTL, 0), (socket.IPPROTO_IP, MINTTL, b"\0")],
           "filter": [(ATTACH_FILTER, FILTER)], "filter undone": [(ATTACH_FILTER, FILTER), (DETACH_FILTER, 0)],
           "eth1": [(socket.SO_BINDTODEVICE, b"eth1")], "number": [(BIND_TO_NUMBER, "eth1")],
           "eth1 undone": [(socket.SO_BINDTODEVICE, b"eth1"), (BIND_TO_NUMBER, 0)],
           "group": [(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.1.2.3") + socket.inet_aton(BESIDE[4]))]}


def set_options(sock, name):
    for *level, option, value in OPTIONS[name]:
        number = socket.if_nametoindex(value) if isinstance(value, str) else value
        sock.setsockopt(level[0] if level else socket.SOL_SOCKET, option, number)


def name_of(call):
    try:
        call()
        return "OK"
    except OSError as e:
        return errno.errorcode[e.errno]


def set_first(option, kind, *addresses):
    """Sets the option first; only the call after it decides the socket's backend: connect() or sendto() to each address by one socket,
    bind() to each, and listen()."""
    stream = kind == "stream"

    def made():
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM)
        set_options(client, option)
        return client

    said = []
    with made() as client:
        for address in addresses:
            said.append(name_of(lambda to=address: client.connect((to, PORT)) if stream else client.sendto(b"word", (to, PORT))))
            if stream and said[-1] == "OK":
                break
    for address in (OURS[4], BESIDE[4], ANY[4]):
        with made() as bound:
            said.append(name_of(lambda to=address: bound.bind((to, 0))))
    if stream:
        with made() as listener:
            said.append(name_of(listener.listen))
    say(" ".join(said))


def serve_eth1(address):
    with socket.socket() as listener:
        set_options(listener, "eth1")
        listener.bind((address, PORT))
        listener.listen()
        say("ready")
        forever(lambda: answer_stream(listener.accept()[0]))


def ask_stream(address):
    say(name_of(lambda: by_stream(address)))


def has_marks(stream):
    return bool(stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 100)[5] & CONGESTION_MARKS)


def serve_marks(address):
    with socket.create_server((address, PORT)) as listener:
        say("ready")
        while True:
            with listener.accept()[0] as stream:
                stream.sendall(b"%d" % has_marks(stream))


def ask_marks(address):
    with socket.create_connection((address, PORT), WAIT) as client:
        say(f"{client.recv(10).decode()} {has_marks(client):d}")


ROUNDS, ASKED, ANSWERED = 5, 100, 1000  # rounds of question and answer, and their bytes: one segment each
# struct tcp_info of <linux/tcp.h>, up to Linux 6.7: the scales of both windows, and all numbers behind them.
TCP_INFO = struct.Struct("=6xBx24I4Q6I4Q2I2Q6I2HI")
TCP_INFO_NAMES = """scales rto ato snd_mss rcv_mss unacked sacked lost retrans fackets last_data_sent last_ack_sent last_data_recv last_ack_recv pmtu
    rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss reordering rcv_rtt rcv_space total_retrans pacing_rate max_pacing_rate bytes_acked
    bytes_received segs_out segs_in notsent_bytes min_rtt data_segs_in data_segs_out delivery_rate busy_time rwnd_limited sndbuf_limited
    delivered delivered_ce bytes_sent bytes_retrans dsack_dups reord_seen rcv_ooopack snd_wnd rcv_wnd rehash total_rto total_rto_recoveries
    total_rto_time""".split()


def info_of(stream):
    """The fields of TCP_INFO; those that an older kernel lacks are zero."""
    told = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
    info = dict(zip(TCP_INFO_NAMES, TCP_INFO.unpack(told.ljust(TCP_INFO.size, b"\0"))))
    scale = info["scales"] >> 4
    return info | {"length": len(told), "told_wnd": info["rcv_wnd"] >> scale << scale}  # the peer counts in these units


def received(stream, count):
    while count > 0:
        part = stream.recv(count)
        require(part, "the peer has ended")
        count -= len(part)


def serve_info(address):
    """Reports TCP_INFO of the first connection over a second one."""
    with socket.create_server((address, PORT), family=family_of(address)) as listener:
        say("ready")
        while True:
            with listener.accept()[0] as stream, listener.accept()[0] as other:
                for _ in range(ROUNDS):
                    received(stream, ASKED)
                    stream.sendall(b"x" * ANSWERED)
                while other.recv(1):
                    other.sendall(json.dumps(info_of(stream)).encode() + b"\n")


def ask_info(address):
    """TCP_INFO of both ends once nothing is in flight."""
    for _ in range(TRIES):
        with socket.create_connection((address, PORT), WAIT) as stream, socket.create_connection((address, PORT), WAIT) as other:
            for _ in range(ROUNDS):
                stream.sendall(b"x" * ASKED)
                received(stream, ANSWERED)
            own, peers, at_rest = {}, {}, False
            while not at_rest:
                at_rest = own.get("unacked") == peers.get("unacked") == 0  # so the last ACKs have arrived, too
                other.sendall(b"?")
                peers = json.loads(other.makefile().readline())
                own = info_of(stream)
        if not any(end["total_retrans"] or end["total_rto"] for end in (own, peers)):
            break  # else a stall of the machine caused a spurious retransmission
    say(json.dumps([own, peers]))


PEERS = {each.__name__: each for each in (ask, ask_all, ask_info, ask_marks, ask_stream, serve_eth1, serve_info, serve_marks, set_first,
                                          serve_by_epoll, serve_by_poll, serve_by_select, serve_by_threads)}


# ---- the test


def peer(*args):
    return [sys.executable, os.path.abspath(__file__), "--peer", *args]


class Place:
    def __init__(self, spaces, d):
        self.spaces, self.env = spaces, environment(d)

    def command(self, who, *args):
        """Where a program runs: "ours", or the namespace of a program on the kernel's sockets."""
        return ["ip", "netns", "exec", self.spaces["a" if who == "ours" else who], *[UNET_SOCKETS] * (who == "ours"), *peer(*args)]

    @contextlib.contextmanager
    def serving(self, who, how, address):
        process = subprocess.Popen(self.command(who, how, address), env=self.env, stdout=subprocess.PIPE)
        try:
            require(Lines(process.stdout).next() == "ready", "a server")
            yield
            require(process.poll() is None, f"the server has ended with {process.returncode}")
        finally:
            process.kill()
            process.wait(WAIT)
            process.stdout.close()

    def says(self, who, *args):
        status, out, err = run(*self.command(who, *args), env=self.env)
        require(status == 0, f"{who} {args} ends with {status}: {out}{err}")
        return out.splitlines()

    def must(self, who, address, source, what):
        wanted = f"{len(LONG)} {source} {address} | 5 {source} | {address}"
        said = self.says(who, "ask", address)
        require(said == [wanted], f"{what}: {who} asks {address}: {said}, not {wanted}")


@contextlib.contextmanager
def place():
    with directory() as d, Spaces("a", "b") as spaces:
        for interface in ("eth0", "eth1"):
            spaces.join("a", interface, "b", interface)
        for name in ("a", "b"):
            ip("-n", spaces[name], "link", "set", "lo", "up")
        give_kernel(spaces, KERNELS)
        give_kernel(spaces, BEHIND, interface="eth1", link_local="fe80::22")
        give_kernel(spaces, BESIDE, "a", interface="eth1", link_local="fe80::11")
        with Host(UNETD, spaces, "a", f"{d}/s", "packet:iface=eth0", "--ip", "0=" + ",".join(OUR_ADDRESSES) + ",unprobed"):
            yield Place(spaces, d)


def callers(v):
    """Source, destination, and the address that the server sees."""
    return [("b", BESIDE[v], BEHIND[v]), ("b", OURS[v], KERNELS[v]), ("ours", OURS[v], OURS[v]), ("ours", BESIDE[v], BESIDE[v]),
            ("a", BESIDE[v], BESIDE[v]), ("a", LOOPBACK[v], LOOPBACK[v]), ("ours", LOOPBACK[v], LOOPBACK[v])]


def test_both_reach_a_server():
    with place() as here:
        for how in ("serve_by_threads", "serve_by_epoll", "serve_by_poll", "serve_by_select"):
            for of in VERSIONS:
                with here.serving("ours", how, ANY[of]):
                    for v in VERSIONS if of == 6 else (4,):  # an IPv6 socket receives both
                        for who, address, source in callers(v):
                            here.must(who, address, source, f"{how} at {ANY[of]}")


def test_one_address_is_one_side():
    """A server bound to one address belongs to that side alone."""
    with place() as here:
        for v in VERSIONS:
            with here.serving("ours", "serve_by_epoll", OURS[v]), here.serving("ours", "serve_by_epoll", BESIDE[v]):
                for who, address, source in callers(v)[:5]:
                    here.must(who, address, source, "two servers")


def test_a_client_reaches_both():
    with place() as here:
        for v in VERSIONS:
            with here.serving("b", "serve_by_epoll", ANY[v]), here.serving("ours", "serve_by_epoll", OURS[v]), \
                    here.serving("a", "serve_by_epoll", LOOPBACK[v]):
                whom = {KERNELS[v]: OURS[v], BEHIND[v]: BESIDE[v], LOOPBACK[v]: LOOPBACK[v], OURS[v]: OURS[v]}
                said = here.says("ours", "ask_all", *whom)
                wanted = [f"{len(LONG)} {own} {address} | {own}" for address, own in whom.items()]
                there_and_back = [*whom, *reversed(whom)]
                wanted += [f"5 {whom[address]} | {address}" for address in there_and_back * 2]
                wanted += [f"4 {own} | {own}" for own in whom.values()]
                wrong = [f"{each}, not {right}" for each, right in zip(said, wanted) if each != right]
                require(len(said) == len(wanted) and not wrong, f"IPv{v}: {wrong or said}")


def test_options_of_the_kernel_alone():
    """Options that only the kernel has, set before the backend is chosen. A call that chooses U-Net fails with an error, which is explained
    once; a kernel socket has the options."""
    no = "ENOPROTOOPT"
    said = {(each, kind): "OK OK OK OK OK" for each in ("nothing", "advice", "no hops", "filter undone", "eth1 undone")
            for kind in ("stream", "datagram")}
    said |= {(each, "stream"): f"{no} OK {no} OK {no} {no}" for each in ("hops", "filter")}
    said |= {(each, "datagram"): f"{no} OK {no} OK {no}" for each in ("hops", "filter")}
    said["group", "datagram"] = "OK OK OK OK OK"
    with place() as here, here.serving("b", "serve_by_epoll", ANY[4]):
        for (option, kind), wanted in said.items():
            status, out, err = run(*here.command("ours", "set_first", option, kind, KERNELS[4], BEHIND[4]), env=here.env)
            require((status, out.strip()) == (0, wanted), f"{option} of a {kind}: {status} {out.strip()}, not {wanted}\n{err}")
            explained = err.count("is the kernel's alone")
            require(explained == int(option in ("hops", "filter")) and (explained == 0 or "--rule" in err), f"{option} of a {kind} says {err!r}")


def test_bound_to_an_interface():
    """A program that names a kernel interface gets a kernel socket, also for all addresses."""
    with place() as here:
        with here.serving("b", "serve_by_epoll", BEHIND[4]):
            for device in ("eth1", "number"):
                said = here.says("ours", "set_first", device, "stream", BEHIND[4])
                require(said == ["OK EADDRNOTAVAIL OK OK OK"], f"of eth1, as {device}: {said}")
        with here.serving("ours", "serve_eth1", ANY[4]):
            said = [here.says("b", "ask_stream", address) for address in (BESIDE[4], OURS[4])]
            require(said == [["OK"], ["ECONNREFUSED"]], f"a server of eth1 is reached: {said}")


def test_marks_as_the_system_says():
    """net.ipv4.tcp_ecn of the namespace: 0 never, 1 requests ECN, 2 accepts it."""
    with place() as here:
        for ours, kernels, caller, marked in ((1, 2, "ours", 1), (2, 1, "ours", 0), (0, 1, "ours", 0), (2, 1, "b", 1), (0, 1, "b", 0)):
            for name, mode in (("a", ours), ("b", kernels)):
                sysctl(here.spaces[name], "net.ipv4.tcp_ecn", mode)
            server, address = ("b", KERNELS[4]) if caller == "ours" else ("ours", OURS[4])
            with here.serving(server, "serve_marks", address):
                said = here.says(caller, "ask_marks", address)
            require(said == [f"{marked} {marked}"], f"{caller} calls, ours has {ours}, the kernel {kernels}: {said}")


def wrong_info(end, other, *, sent, came, kernels, calls, mss):
    """The wrong fields of one end's TCP_INFO, each with the right value. Only the kernel counts its SYN among the acknowledged bytes, and
    omits a listener's SYN-ACK from the segments."""
    right = {"snd_mss": mss, "pmtu": 1500, "bytes_sent": ROUNDS * sent, "bytes_acked": ROUNDS * sent + (kernels and calls),
             "bytes_received": ROUNDS * came, "data_segs_out": ROUNDS, "data_segs_in": ROUNDS,
             "delivered": ROUNDS + 1,
             "segs_out": other["segs_in"] - (kernels and not calls)}
    right |= {} if kernels else {"length": TCP_INFO.size, "told_wnd": other["snd_wnd"]}  # kernels before 6.7 have fewer fields
    right |= dict.fromkeys(("unacked", "sacked", "lost", "retrans", "notsent_bytes", "total_retrans", "bytes_retrans", "dsack_dups",
                            "rcv_ooopack", "total_rto", "total_rto_recoveries", "total_rto_time"), 0)
    wrong = {name: (end[name], value) for name, value in right.items() if end[name] != value}
    return wrong | {name: end[name] for name, least in (("rtt", 1), ("min_rtt", 1), ("rto", 1), ("snd_cwnd", 2)) if end[name] < least}


def test_what_a_connection_tells():
    """TCP_INFO of both ends after a short conversation: ipstack's equals the kernel's."""
    with place() as here:
        for v in VERSIONS:
            mss = 1500 - {4: 20, 6: 40}[v] - 20 - 12  # minus headers and the timestamps option
            for caller, server, address in (("ours", "b", KERNELS[v]), ("b", "ours", OURS[v])):
                with here.serving(server, "serve_info", address):
                    calls, answers = json.loads(here.says(caller, "ask_info", address)[0])
                wrong = [wrong_info(calls, answers, sent=ASKED, came=ANSWERED, kernels=caller == "b", calls=True, mss=mss),
                         wrong_info(answers, calls, sent=ANSWERED, came=ASKED, kernels=server == "b", calls=False, mss=mss)]
                require(wrong == [{}, {}], f"IPv{v}, {caller} calls; what its end says and what is right, and the other end: {wrong}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        PEERS[sys.argv[2]](*sys.argv[3:])
        sys.exit(0)
    if not os.path.exists(UNET_SOCKETS) or not can_be_made():
        print("skipped: needs unet-sockets, root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
