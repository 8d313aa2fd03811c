#!/usr/bin/env python3
# sockets_scenes.py - all ways in which a connection begins and ends, call by call: each scene between ipstack and Linux's kernel, in both
# roles, and between two kernels, with equal answers. tshark checks the captures.
#
# Usage: sockets_scenes.py UNETD SOCKETS_SCRIPT   (77: no root, no network namespaces)
import os
import signal
import sys
import time

from daemon import Failure, beside, main, require
from ip_spaces import VERSIONS, looks_right
from socket_sides import WIRE, stage
from spaces import can_be_made

UNETD, SCRIPT = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")

GROUPS = {4: "239.1.2.3", 6: "ff05::123"}
ANY = {4: "0.0.0.0", 6: "::"}

# Begins each scene with connections: `s` is connected, a has called b.
OPEN = """
b: socket l stream V -> 0
b: set l reuse 1 -> 0
b: bind l B PORT -> 0
b: listen l 5 -> 0
a: socket s stream V -> 0
a: connect s B PORT -> 0
b: accept l s -> 0
"""

# SIDE: COMMAND -> ANSWER, or another |ANSWER; `part` is any number. `begin` does not wait for the answer; `end` returns it. `plug` and
# `unplug` work on the cable between the sides. `pause`: frames in flight arrive, or are lost.
SCENES = {
    "the caller ends first": """
a: send s 10 -> 10
a: shutdown s write -> 0
a: send s 1 -> EPIPE
b: recv s 10 -> 10
b: wait s RDHUP -> IN OUT RDHUP
b: recv s 1 -> 0
b: send s 100000 -> 100000
b: close s -> 0
a: drain s -> 100000 0
a: wait s HUP -> IN OUT RDHUP HUP
a: recv s 1 -> 0
a: get s error -> 0
a: close s -> 0
""",
    "the called ends first": """
b: send s 10 -> 10
b: shutdown s write -> 0
b: send s 1 -> EPIPE
a: recv s 10 -> 10
a: wait s RDHUP -> IN OUT RDHUP
a: recv s 1 -> 0
a: send s 100000 -> 100000
a: close s -> 0
b: drain s -> 100000 0
b: wait s HUP -> IN OUT RDHUP HUP
b: recv s 1 -> 0
b: get s error -> 0
b: close s -> 0
""",
    "both end at once": """
unplug
a: send s 5000 -> 5000
b: send s 3000 -> 3000
a: shutdown s write -> 0
b: shutdown s write -> 0
plug
a: drain s -> 3000 0
b: drain s -> 5000 0
a: wait s HUP -> IN OUT RDHUP HUP
b: wait s HUP -> IN OUT RDHUP HUP
a: recv s 1 -> 0
b: send s 1 -> EPIPE
a: close s -> 0
b: close s -> 0
""",
    "half closed by the caller, data both ways": """
a: send s 70000 -> 70000
a: shutdown s write -> 0
b: drain s -> 70000 0
b: send s 70000 -> 70000
a: recv s 70000 -> 70000
a: events s -> OUT
b: send s 1 -> 1
a: recv s 1 -> 1
b: shutdown s write -> 0
a: drain s -> 0 0
b: events s -> IN OUT RDHUP HUP
""",
    "half closed by the called, data both ways": """
b: send s 70000 -> 70000
b: shutdown s write -> 0
a: drain s -> 70000 0
a: send s 70000 -> 70000
b: recv s 70000 -> 70000
b: events s -> OUT
a: send s 1 -> 1
b: recv s 1 -> 1
a: shutdown s write -> 0
b: drain s -> 0 0
a: events s -> IN OUT RDHUP HUP
""",
    "the reader is done": """
a: shutdown s read -> 0
a: events s -> IN OUT RDHUP
a: recv s 1 -> 0
a: send s 10 -> 10
b: recv s 10 -> 10
b: events s -> OUT
a: shutdown s write -> 0
b: drain s -> 0 0
b: close s -> 0
a: wait s HUP -> IN OUT RDHUP HUP
""",
    "shut both ways": """
a: shutdown s both -> 0
a: events s -> IN OUT RDHUP HUP
a: recv s 1 -> 0
a: send s 1 -> EPIPE
b: drain s -> 0 0
b: shutdown s both -> 0
b: events s -> IN OUT RDHUP HUP
a: shutdown s both -> 0|ENOTCONN
""",
    "reset by the caller": """
a: set s linger 0 -> 0
a: close s -> 0
b: wait s HUP -> IN OUT ERR RDHUP HUP
b: recv s 1 -> ECONNRESET
b: recv s 1 -> 0
b: send s 1 -> EPIPE
b: peer s -> ENOTCONN
b: shutdown s write -> ENOTCONN
b: close s -> 0
""",
    "reset by the called": """
b: set s linger 0 -> 0
b: close s -> 0
a: wait s HUP -> IN OUT ERR RDHUP HUP
a: send s 1 -> ECONNRESET
a: send s 1 -> EPIPE
a: recv s 1 -> 0
a: get s error -> 0
a: close s -> 0
""",
    "reset behind data by the caller": """
a: send s 100 -> 100
b: wait s IN -> IN OUT
a: set s linger 0 -> 0
a: close s -> 0
b: wait s HUP -> IN OUT ERR RDHUP HUP
b: get s error -> ECONNRESET
b: recv s 100 -> 100
b: recv s 1 -> 0
""",
    "reset behind data by the called": """
b: send s 100 -> 100
a: wait s IN -> IN OUT
b: set s linger 0 -> 0
b: close s -> 0
a: wait s HUP -> IN OUT ERR RDHUP HUP
a: recv s 100 -> 100
a: recv s 1 -> ECONNRESET
a: recv s 1 -> 0
""",
    "the caller closes with data that it has not read": """
b: send s 10 -> 10
a: wait s IN -> IN OUT
a: close s -> 0
b: wait s HUP -> IN OUT ERR RDHUP HUP
b: recv s 1 -> ECONNRESET
b: recv s 1 -> 0
""",
    "the called closes with data that it has not read": """
a: send s 10 -> 10
b: wait s IN -> IN OUT
b: close s -> 0
a: wait s HUP -> IN OUT ERR RDHUP HUP
a: recv s 1 -> ECONNRESET
a: recv s 1 -> 0
""",
    "the caller closes, and data comes": """
a: close s -> 0
b: wait s RDHUP -> IN OUT RDHUP
b: send s 5 -> 5
b: wait s HUP -> IN OUT ERR RDHUP HUP
b: get s error -> EPIPE
b: send s 1 -> EPIPE
b: recv s 1 -> 0
""",
    "the called closes, and data comes": """
b: close s -> 0
a: wait s RDHUP -> IN OUT RDHUP
a: send s 5 -> 5
a: wait s HUP -> IN OUT ERR RDHUP HUP
a: send s 1 -> EPIPE
a: get s error -> 0
a: recv s 1 -> 0
""",
    "nobody has accepted, and the listener is closed": """
a: socket t stream V -> 0
a: connect t B PORT -> 0
a: send t 10 -> 10
a: socket u stream V -> 0
a: connect u B PORT -> 0
b: close l -> 0
a: wait t HUP -> IN OUT ERR RDHUP HUP
a: recv t 1 -> ECONNRESET
a: wait u HUP -> IN OUT ERR RDHUP HUP
a: send u 1 -> ECONNRESET
a: socket v stream V -> 0
a: connect v B PORT -> ECONNREFUSED
a: send s 1 -> 1
b: recv s 1 -> 1
""",
    "nobody listens": """
a: socket t stream V -> 0
a: events t -> OUT HUP
a: send t 1 -> EPIPE
a: recv t 1 -> ENOTCONN
a: shutdown t write -> ENOTCONN
a: peer t -> ENOTCONN
b: close l -> 0
a: connect t B PORT -> ECONNREFUSED
a: get t error -> 0
a: nonblock t -> 0
a: connect t B PORT -> EINPROGRESS
a: wait t HUP -> IN OUT ERR RDHUP HUP
a: get t error -> ECONNREFUSED
a: close t -> 0
""",
    "called twice": """
a: socket t stream V -> 0
a: nonblock t -> 0
unplug
a: connect t B PORT -> EINPROGRESS
a: connect t B PORT -> EALREADY
a: events t -> none
a: send t 1 -> EAGAIN
a: recv t 1 -> EAGAIN
a: peer t -> ENOTCONN
plug
a: wait t OUT -> OUT
a: connect t B PORT -> 0
a: connect t B PORT -> EISCONN
a: peer t -> 0
""",
}

