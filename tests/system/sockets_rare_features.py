#!/usr/bin/env python3
# sockets_rare_features.py - rarely used parts of TCP, between ipstack and Linux's kernel over a wire, as scenes of sockets_scenes.py:
# urgent data, simultaneous open, and ECN. tshark checks the captures.
#
# Usage: sockets_rare_features.py UNETD SOCKETS_SCRIPT   (77: no root, no network namespaces)
#        sockets_rare_features.py --marks EVERY          passes frames between two interfaces, in the namespace of the switch
import contextlib
import os
import select
import socket
import struct
import subprocess
import sys

from daemon import WAIT, beside, main, require, run, wait_until
from ip_linux import checksum
from ip_spaces import KERNELS, OURS, VERSIONS, Lines, looks_right
from socket_sides import WIRE, stage
from sockets_scenes import OPEN, SCRIPT, UNETD, Play, play
from spaces import can_be_made, sysctl

BYTES, EVERY = 2_000_000, 50  # of a stream, and which of its frames are marked CE
ECE, CWR = 0x40, 0x80

# 33 is the urgent byte.
URGENT = {
    "beside the stream, read and left out": """
a: send s 10 -> 10
a: urgent s 5 -> 5
b: wait s PRI -> IN PRI OUT
b: mark s -> 0
b: beside s -> 33
b: beside s -> EINVAL
b: events s -> IN OUT
b: recv s 20 -> 14
b: mark s -> 1
a: send s 5 -> 5
b: recv s 5 -> 5
b: mark s -> 0
b: urgent s 3 -> 3
a: wait s PRI -> IN PRI OUT
a: recv s 20 -> 2
a: mark s -> 1
a: events s -> PRI OUT
b: send s 4 -> 4
a: recv s 4 -> 4
a: beside s -> EINVAL
a: events s -> OUT
""",
    "in line": """
a: set s oobinline 1 -> 0
b: set s oobinline 1 -> 0
a: send s 10 -> 10
a: urgent s 1 -> 1
b: wait s PRI -> IN PRI OUT
a: send s 5 -> 5
b: beside s -> EINVAL
b: recv s 20 -> 10
b: mark s -> 1
b: byte s -> 33
b: mark s -> 0
b: recv s 5 -> 5
b: events s -> OUT
b: urgent s 1 -> 1
a: wait s PRI -> IN PRI OUT
a: mark s -> 1
a: byte s -> 33
a: events s -> OUT
""",
    "to who reads, and behind it the end": """
b: begin recv s 100
a: send s 10 -> 10
a: urgent s 1 -> 1
b: end -> 10
b: beside s -> 33
a: begin recv s 100
b: send s 10 -> 10
b: urgent s 1 -> 1
a: end -> 10
a: beside s -> 33
a: urgent s 3 -> 3
a: shutdown s write -> 0
b: wait s RDHUP -> IN PRI OUT RDHUP
b: beside s -> 33
b: drain s -> 2 0
""",
}

# Their first SYNs are lost, so both call before either hears of the other. The next SYNs, a second later, cross on the way, which takes
# longer than their clocks differ by.
CROSSING = {"both call each other": """
a: socket t stream V -> 0
b: socket t stream V -> 0
a: bind t A OTHER -> 0
b: bind t B OTHER -> 0
a: nonblock t -> 0
b: nonblock t -> 0
unplug
a: connect t B OTHER -> EINPROGRESS
b: connect t A OTHER -> EINPROGRESS
pause
plug
a: wait t OUT -> OUT
b: wait t OUT -> OUT
a: connect t B OTHER -> 0
b: connect t A OTHER -> 0
a: block t -> 0
b: block t -> 0
a: send t 5000 -> 5000
b: send t 3000 -> 3000
a: recv t 3000 -> 3000
b: recv t 5000 -> 5000
a: shutdown t write -> 0
b: drain t -> 0 0
b: send t 1000 -> 1000
b: close t -> 0
a: drain t -> 1000 0
"""}
SLOW = "faulty:delay=200ms,direction=both,seed=1 / " + WIRE


@beside
def test_urgent_data():
    play({f"urgent data {name}": OPEN + text for name, text in URGENT.items()})


@beside
def test_simultaneous_open():
    play({name: OPEN + text for name, text in CROSSING.items()}, wire=SLOW)


# ---- explicit congestion notification (RFC 3168)


