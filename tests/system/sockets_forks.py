#!/usr/bin/env python3
# sockets_forks.py - connections that reach a listener before a process accepts them, by unet-sockets. Children, grandchildren, a program
# that a child executes, and successors of a killed process get them, with all data, and lose none when the process ends.
#
# Usage: sockets_forks.py UNETD UNET_SOCKETS          (77: no unet-sockets)
#        sockets_forks.py --peer SCENE ADDRESS        the server of a scene
#        sockets_forks.py --peer calls ADDRESS        its clients
import contextlib
import os
import select
import signal
import socket
import sys
import time

from daemon import WAIT, directory, require, run, wait_until
from ip_spaces import OURS, VERSIONS
from program_scenes import begin, begun, environment, network_interface, tell

UNETD, UNET_SOCKETS = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) == 3 else ("", "")
PORT, CALLS = 8400, 12
SOON = 20  # seconds: after that an event is taken not to happen


# ---- servers


def say(text):
    os.write(1, f"{text}\n".encode())


def hear(wanted):
    require(sys.stdin.readline().strip() == wanted, f"no '{wanted}'")


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def listener_at(address):
    """Until all clients have called."""
    listener = socket.create_server((address, PORT), family=family_of(address), backlog=64)
    say("ready")
    hear("called")
    return listener


def connected(address):
    with socket.create_server((address, PORT + 1), family=family_of(address)) as listener:
        one = socket.create_connection((address, PORT + 1))
        two, _ = listener.accept()
    one.settimeout(WAIT)
    two.settimeout(WAIT)
    return one, two


def serve(listener):
    """Answers one client; meanwhile no other process accepts its connections."""
    stream, _ = listener.accept()
    with stream:
        line = stream.makefile("rb").readline()
        stream.sendall(b"served " + line)


def child(work, *args):
    pid = os.fork()
    if pid == 0:
        os._exit(work(*args) or 0)
    return pid


def forever(listener):
    while True:
        serve(listener)


