#!/usr/bin/env python3
# unetcat.py - unetcat between shells and hosts: both directions, ends in every order, slow and broken readers, deaths, refusals, liars.
#
# Usage: unetcat.py UNETD UNETCAT UNETCAT_LIAR
import contextlib
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time

from daemon import WAIT, Unetd, directory, main, one_line, require, wait_until

UNETD, UNETCAT, LIAR = (os.path.abspath(p) for p in sys.argv[1:4])
MIB = 1024 * 1024
IMPAIRED = "faulty:loss=3%,duplicate=1%,reorder=2%,corrupt=1%,seed={} / "


class Cat:
    """A process of unetcat; killed at the end."""

    def __init__(self, path, *args, program=(UNETCAT,), stdin=subprocess.PIPE, stdout=subprocess.PIPE):
        self.process = subprocess.Popen([*program, *args], env=os.environ | {"UNET_NI": "unix:" + path}, stdin=stdin, stdout=stdout,
                                        stderr=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self, data=None):
        """Its status, its output, and its errors, after `data` and the end of its input."""
        out, err = self.process.communicate(data, timeout=WAIT)
        return self.process.returncode, out, err.decode()

    def good(self, data=None):
        status, out, err = self.end(data)
        require(status == 0, f"status {status}: {err}")
        return out, err

    def bad(self, *parts, status=1):
        found, _, err = self.end()
        require(found == status, f"status {found}, not {status}: {err}")
        one_line(err, "unetcat", *parts)

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def end_input(self):
        self.process.stdin.close()
        self.process.stdin = None

    def read(self, size):
        return self.process.stdout.read(size)

    def line(self):
        return self.process.stderr.readline().decode()


@contextlib.contextmanager
def ni():
    with directory() as d, Unetd(UNETD, "--socket", d + "/s", "--log", "warning"):
        yield d + "/s"


@contextlib.contextmanager
def two(path, there=None, listen=(), call=(), target="cat", **streams):
    """A side that listens and one that calls it."""
    with Cat(path, "-l", "cat", *listen, **streams) as server, Cat(there or path, target, *call) as client:
        yield server, client


def file_with(path, data):
    with open(path, "wb") as file:
        file.write(data)
    return open(path, "rb")


def both_ways(path, there=None, target="cat", sizes=((0, 0), (1, 0), (0, 16385), (70_000, 1), (5 * MIB + 3, 3 * MIB + 1))):
    """Different bytes in each direction at once; each side compares digests."""
    for to_server, to_client in sizes:
        with directory() as d:
            bytes_of = {"server": os.urandom(to_client), "client": os.urandom(to_server)}
            inputs = {who: file_with(f"{d}/{who}", data) for who, data in bytes_of.items()}
            with inputs["server"], inputs["client"], open(d + "/out", "wb") as out:
                with Cat(path, "-l", "cat", "--hash", "-v", stdin=inputs["server"], stdout=out) as server:
                    with Cat(there or path, target, "--hash", stdin=inputs["client"]) as client:
                        got, err = client.good()
                        _, said = server.good()
            require(got == bytes_of["server"], f"{to_client} bytes to the client are others")
            with open(d + "/out", "rb") as out:
                require(out.read() == bytes_of["client"], f"{to_server} bytes to the server are others")
        words = re.search(r"sent crc32c (\S+), received crc32c (\S+)", err)
        require(f"sent crc32c {words[2]}, received crc32c {words[1]}" in said, f"digests: {err!r} {said!r}")
        require(f"{to_client} bytes sent, {to_server} received in " in said, f"no totals: {said!r}")


def killed(path, there=None, target="cat"):
    """Either side is killed in the middle of a transfer that neither has ended."""
    for victim in (0, 1):
        with two(path, there, target=target) as sides:
            for each in sides:
                each.write(b"here")
            for each in sides:
                require(each.read(4) == b"here", "no bytes before the end")
            sides[victim].process.kill()
            sides[1 - victim].bad("the peer has died" if there is None else "the peer has", "4 bytes were sent and 4 received")


