#!/usr/bin/env python3
# sockets_liars.py - processes with a common listener, by unet-sockets, one of which sends the other random messages: honest processes are
# served as before.
#
# Usage: sockets_liars.py UNETD UNET_SOCKETS          (77: no unet-sockets)
#        sockets_liars.py --peer SCENE ADDRESS        the server of a scene
#        sockets_liars.py --peer calls ADDRESS        its clients
import contextlib
import itertools
import os
import random
import resource
import select
import signal
import socket
import struct
import time

from daemon import beside, require, wait_until
from program_scenes import begin, tell
from sockets_forks import CALLS, PORT, calls, child, connected, descriptors, end_all, forever, hear, listener_at, play, say, serve

# ---- servers


def links():
    """The library's descriptors for messages to its parent process."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as each:
            if each.family == socket.AF_UNIX and each.type == socket.SOCK_SEQPACKET:
                yield each.detach()


def lies(address):
    """A child sends its parent random messages with descriptors of all kinds: clients are served as before."""
    listener = listener_at(address)
    ends = connected(address)  # the child inherits one end, and may ask for it
    ends[0].close()
    before = descriptors() - 1

    def tells():
        chance = random.Random(1)
        kinds = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 1 << 31]  # all but the one that confirms an accepted connection
        with open("/dev/null", "rb") as null, open(__file__, "rb") as file:
            things = [null.fileno(), file.fileno(), *os.pipe(), listener.fileno(), *(each.fileno() for each in socket.socketpair())]
            ends = list(links())
            require(ends, "there is no link")
            for fd in ends:
                link = socket.socket(fileno=fd)
                for _ in range(3000):
                    number = chance.choice([-1, 0, 1, 2, 3, 1 << 20])
                    left = struct.pack("Ii", 8, number) + os.urandom(36)  # with one end of a pair, it would be accepted
                    move = struct.pack("IiQ", chance.choice([10, 11]), number, chance.choice([0, time.monotonic_ns() + 10**9, 2**64 - 1]))
                    said = chance.choice([os.urandom(chance.randrange(1, 200)), struct.pack("Ii", chance.choice(kinds), number), left, move])
                    passed = chance.sample(things[:-2] if said == left else things, chance.randrange(3))
                    try:
                        socket.send_fds(link, [said], passed) if passed else link.send(said)
                    except BlockingIOError:
                        time.sleep(0.001)
        say("told")

    require(os.waitstatus_to_exitcode(os.waitpid(child(tells), 0)[1]) == 0, "the child cannot say it")
    ends[1].close()
    pids = [child(forever, listener)]
    hear("served")
    end_all(pids)
    wait_until(lambda: descriptors() <= before, "descriptors are left")
    say("done")


def hoards(address):
    """A child passes forged connections to its parent, requests them back, and answers nothing: the parent still has free descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
    listener = listener_at(address)
    before = descriptors()

    def leaves_many():
        ends = [socket.socket(fileno=fd) for fd in links()]
        for i in range(2000):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                for number, link in itertools.product(range(4), ends):
                    wait_until(lambda link=link: select.select([], [link], [], 0)[1], "the parent does not listen")
                    link.send(struct.pack("Ii", 4, number))
                    socket.send_fds(link, [struct.pack("Ii", 8, number) + os.urandom(36)], [theirs.fileno()])
        say("told")
        signal.pause()

    def serves():
        while True:
            with contextlib.suppress(OSError):  # a forged connection has no other end
                serve(listener)

    pids = [child(leaves_many)]
    hear("look")
    with contextlib.ExitStack() as files:
        for _ in range(100):
            files.enter_context(open("/dev/null", "rb"))
    pids.append(child(serves))
    hear("served")
    end_all(pids)
    wait_until(lambda: descriptors() <= before, "descriptors are left")
    say("done")


def is_lied_to(address):
    """Receives a forged listener. The forger then passes descriptors that are no connections, again and again; the process serves it
    anyway."""
    over, theirs = socket.socketpair()
    made_up, link = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.bind("\0unet-link,12345678,")
    made_up.send(f"{int(':' in address)},1,64,12345678901,0,0,{PORT},{address},0,{'::' if ':' in address else '0.0.0.0'}@5".encode())
    socket.send_fds(over, [b"x"], [link.fileno()])
    link.close()
    (fd,) = socket.recv_fds(theirs, 1, 1)[1]
    listener = socket.socket(fileno=fd)
    require(listener.getsockname()[:2] == (address, PORT), f"what was passed is none: {listener}")
    listener.settimeout(0.1)
    with contextlib.suppress(TimeoutError):  # starts to listen
        listener.accept()
    say("ready")
    hear("called")
    with open("/dev/null", "rb") as null:
        for i in range(200):
            said = struct.pack("Iiii", 0 if i % 8 else i, 5 if i % 5 else i, i - 100, i) + os.urandom(36 if i % 4 else i)
            socket.send_fds(made_up, [said], [null.fileno()])
    made_up.shutdown(socket.SHUT_RD)
    served = 0
    while served < CALLS:
        try:
            stream, _ = listener.accept()
            with stream:
                line = stream.makefile("rb").readline()
                stream.sendall(b"served " + line)
                served += 1
        except OSError:  # /dev/null is not a socket
            continue
    hear("served")
    say("done")


PEERS = {each.__name__: each for each in (lies, hoards, is_lied_to, calls)}


# ---- the test


@beside
def test_lies():
    def told(server):
        require(server.lines.next() == "told", "the child")

    play("lies", told)


@beside
def test_hoards():
    def told(server):
        require(server.lines.next() == "told", "the child")
        tell(server, "look")

    play("hoards", told)


def test_what_is_passed():
    play("is_lied_to")


if __name__ == "__main__":
    begin(PEERS, globals())
