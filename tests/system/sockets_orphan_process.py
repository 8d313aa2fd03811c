#!/usr/bin/env python3
# sockets_orphan_process.py - a program of unet-sockets calls exec() with an open connection: an orphan process goes on with the connection,
# has nothing else of the program, and exits when it is no longer needed.
#
# Usage: sockets_orphan_process.py UNETD UNET_SOCKETS        (77: no unet-sockets)
#        sockets_orphan_process.py --peer SCENE ADDRESS      the programs
import contextlib
import os
import signal
import socket
import sys
import threading
import time

from daemon import WAIT, beside, directory, require, wait_until
from ip_spaces import OURS
from program_scenes import begin, begun, network_interface

UNETD, UNET_SOCKETS = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")
PORT = 8830


def say(text):
    os.write(1, f"{text}\n".encode())


def server(address):
    """Prints what its one client sends, and how the connection ends."""
    with socket.create_server((address, PORT)) as listener:
        say("ready")
        stream, _ = listener.accept()
        with stream:
            stream.sendall(b"hello\n")
            say("accepted")
            try:
                say(f"ended after {len(stream.recv(100))}")
            except ConnectionResetError:
                say("reset")


def client(address):
    """Executes cat, which copies what the server sends until the end."""
    with socket.create_connection((address, PORT)) as stream:
        os.dup2(stream.fileno(), 0)
    os.execvp("cat", ["cat"])


def stalls(address):
    """Reads nothing of what its client sends."""
    with socket.create_server((address, PORT)) as listener:
        say("ready")
        stream, _ = listener.accept()
        say("accepted")
        signal.pause()
        stream.close()


def pours(address):
    """Executes a program that writes for ever; data that its server has not read stays behind."""
    with socket.create_connection((address, PORT)) as stream:
        os.dup2(stream.fileno(), 1)
    os.execvp("cat", ["cat", "/dev/zero"])


def ends_while_it_waits(address):
    """A thread waits for its server while the process exits."""
    stream = socket.create_connection((address, PORT))
    threading.Thread(target=stream.recv, args=(100,), daemon=True).start()
    threading.Thread(target=lambda: (stream.recv(100), stream.recv(100)), daemon=True).start()
    time.sleep(0.1)
    os._exit(0)


PEERS = {each.__name__: each for each in (server, client, stalls, pours, ends_while_it_waits)}


def orphans(d):
    """The orphan processes of programs on this directory's NI, found by their environment; zombies have none."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as name, open(f"/proc/{pid}/environ", "rb") as all_of_it:
            if name.read() == "unet-sockets\n" and f"UNET_SOCKET={d}/s".encode() in all_of_it.read().split(b"\0"):
                yield int(pid)


@contextlib.contextmanager
def kept(d):
    """The server, the client that has become cat, and its orphan process."""
    with begun(UNET_SOCKETS, d, "server", OURS[4]) as called:
        require(called.lines.next() == "ready", "the server")
        with begun(UNET_SOCKETS, d, "client", OURS[4]) as cat:
            require(cat.lines.next() == "hello" and called.lines.next() == "accepted", "the client")
            (orphan,) = orphans(d)
            yield called, cat, orphan


@beside
def test_it_has_nothing_of_the_program_and_goes_with_it():
    with directory() as d, network_interface(UNETD, d), kept(d) as (called, cat, orphan):
        require(os.getsid(orphan) == orphan != os.getsid(cat.pid), "it has the program's terminal")
        files = {fd: os.readlink(f"/proc/{orphan}/fd/{fd}") for fd in os.listdir(f"/proc/{orphan}/fd")}
        theirs = {fd: file for fd, file in files.items() if int(fd) < 900 and file != "/dev/null"}
        require(not theirs, f"it has files of the program's: {theirs}")
        os.kill(orphan, signal.SIGTERM)  # as at the end of a login session
        os.kill(cat.pid, signal.SIGKILL)
        require(called.lines.next() == "ended after 0", "the server is not told")
        wait_until(lambda: not list(orphans(d)), "an orphan process is left")


@beside
def test_it_goes_with_the_network_interface():
    with directory() as d, network_interface(UNETD, d) as daemon, kept(d) as (called, cat, _):
        daemon.process.kill()
        require(called.lines.next() == "reset", "the server is not told")
        require(cat.wait() == 0, "the program is not told")
        wait_until(lambda: not list(orphans(d)), "an orphan process is left")


def processor_time(pid):
    """Processor time in clock ticks."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))


def written(pid):
    with open(f"/proc/{pid}/io", encoding="utf-8") as file:
        return int(dict(line.split(": ") for line in file)["wchar"])


@beside
def test_a_thread_that_waits_needs_none():
    with directory() as d, network_interface(UNETD, d), begun(UNET_SOCKETS, d, "server", OURS[4]) as called:
        require(called.lines.next() == "ready", "the server")
        with begun(UNET_SOCKETS, d, "ends_while_it_waits", OURS[4]) as waits:
            require(called.lines.next() == "accepted", "the client")
            require(waits.wait(WAIT) == 0, "the client does not end well")
            require(not list(orphans(d)), "it leaves an orphan process")
            require(called.lines.next() == "ended after 0", "the server is not told")


@beside
def test_it_sleeps_while_a_peer_takes_nothing():
    with directory() as d, network_interface(UNETD, d), begun(UNET_SOCKETS, d, "stalls", OURS[4]) as called:
        require(called.lines.next() == "ready", "the server")
        with begun(UNET_SOCKETS, d, "pours", OURS[4]) as poured:
            require(called.lines.next() == "accepted", "the client")
            wait_until(lambda: written(poured.pid) > 200_000, "it does not write")
        (orphan,) = orphans(d)
        before = processor_time(orphan)
        time.sleep(1)
        spent = (processor_time(orphan) - before) / os.sysconf("SC_CLK_TCK")
        require(spent < 0.2, f"it spins: {spent} s of a second")
        called.kill()
        wait_until(lambda: not list(orphans(d)), "an orphan process is left")


if __name__ == "__main__":
    begin(PEERS, globals())