def test_local():
    with ni() as path:
        both_ways(path)
        killed(path)


def test_wire_that_loses():
    with directory() as d, contextlib.ExitStack() as stack:
        paths = [d + "/alpha", d + "/beta"]
        for number, path in enumerate(paths):
            wire = f"dpdk:net_memif0,socket={d}/memif,role={'server' if number == 0 else 'client'}"
            args = ["--socket", path, "--host", os.path.basename(path), "--port", IMPAIRED.format(number + 1) + wire, "--log", "error"]
            daemon = stack.enter_context(Unetd(UNETD, *args))
        both_ways(paths[0], paths[1], "cat@alpha")
        killed(paths[0], paths[1], "cat@alpha")
        with Cat(paths[1], "-w", "0", "none@alpha") as client:
            client.bad("no endpoint is bound to the name 'none' on host 'alpha'")
        with two(paths[0], paths[1], target="cat@alpha") as (server, client):
            server.write(b"x")
            require(client.read(1) == b"x", "no byte over the wire")
            daemon.process.kill()
            client.bad("the network interface")
            server.bad("the wire to the peer is lost")


def test_ends():
    """Each direction ends for itself. A reader sees the end of its direction while the other one goes on."""
    with ni() as path:
        for first in (0, 1):
            with two(path) as sides:
                one, other = sides[first], sides[1 - first]
                one.write(b"a")
                one.end_input()
                require(other.read(-1) == b"a", "the end did not arrive")
                other.write(b"later")
                require(one.read(5) == b"later", "the other direction ended, too")
                require(other.good()[0] == b"" and one.good()[0] == b"", "more than was sent")
        with two(path, call=["--send-only"]) as (server, client):
            client.good(b"one way")
            require(server.read(-1) == b"one way", "one way")
            server.good()  # its input has not ended
        with two(path, listen=["--recv-only"], call=["-n", "3"]) as (server, client):
            client.write(b"12345")
            client.good()
            require(server.good()[0] == b"123", "other bytes than the first three")
        with two(path, listen=["--recv-only"], call=["--recv-only"]) as (server, client):
            require(server.good()[0] == b"" and client.good()[0] == b"", "bytes from nowhere")


def test_descriptors():
    """Standard input and output of every kind."""
    with ni() as path:
        with open("/dev/null", "rb") as nothing, two(path, stdin=nothing) as (server, client):
            client.good(b"to one with an empty input")
            require(server.good()[0] == b"to one with an empty input", "/dev/null")
        with two(path, program=("sh", "-c", 'exec "$0" "$@" <&-', UNETCAT)) as (server, client):
            client.good(b"to one without an input")
            require(server.good()[0] == b"to one without an input", "closed input")
        with two(path, program=("sh", "-c", 'exec "$0" "$@" >&-', UNETCAT)) as (server, client):
            client.write(b"to one without an output")
            server.bad("standard output", "Bad file descriptor")
            client.bad("the peer gives up: it cannot write its standard output")
        here, there = socket.socketpair()
        with here, there, two(path, stdin=there, stdout=there) as (server, client):
            client.write(b"to a socket")
            require(here.recv(100) == b"to a socket", "a socket as output")
            here.sendall(b"from a socket")
            require(client.read(13) == b"from a socket", "a socket as input")
        ours, theirs = pty.openpty()
        with two(path, stdin=theirs, stdout=theirs) as (server, client):
            os.write(ours, b"typed\n")
            require(client.read(6) == b"typed\n", "a terminal as input")
            require(os.get_blocking(theirs), "other processes of the terminal do not wait any more")
            os.write(ours, b"\x04")
            require(client.read(-1) == b"", "the end of a terminal's input")
        os.close(ours)
        os.close(theirs)