SCENES |= {
    "a call that failed": """
b: close l -> 0
a: socket t stream V -> 0
a: nonblock t -> 0
a: connect t B PORT -> EINPROGRESS
a: wait t HUP -> IN OUT ERR RDHUP HUP
a: connect t B PORT -> ECONNREFUSED
a: events t -> OUT HUP
a: recv t 1 -> ENOTCONN
a: send t 1 -> EPIPE
a: connect t B PORT -> EINPROGRESS
a: wait t HUP -> IN OUT ERR RDHUP HUP
a: get t error -> ECONNREFUSED
a: connect t B PORT -> ECONNABORTED
a: bind t A 0 -> 0
a: listen t 1 -> 0
a: socket u stream V -> 0
a: nonblock u -> 0
a: connect u B PORT -> EINPROGRESS
a: wait u HUP -> IN OUT ERR RDHUP HUP
a: listen u 1 -> EINVAL
a: bind u A 0 -> 0
a: bind u A 0 -> EINVAL
a: socket v stream V -> 0
a: bind v A OTHER -> 0
a: connect v B 1 -> ECONNREFUSED
a: bind v A OTHER -> EINVAL
a: listen v 1 -> 0
""",
    "a connection that is over": """
b: set s linger 0 -> 0
b: close s -> 0
a: wait s HUP -> IN OUT ERR RDHUP HUP
a: connect s B PORT -> EISCONN
a: get s error -> ECONNRESET
a: connect s B PORT -> EISCONN
a: listen s 1 -> EINVAL
a: bind s A 0 -> 0
""",
    "a connection that is given up": """
a: disconnect s -> 0
a: events s -> OUT ERR HUP
a: get s error -> ECONNRESET
a: send s 1 -> EPIPE
a: recv s 1 -> ENOTCONN
a: disconnect s -> 0
a: get s error -> 0
b: recv s 1 -> ECONNRESET
b: disconnect s -> 0
b: get s error -> 0
a: connect s B PORT -> 0
b: accept l t -> 0
a: send s 5 -> 5
b: recv t 5 -> 5
b: close t -> 0
a: wait s RDHUP -> IN OUT RDHUP
a: disconnect s -> 0
a: connect s B PORT -> 0
b: accept l t -> 0
""",
    "a listener that is given up": """
b: shutdown l write -> 0
a: socket t stream V -> 0
a: connect t B PORT -> 0
b: accept l t -> 0
b: shutdown l read -> 0
b: accept l u -> EINVAL
b: events l -> OUT HUP
b: get l accepts -> 0
a: socket u stream V -> 0
a: connect u B PORT -> ECONNREFUSED
b: listen l 5 -> 0
a: connect u B PORT -> 0
b: accept l u -> 0
b: disconnect l -> 0
a: socket v stream V -> 0
a: connect v B PORT -> ECONNREFUSED
a: send u 3 -> 3
b: recv u 3 -> 3
""",
    "a call that is given up": """
unplug
a: socket t stream V -> 0
a: nonblock t -> 0
a: connect t B PORT -> EINPROGRESS
a: shutdown t write -> 0
a: events t -> OUT ERR HUP
a: get t error -> ECONNRESET
a: connect t B PORT -> EINPROGRESS
a: disconnect t -> 0
a: get t error -> ECONNRESET
a: connect t B PORT -> EINPROGRESS
plug
a: wait t OUT -> OUT
a: connect t B PORT -> 0
b: accept l t -> 0
a: send t 2 -> 2
b: recv t 2 -> 2
""",
    "groups": """
a: socket t datagram V -> 0
a: bind t GROUP OTHER -> 0
a: socket u datagram V -> 0
a: bind u GROUP OTHER -> EADDRINUSE
a: set u reuse 1 -> 0
a: bind u GROUP OTHER -> EADDRINUSE
a: set t reuse 1 -> 0
a: bind u GROUP OTHER -> 0
a: bind u GROUP OTHER -> EINVAL
a: socket v datagram V -> 0
a: bind v ANY OTHER -> EADDRINUSE
a: bind v GROUP 0 -> 0
a: bind v GROUP 0 -> EINVAL
a: socket w datagram V -> 0
a: bind w A OTHER -> 0
""",
    "calls that are cut short": """
a: begin send s 50000000
b: recv s 1000000 -> 1000000
b: set s linger 0 -> 0
b: close s -> 0
a: end -> part
a: send s 1 -> ECONNRESET
a: send s 1 -> EPIPE
a: socket t stream V -> 0
a: connect t B PORT -> 0
b: accept l t -> 0
a: begin recv t 1000
b: send t 10 -> 10
b: set t linger 0 -> 0
b: close t -> 0
a: end -> 10
a: recv t 1 -> ECONNRESET
a: recv t 1 -> 0
""",
    "data with the SYN": """
b: set l fastopen 5 -> 0
a: socket t stream V -> 0
a: fast t B PORT 5 -> 5
b: accept l t -> 0
b: recv t 5 -> 5
a: socket u stream V -> 0
a: set u fastopen_connect 1 -> 0
a: nonblock u -> 0
a: connect u B PORT -> 0
a: connect u B PORT -> EISCONN
a: send u 5 -> 5
b: accept l u -> 0
b: recv u 5 -> 5
b: send u 1 -> 1
a: wait u IN -> IN OUT
a: connect u B PORT -> 0
a: connect u B PORT -> EISCONN
a: fast u B PORT 3 -> EISCONN
unplug
a: socket v stream V -> 0
a: nonblock v -> 0
a: connect v B PORT -> EINPROGRESS
a: fast v B PORT 1 -> EALREADY
plug
a: wait v OUT -> OUT
a: fast v B PORT 1 -> 1
a: fast v B PORT 1 -> EISCONN
""",
}