def end_all(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def workers(address):
    """Three children accept connections that came before them. No descriptor is left behind."""
    listener = listener_at(address)
    before = descriptors()
    pids = [child(forever, listener) for _ in range(3)]
    hear("served")
    end_all(pids)
    wait_until(lambda: descriptors() <= before, "descriptors are left")
    say("done")


def looks(listener):
    """Waits for connections, and accepts none."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    require(poll.poll(1000 * WAIT), "no connection is handed over")
    say("seen")
    signal.pause()


def killed(address):
    """A worker that has seen a connection is killed: another gets it. Later a worker is killed in the middle of its work."""
    listener = listener_at(address)
    pid = child(looks, listener)
    hear("kill")
    end_all([pid])
    for _ in range(2):
        child(serve, listener)
        os.wait()
    pids = [child(forever, listener) for _ in range(2)]
    hear("served")
    end_all(pids)
    say("done")


def leaves(address, at_end=False):
    """A process that closes the listener, or exits, leaves its unaccepted connections to others; so does one that was passed some of
    these."""
    listener = socket.create_server((address, PORT), family=family_of(address), backlog=64)
    goes_on, go = os.pipe()

    def looks_and_leaves():
        select.select([listener], [], [], 0)
        say("ready")
        os.read(goes_on, 1)
        if not at_end:
            listener.close()
            signal.pause()

    pids = [child(looks_and_leaves)]
    hear("called")
    os.write(go, b"x")
    os.waitpid(child(lambda: select.select([listener], [], []) and None), 0)
    pids.append(child(forever, listener))
    hear("served")
    end_all(pids)
    say("done")


def leaves_at_end(address):
    leaves(address, True)


def slow(address):
    """A busy process keeps no unaccepted connection from idle ones."""
    listener = listener_at(address)
    goes_on, go = os.pipe()

    def answers_late():
        stream, _ = listener.accept()
        say("busy")
        os.read(goes_on, 1)
        stream.sendall(b"served " + stream.makefile("rb").readline())

    first = child(answers_late)
    hear("begin")
    for _ in range(CALLS - 1):
        os.waitpid(child(serve, listener), 0)
    os.write(go, b"x")
    os.waitpid(first, 0)
    hear("served")
    say("done")


def ends(address, at_once=False):
    """The parent exits; its grandchild serves, after a while."""
    listener = listener_at(address)
    if at_once:
        require(select.select([listener], [], [], WAIT)[0], "nobody has called")

    def late():
        time.sleep(0.5)
        for _ in range(CALLS):
            serve(listener)
        say("done")

    def session():
        os.setsid()
        child(late)

    os.waitpid(child(child, session), 0)
    if at_once:
        os._exit(0)  # with the listener open


def ends_at_once(address):
    ends(address, True)


def grandchildren(address):
    """Their parent never used the listener or a connection, and exits before they do."""
    one, two = connected(address)
    listener = listener_at(address)

    def begin():
        child(two.sendall, b"by a grandchild")
        for _ in range(2):
            child(forever, listener)

    os.waitpid(child(begin), 0)
    two.close()
    require(one.recv(15, socket.MSG_WAITALL) == b"by a grandchild", "the connection")
    hear("served")
    say("done")


def becomes(address):
    """A child executes a program, and a child of that program serves. They have nothing else of their parent."""
    one, two = connected(address)
    listener = listener_at(address)
    listener.set_inheritable(True)

    def program():
        os.execv(sys.executable, [sys.executable, __file__, "--peer", "began", str(listener.fileno())])

    pid = child(program)
    hear("served")
    one.close()
    require(two.recv(1) == b"", "what the program does not have is open")
    end_all([pid])
    say("done")


def began(fd):
    listener = socket.socket(fileno=int(fd))
    child(forever, listener)
    signal.pause()


def binds(address):
    """A bound socket can become a listener in a program that a child executes, and in one that it spawns."""
    bound = [socket.socket(family_of(address)) for _ in range(2)]
    for i, each in enumerate(bound):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind((address, PORT + i))
        each.set_inheritable(True)
    os.posix_spawn(sys.executable, [sys.executable, __file__, "--peer", "listens", str(bound[1].fileno()), "one"], os.environ)
    with contextlib.closing(late_connection(address, PORT + 1)) as one:
        require(one.recv(3, socket.MSG_WAITALL) == b"one", "a program that was begun")
    os.wait()
    os.execv(sys.executable, [sys.executable, __file__, "--peer", "listens", str(bound[0].fileno())])


def late_connection(address, port):
    """Retries until the listener is there."""
    streams = []

    def calls_it():
        streams.append(socket.socket(family_of(address)))
        return streams[-1].connect_ex((address, port)) == 0

    wait_until(calls_it, "nobody listens")
    streams[-1].settimeout(WAIT)
    return streams[-1]


def listens(fd, text=None):
    listener = socket.socket(fileno=int(fd))
    listener.listen(64)
    if text is not None:
        listener.accept()[0].sendall(text.encode())
        return
    say("ready")
    hear("called")
    pids = [child(forever, listener)]
    hear("served")
    end_all(pids)
    say("done")


def jailed(address):
    """A child calls chroot() before it first uses the listener."""
    listener = listener_at(address)

    def serves():
        os.chroot(os.path.dirname(os.environ["UNET_SOCKET"]) + "/jail")
        os.chdir("/")
        forever(listener)

    pids = [child(serves)]
    hear("served")
    end_all(pids)
    say("done")


def many(address):
    """A process with more passed listeners than share channels has a child that uses its connections."""
    over, theirs = socket.socketpair()

    def reads(stream):
        stream.settimeout(SOON)
        require(stream.recv(1) == b"x", "what came for the child")

    def has_many():
        listeners = [socket.socket(fileno=socket.recv_fds(theirs, 1, 1)[1][0]) for _ in range(CALLS)]
        one, two = connected(address)
        pid = child(reads, two)
        one.sendall(b"x")
        require(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 and len(listeners) == CALLS, "its child")

    pid = child(has_many)
    listener = listener_at(address)
    for i in range(CALLS):
        with socket.create_server((address, PORT + 2 + i), family=family_of(address)) as each:
            socket.send_fds(over, [b"x"], [each.fileno()])
    require(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child")
    pids = [child(forever, listener)]
    hear("served")
    end_all(pids)
    say("done")


def busy(address):
    """The parent has polled for connections, but its child accepts them."""
    listener = listener_at(address)
    require(select.select([listener], [], [], WAIT)[0], "nobody has called")
    pids = [child(forever, listener)]
    hear("served")
    end_all(pids)
    say("done")


def loses(address):
    """Waits until the NI has gone."""
    one, _ = connected(address)
    say("ready")
    hear("gone")
    with contextlib.suppress(ConnectionResetError):
        one.recv(1)
        raise AssertionError("the connection goes on")
    one.close()


def away(address):
    """A child forked while the NI was away carries its own child's connection once the NI is back."""

    def carries():
        hear("back")
        one, two = connected(address)
        one.sendall(b"x")

        def reads():
            two.settimeout(SOON)
            require(two.recv(1) == b"x", "what the child had sent")

        require(os.waitstatus_to_exitcode(os.waitpid(child(reads), 0)[1]) == 0, "its child")

    loses(address)
    pid = child(carries)
    say("away")
    require(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child")
    say("done")


def waits_back(address):
    """Children that first wait on their parent's listeners while the NI is away serve them when it is back."""
    listeners = [socket.create_server((address, PORT + 2 * i), family=family_of(address)) for i in range(3)]
    epoll = select.epoll()
    epoll.register(listeners[2], select.EPOLLIN)
    goes_on, go = os.pipe()

    def accepts(i):
        os.read(goes_on, 1)
        if i == 1:
            select.select([listeners[1]], [], [])
        if i == 2:
            require(epoll.poll() == [(listeners[2].fileno(), select.EPOLLIN)], "epoll")
        serve(listeners[i])

    def calls_late():
        for i in range(3):
            with late_connection(address, PORT + 2 * i) as stream:
                stream.settimeout(SOON)
                stream.sendall(b"call\n")
                require(stream.makefile("rb").readline() == b"served call\n", f"what serves {i}")

    pids = [child(accepts, i) for i in range(3)]
    loses(address)
    os.write(go, b"go!")  # a byte for each
    time.sleep(0.2)
    say("away")
    hear("back")
    require(os.waitstatus_to_exitcode(os.waitpid(child(calls_late), 0)[1]) == 0, "a client")
    for pid in pids:
        os.waitpid(pid, 0)
    say("done")


# ---- their clients


def calls(address):
    streams = []
    for i in range(CALLS):
        stream = socket.create_connection((address, PORT), timeout=WAIT)
        stream.sendall(b"call %d\n" % i)
        streams.append(stream)
    say("called")
    answers = [stream.makefile("rb").read() for stream in streams]
    wrong = [(i, answer) for i, answer in enumerate(answers) if answer != b"served call %d\n" % i]
    say(f"wrong {wrong}" if wrong else "served")


PEERS = {each.__name__: each for each in (workers, killed, leaves, leaves_at_end, slow, ends, ends_at_once, grandchildren, becomes, began,
                                           binds, listens, jailed, many, busy, away, waits_back, calls)}


# ---- the test


def play(scene, between=lambda server: None):
    for v in VERSIONS:
        with directory() as d, network_interface(UNETD, d):
            os.mkdir(f"{d}/jail")
            with begun(UNET_SOCKETS, d, scene, OURS[v]) as server:
                require(server.lines.next() == "ready", "the server")
                with begun(UNET_SOCKETS, d, "calls", OURS[v]) as clients:
                    require(clients.lines.next() == "called", "the clients")
                    tell(server, "called")
                    between(server)
                    said = clients.lines.next()
                    require(said == "served", f"{scene}, IPv{v}: {said}")
                if not scene.startswith("ends"):
                    tell(server, "served")
                require(server.lines.next() == "done", f"{scene}, IPv{v}: the server")
                require(server.wait(WAIT) == 0, f"{scene}, IPv{v}: the server ended with {server.returncode}")


def test_workers():
    play("workers")


def test_killed():
    def kill(server):
        require(server.lines.next() == "seen", "no connection is handed over")
        tell(server, "kill")

    play("killed", kill)


def test_leaves():
    play("leaves")
    play("leaves_at_end")


def test_slow():
    def begin(server):
        require(server.lines.next() == "busy", "no connection is handed over")
        tell(server, "begin")

    play("slow", begin)


def test_ends():
    play("ends")
    play("ends_at_once")


def test_grandchildren():
    play("grandchildren")


def test_becomes():
    play("becomes")


def test_binds():
    play("binds")


def test_jailed():
    if os.geteuid() == 0:
        play("jailed")


def test_many():
    play("many")


def test_busy():
    play("busy")


def play_away(scene):
    """The NI ends, and comes back."""
    for v in VERSIONS:
        with directory() as d, contextlib.ExitStack() as ends:
            with network_interface(UNETD, d):
                server = ends.enter_context(begun(UNET_SOCKETS, d, scene, OURS[v]))
                require(server.lines.next() == "ready", "the server")
            tell(server, "gone")
            require(server.lines.next() == "away", f"{scene}, IPv{v}: the server does not hear of it")
            with network_interface(UNETD, d):
                tell(server, "back")
                require(server.lines.next() == "done", f"{scene}, IPv{v}: the server")
                require(server.wait(WAIT) == 0, f"{scene}, IPv{v}: the server ended with {server.returncode}")


def test_away():
    play_away("away")


def test_waits_back():
    play_away("waits_back")


def test_environment():
    """Listeners and connections passed to a program may be forged."""
    listener = "0,1,5,12345678901,0,0,8400,10.86.0.1,0,0.0.0.0"
    texts = ["", ";", "3", "3,", "x,y", f"3,{listener}x", f"-1,{listener}", f"99999999999,{listener}", f"3,{listener};;;", f"1048576,{listener}"]
    texts += [f"3,{listener}@{links}" for links in ("", "@", "0", "0,", ",", "0,1", "-1,-1", "0,1@1,2@2,3", "900,1", "99999999999999,1", "1,x")]
    texts += [";".join(f"{fd},{listener}@{fd},1" for fd in range(3, 100)), "," * 5000, "@" * 5000]
    with directory() as d, network_interface(UNETD, d):
        for text in texts:
            status, out, err = run(UNET_SOCKETS, "sh", "-c", "echo well", env=environment(d) | {"UNET_SOCKETS_LEFT": text})
            require((status, out) == (0, "well\n"), f"{text[:100]}: {status} {out} {err}")


if __name__ == "__main__":
    begin(PEERS, globals())