def test_slow_reader():
    """At most a window and two pipes lie between the two; the rest stays in the file."""
    with ni() as path, directory() as d:
        data = os.urandom(16 * MIB)
        with file_with(d + "/in", data) as file, Cat(path, "-l", "cat") as server, Cat(path, "cat", stdin=file) as client:
            server.end_input()
            wait_until(lambda: file.seek(0, os.SEEK_CUR) > MIB, "nothing is sent")
            time.sleep(0.5)
            at = file.seek(0, os.SEEK_CUR)
            require(at <= 3 * MIB, f"{at} bytes are sent without a reader")
            with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as stat:
                used = sum(map(int, stat.read().rpartition(")")[2].split()[11:13]))
            require(used < os.sysconf("SC_CLK_TCK") / 3, f"a sleeping receiver used {used} ticks")
            require(server.good()[0] == data, "other bytes")
            client.good()


def test_broken_reader():
    with ni() as path, open("/dev/zero", "rb") as zero, Cat(path, "-l", "cat") as server, Cat(path, "cat", stdin=zero) as client:
        require(server.read(1000) == bytes(1000), "no zeroes")
        server.process.stdout.close()
        server.process.stdout = None
        server.bad("standard output was closed by its reader")
        client.bad("the peer gives up: it cannot write its standard output")
    with ni() as path, open("/dev/full", "wb") as full, two(path, stdout=full) as (server, client):
        client.write(b"x")
        server.bad("standard output: No space left on device")
        client.bad("it cannot write its standard output")
    with ni() as path, directory() as d:
        nothing = os.open(d, os.O_RDONLY)
        with two(path, stdin=nothing) as (server, client):
            server.bad("standard input: Is a directory")
            client.bad("it cannot read its standard input")
        os.close(nothing)


def test_signals():
    with ni() as path:
        for number in (signal.SIGINT, signal.SIGTERM):
            with two(path) as (server, client):
                server.write(b"x")
                require(client.read(1) == b"x", "no byte")
                client.process.send_signal(number)
                client.bad("ended by " + number.name[3:], status=-number)
                server.bad("the peer gives up: it was interrupted")
        with Cat(path, "-l", "cat", "-v") as server:
            require("listening at cat" in server.line(), "does not listen")
            server.process.send_signal(signal.SIGTERM)
            server.bad("ended by TERM", status=-signal.SIGTERM)


def test_keep():
    """One peer after the other, also after one that dies. Another one is refused meanwhile, or waits."""
    with ni() as path, Cat(path, "-lk", "cat") as server:
        server.end_input()
        with Cat(path, "cat") as client:
            client.write(b"one ")
            require(server.read(4) == b"one ", "the first")
            with Cat(path, "-w", "0", "cat") as second:
                second.bad("'cat' refuses: it serves another peer")
            with Cat(path, "cat") as third:
                third.write(b"three ")
                time.sleep(0.2)
                client.good()
                require(server.read(6) == b"three ", "the one that waited")
                third.process.kill()
        require("the peer has died" in server.line(), "a death is not told")
        with Cat(path, "cat") as client:
            client.good(b"four")
            require(server.read(4) == b"four", "after a death")
        server.process.terminate()
        require(server.end()[0] == -signal.SIGTERM, "SIGTERM does not end it")


def test_keep_with_a_slow_reader():
    """What a dead peer has left is written before the next peer is served, and without one."""
    with ni() as path, Cat(path, "-lk", "cat") as server:
        server.end_input()
        with Cat(path, "cat") as client:
            client.write(bytes(600_000))
            require(server.read(1) == b"\0", "no byte")
            time.sleep(0.5)  # the server has the rest, and its pipe is full
            client.process.kill()
        require("the peer has died" in server.line(), "a death is not told")
        with Cat(path, "cat") as client:
            client.write(b"next")
            client.end_input()
            require(server.read(599_999) == bytes(599_999), "bytes of the dead peer are lost")
            require(server.read(4) == b"next", "the next peer is not served")
            client.good()


def test_keep_ends_without_peers():
    with ni() as path, Cat(path, "-lk", "-w", "0.5", "cat") as server:
        with Cat(path, "cat") as client:
            server.end_input()
            client.good(b"one")
        began = time.monotonic()
        server.bad("nothing has connected to 'cat' within 0.5 s")
        require(time.monotonic() - began < 5, "it waits for ever")