# Scenes without a cable, which two applications of one NI can also play.
LOCAL = {name: text for name, text in SCENES.items() if "unplug" not in text}

# Two connections each, idle for seconds: keep-alive probes one, and data goes out on the other.
SILENCE = """
b: accept l t -> 0
W: set s keepalive 1 -> 0
W: set s keepidle 1 -> 0
W: set s keepintvl 1 -> 0
W: set s keepcnt 2 -> 0
W: set t user_timeout 1500 -> 0
unplug
W: send t 10 -> 10
W: wait s HUP -> IN OUT ERR RDHUP HUP
W: recv s 1 -> ETIMEDOUT|EHOSTUNREACH
W: recv s 1 -> 0
W: send s 1 -> EPIPE
W: wait t HUP -> IN OUT ERR RDHUP HUP
W: send t 1 -> ETIMEDOUT|EHOSTUNREACH
W: send t 1 -> EPIPE
W: recv t 1 -> 0
plug
"""
CALL_T = """
a: socket t stream V -> 0
a: connect t B PORT -> 0
"""


class Play:
    """Two sides, and the scenes that they play."""
    port = 20_000

    def __init__(self, it, sides, cable):
        self.it, self.sides, self.cable = it, sides, cable

    def act(self, text, version):
        for line in filter(None, text.splitlines()):
            if line in ("plug", "unplug"):
                self.it.plug(self.cable, line == "plug")
                continue
            if line == "pause":
                time.sleep(0.4)
                continue
            side, _, rest = line.partition(": ")
            begins = rest.startswith("begin ")
            command, _, wanted = (rest.removeprefix("begin "), "", "") if begins else rest.rpartition(" -> ")
            words = {"V": version, "PORT": Play.port, "OTHER": Play.port + 5000, "GROUP": GROUPS[version],
                     "ANY": ANY[version], "A": self.sides["a"].addresses[version], "B": self.sides["b"].addresses[version]}
            command = " ".join(str(words.get(word, word)) for word in command.split())
            if begins:
                self.sides[side].begin(command)
                continue
            said = self.sides[side].line() if command == "end" else self.sides[side].does(command)
            require(said.isdigit() if wanted == "part" else said in wanted.split("|"), f"{line}: it says {said}")

    def scene(self, name, text, version):
        Play.port += 1
        try:
            self.act(text, version)
        except Failure as failure:
            raise Failure(f"{name}, by IPv{version}: {failure}") from None
        finally:
            self.it.plug(self.cable)
            for side in self.sides.values():
                side.does("forget")