def marked(frame):
    """The frame with CE set, as a congested router sets it, if it is ECN-capable; else None."""
    kind = struct.unpack("!H", frame[12:14])[0]
    if kind == 0x0800 and frame[15] & 3 in (1, 2):
        head = frame[14:14 + 4 * (frame[14] & 15)]
        head = head[:1] + bytes([head[1] | 3]) + head[2:10] + b"\0\0" + head[12:]
        return frame[:14] + head[:10] + struct.pack("!H", checksum(head)) + head[12:] + frame[14 + len(head):]
    if kind == 0x86DD and frame[15] >> 4 & 3 in (1, 2):
        return frame[:15] + bytes([frame[15] | 0x30]) + frame[16:]
    return None


def pass_frames(every):
    """Passes frames between to_a and to_b, until standard input closes."""
    ends = {}
    for name in ("to_a", "to_b"):
        ends[name] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
        ends[name].bind((name, 3))
    other = {ends["to_a"]: ends["to_b"], ends["to_b"]: ends["to_a"]}
    print("ready", flush=True)
    count = 0
    while True:
        readable, _, _ = select.select([*other, sys.stdin], [], [])
        if sys.stdin in readable:
            return
        for end in readable:
            frame, (_, _, direction, *_) = end.recvfrom(65536)
            if direction == socket.PACKET_OUTGOING:
                continue
            if len(frame) > 200 and (changed := marked(frame)):
                count += 1
                frame = changed if count % every == 0 else frame
            with contextlib.suppress(OSError):  # the wire is full
                other[end].send(frame)


@contextlib.contextmanager
def a_router_that_marks(it):
    """In place of the switch."""
    for name in ("a", "b"):
        it.plug(name, False)
    process = subprocess.Popen(["ip", "netns", "exec", it.spaces["s"], sys.executable, os.path.abspath(__file__), "--marks", str(EVERY)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        require(Lines(process.stdout).next() == "ready", "nobody passes frames")
        yield
    finally:
        process.kill()
        process.wait(WAIT)


def is_on_the_wire(it, version, sender, flag):
    """A segment of the sender's, after its SYN, with this flag."""
    source = f"ip.src == {sender[4]}" if version == 4 else f"ipv6.src == {sender[6]}"
    wanted = f"{source} and (tcp.flags & {flag}) and not (tcp.flags & 2)"
    return bool(run("tshark", "-r", it.capture, "-c", "1000000", "-Y", wanted)[1].strip())


def test_marks_of_congestion():
    """A side that is asked for ECN accepts it. The receiver echoes CE to the sender (ECE), which confirms it (CWR). ipstack requests ECN
    only if told to, or for DCTCP, which the kernel's classic ECN understands."""
    with stage(UNETD, SCRIPT) as it, a_router_that_marks(it):
        # The side that requests ECN, the caller, and whether both agree.
        for asks, caller, agreed in (("kernel", "b", 1), ("kernel", "a", 0), ("marks", "a", 1), ("marks", "b", 0), ("dctcp", "a", 1)):
            sysctl(it.spaces["b"], "net.ipv4.tcp_ecn", 1 if asks == "kernel" else 2)
            for v in VERSIONS:
                with it.ours(*[asks] * (asks != "kernel")) as ours, it.kernel() as kernel:
                    sides = {"a": ours, "b": kernel} if caller == "a" else {"a": kernel, "b": ours}
                    Play.port += 1
                    play_it = Play(it, sides, "b")
                    play_it.act(OPEN, v)
                    for side in (ours, kernel):
                        side.must("ecn s", str(agreed))
                    for one, other in ("ab", "ba"):
                        play_it.act(f"{one}: begin send s {BYTES}\n{other}: recv s {BYTES} -> {BYTES}\n{one}: end -> {BYTES}", v)
        for v in VERSIONS:
            for sender, receiver, who in ((OURS, KERNELS, "ours"), (KERNELS, OURS, "the kernel")):
                wait_until(lambda: is_on_the_wire(it, v, receiver, ECE), f"IPv{v}: no mark was told to {who}")
                wait_until(lambda: is_on_the_wire(it, v, sender, CWR), f"IPv{v}: {who} has not heard of a mark")
        looks_right(it.capture)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--marks"]:
        pass_frames(int(sys.argv[2]))
        sys.exit(0)
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