def test_nothing_there():
    with directory() as d, Cat(d + "/none", "cat") as client:
        client.bad("no network interface listens at")
    with ni() as path:
        with Cat(path, "-w", "0", "cat") as client:
            client.bad("no endpoint is bound to the name 'cat'")
        with Cat(path, "-w", "0.3", "cat") as client:
            client.bad("no endpoint is bound to the name 'cat'", "(waited for 0.3 s)")
        with Cat(path, "-w", "0", "cat@nowhere") as client:
            client.bad("nowhere")
        with Cat(path, "-l", "-w", "0.2", "cat") as server:
            server.bad("nothing has connected to 'cat' within 0.2 s")
        with Cat(path, "-lv", "cat") as server:
            require("listening at cat" in server.line(), "does not listen")
            with Cat(path, "-l", "cat") as second:
                second.bad("'cat'")
    with directory() as d, Unetd(UNETD, "--socket", d + "/s", "--log", "error") as daemon:
        with two(d + "/s") as (server, client):
            server.write(b"x")
            require(client.read(1) == b"x", "no byte")
            daemon.process.kill()
            server.bad("the network interface is gone")
            client.bad("the ")


def test_wrong_arguments():
    for args, parts in (([], ["name"]), (["-k", "a"], ["--keep", "--listen"]), (["--send-only", "--recv-only", "a"], ["excludes"]),
                        (["-w", "-1", "a"], ["--wait"]), (["-n", "x", "a"], ["--bytes"]), (["-l", "a b"], ["'a b' is no name"]),
                        (["a", "b"], ["b"]), (["--loud", "a"], ["--loud"])):
        with Cat("/none", *args) as cat:
            cat.bad(*parts, "unetcat --help", status=2)


def test_liars():
    """A peer that breaks the protocol ends the transfer with a sentence; one that is not the peer changes nothing."""
    lies = {
        "window": "more data than it may send", "order": "data out of order", "late": "data after its end", "total": "an end after another number",
        "ends": "a second end", "grant": "a grant of room that it cannot have", "done": "a confirmation of bytes that were not sent",
        "hello": "a second hello", "heard": "an answer to a hello that was not sent",
    }
    with ni() as path:
        for lie, text in lies.items():
            with Cat(path, "-l", "cat") as server, Cat(path, "cat", lie, program=(LIAR,)) as liar:
                server.process.wait(WAIT)  # its input has not ended, and its output has no reader
                server.bad("the peer broke the protocol: " + text)
                liar.good()
        with Cat(path, "-l", "--send-only", "cat") as server, Cat(path, "cat", "order", program=(LIAR,)) as liar:
            server.bad("data that is not wanted")
            liar.good()
        with Cat(path, "-l", "--hash", "cat") as server, Cat(path, "cat", "digest", program=(LIAR,)) as liar:
            server.bad("the digest of what was received is another one")
            liar.good()
        with Cat(path, "-l", "cat") as server, Cat(path, "cat", "version", program=(LIAR,)) as liar:
            require("refusal 2" in liar.good()[0].decode(), "another version is taken")
            with Cat(path, "cat", "strange", program=(LIAR,)) as stranger:  # every message, without a hello
                stranger.good()
                server.end_input()
                with Cat(path, "cat") as client:
                    client.good(b"unharmed")
            require(server.good()[0] == b"unharmed", "a stranger did harm")
        with Cat(path, "cat", "silent", program=(LIAR,)) as liar:  # binds the name, and answers nothing
            require(liar.read(6) == b"ready\n", "the liar does not listen")
            with Cat(path, "cat") as client:
                client.bad("the peer is no unetcat")
            liar.process.kill()
        with Cat(path, "cat", "deserter", program=(LIAR,)) as liar:
            require(liar.read(6) == b"ready\n", "the liar does not listen")
            with Cat(path, "cat") as client:
                began = time.monotonic()
                client.bad("the peer has", "0 bytes were sent and 0 received")
                require(time.monotonic() - began < 5, "a channel that closes after the hello is noticed late")


sys.exit(main(globals()))