def casts(it):
    """The sides a and b, and the one with the cable: ipstack and the kernel, in both roles, and two kernels."""
    yield "ours calls the kernel", it.ours, it.kernel, "b"
    yield "the kernel calls ours", it.kernel, it.ours, "b"
    yield "a kernel calls a kernel", lambda: it.kernel("c"), it.kernel, "b"


def play(scenes, cast=casts, near=False, wire=WIRE):
    """`near`: without TCP, over a local channel from one side to the other."""
    with stage(UNETD, SCRIPT, wire) as it:
        wrong = []
        for who, first, second, cable in cast(it):
            with first() as a, second() as b:
                for name, text in scenes.items():
                    for v in VERSIONS:
                        try:
                            before = [int(side.does("near")) for side in (a, b)]
                            Play(it, {"a": a, "b": b}, cable).scene(name, text, v)
                            used = [int(side.does("near")) - known for side, known in zip((a, b), before)]
                            require(all(used) if near else not any(used), f"{name}, by IPv{v}: {used} streams by a channel")
                        except Failure as failure:
                            wrong.append(f"{who}: {failure}")
        require(not wrong, "\n      ".join(wrong))
        looks_right(it.capture)


@beside
def test_beginnings_and_ends():
    play({name: OPEN + text for name, text in SCENES.items()})


def test_between_applications():
    play({name: OPEN + text for name, text in LOCAL.items()}, lambda it: [("ours calls ours", it.ours, it.ours, "b")], near=True)


@beside
def test_silence():
    """A side with its cable pulled hears nothing: in the end it gives up."""
    play({f"silence, heard by {who}": OPEN + CALL_T + SILENCE.replace("W:", f"{who}:") for who in "ab"})


def test_killed():
    """ipstack resets the connections of a killed application; the kernel closes them."""
    with stage(UNETD, SCRIPT) as it:
        for _, first, second, cable in list(casts(it))[:2]:
            for victim, other in (("a", "b"), ("b", "a")):
                for v in VERSIONS:
                    with first() as a, second() as b:
                        sides = {"a": a, "b": b}
                        Play.port += 1
                        Play(it, sides, cable).act(OPEN, v)
                        ours = sides[victim].process.args[-1] == "ours"
                        sides[victim].must("send s 10", "10")
                        sides[other].must("recv s 10", "10")
                        sides[victim].process.send_signal(signal.SIGKILL)
                        sides[other].must("wait s RDHUP", "IN OUT ERR RDHUP HUP" if ours else "IN OUT RDHUP")
                        sides[other].must("recv s 1", "ECONNRESET" if ours else "0")
        looks_right(it.capture)


if __name__ == "__main__":
    if not can_be_made():
        print("skipped: needs root and network namespaces")
        sys.exit(77)
    sys.exit(main(globals()))
