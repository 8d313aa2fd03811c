#!/usr/bin/env python3
# supervisor.py - the supervisor of unetd between an operator that changes files and sends signals, and NIs that misbehave.
#
# Usage: supervisor.py UNETD UNETCTL ECHO_SERVER ECHO_CLIENT
import os
import signal
import socket
import sys

from daemon import IS_ROOT, NOBODY, WAIT, Unetd, directory, main, require, run, wait_until
from takeover_ni import (ANOTHER, ECHO_CLIENT, KIND_UPGRADE, TAKE, UNETCTL, UNETD, Ni, ends_with, other, refused, script, scripted, upgrade,
                         wait_for)


def test_what_the_supervisor_does_not_run():
    """An NI may name only a program that no user with fewer rights than the supervisor could have changed."""
    with directory() as d, Ni(d) as ni:
        program = d + "/other"
        open(program, "w").close()
        refused(ni, "--binary", program, says="nobody may execute it")
        os.mkfifo(d + "/fifo", 0o755)
        refused(ni, "--binary", d + "/fifo", says="is not a regular file")
        for mode in (0o775, 0o757):
            script(program, ANOTHER.format(unetd=UNETD))
            os.chmod(program, mode)
            refused(ni, "--binary", program, says="others than its owner can write it")
        if IS_ROOT:
            script(program, ANOTHER.format(unetd=UNETD))
            os.chown(program, NOBODY, NOBODY)
            refused(ni, "--binary", program, says=f"belongs to user {NOBODY}")
        # A program that replaces it later must pass the same check.
        script(program, ANOTHER.format(unetd=UNETD))
        upgrade(ni, "--binary", program)
        script(program, f"#!/bin/sh\n: > {d}/ran\n" + ANOTHER.format(unetd=UNETD).partition("\n")[2])
        os.chmod(program, 0o777)
        ni.kill()
        ni.echo()
        refused(ni, says="others than its owner can write it")
        require(not os.path.exists(d + "/ran"), "it was run")


def configure(ni, text):
    with open(ni.directory + "/unetd.toml", "w") as file:
        file.write(text)


def test_configuration():
    """An upgrade reads the configuration again. A replacement after a crash uses the configuration that the crashed NI had read."""
    wire, wrong = 'ports = ["dpdk:net_ring0,hugepages=never"]\n', 'ports = ["dpdk:net_af_packet0,iface=unet-none,hugepages=never"]\n'
    with directory() as d:
        for standby in (False, True):
            open(d + "/unetd.toml", "w").close()
            os.path.lexists(d + "/unetd") and os.unlink(d + "/unetd")
            with Ni(d, "--config", d + "/unetd.toml", standby=standby) as ni:
                ports = lambda: len(ni.report()["ports"])
                configure(ni, "this is no configuration")
                status, _, err = ni.ctl("upgrade")
                require(status == 1 and "ended with status 2 before it could take over" in err, f"{status} {err!r}")
                ni.end_one_that_serves()
                ni.echo()
                configure(ni, wire)
                ni.end_one_that_serves()
                require(ports() == 0, "it was read again")
                upgrade(ni)
                require(ports() == 1, "it was not read again")
                configure(ni, wrong)
                status, _, err = ni.ctl("upgrade")
                require(status == 1 and "the one before goes on" in err, f"{status} {err!r}")
                ni.echo()
                require(ports() == 1, "not the port that was there before")
                os.unlink(d + "/unetd.toml")
                ni.end_one_that_serves()
                ni.echo()
                status, _, err = ni.ctl("upgrade")
                require(status == 1 and "unetd.toml" in err, f"{status} {err!r}")
                require(ports() == 1, "not the port that was there before")


def test_what_a_configuration_cannot_change():
    with directory() as d:
        file, path = d + "/unetd.toml", d + "/s"
        text = f'socket = "{path}"\ntakeover_s = 60\nstandby = false\n'
        changes = [("/s\"", "/other\"", "a takeover cannot change that"), ("takeover_s = 60", "takeover_s = 0", "ended with status 2")]
        if IS_ROOT:
            changes.append(("standby", 'user = "nobody"\nstandby', "a takeover cannot change that"))
            os.chmod(d, 0o777)
        with open(file, "w") as config:
            config.write(text)
        with Unetd(UNETD, "--config", file):
            for was, now, says in changes:
                with open(file, "w") as config:
                    config.write(text.replace(was, now))
                status, _, err = run(UNETCTL, "upgrade", "--socket", path)
                require(status == 1 and says in err, f"{status} {err!r}")
            with open(file, "w") as config:
                config.write(text)
            status, _, err = run(UNETCTL, "upgrade", "--socket", path)
            require(status == 0, f"{status} {err!r}")


EVERYTHING = '[[rule]]\nany = true\nnames = ["*"]\n'
NOTHING = "[[rule]]\nany = true\nendpoints = 0\n"


def test_policy():
    """The policy in force stays, whatever the file says, until a reload or an upgrade reads it."""
    with directory() as d:
        policy = d + "/policy.toml"
        def write(text):
            with open(policy, "w") as file:
                file.write(text)
        write(EVERYTHING)
        for standby in (False, True):
            os.path.lexists(d + "/unetd") and os.unlink(d + "/unetd")
            with Ni(d, "--policy", policy, standby=standby) as ni:
                def has_no_rights():
                    # The NI serves four connections at a time only to refuse them. Closed ones may still count.
                    return "no right to use it" in run(ECHO_CLIENT, "--path", "ni", "--count", "1", "echo", env=ni.env)[2]
                for text in (NOTHING, "this is no policy"):
                    write(text)
                    ni.end_one_that_serves()
                    ni.echo()
                write(NOTHING)
                require(ni.ctl("policy", "reload")[0] == 0, "no reload")
                write(EVERYTHING)
                ni.end_one_that_serves()
                wait_until(has_no_rights, "the policy that was read again is not in force")
                ni.daemon.process.send_signal(signal.SIGHUP)
                wait_until(lambda: run(ECHO_CLIENT, "--path", "ni", "--count", "1", "echo", env=ni.env)[0] == 0, "not read again")
                # An upgrade reads it again. An upgrade that cannot take over changes nothing.
                write("this is no policy")
                require(ni.ctl("upgrade")[0] == 1, "upgraded with a policy that is none")
                ni.echo()
                write(EVERYTHING + "#\n")
                upgrade(ni)
                ni.echo()


def test_reload_in_the_pause():
    with directory() as d:
        policy = d + "/policy.toml"
        with open(policy, "w") as file:
            file.write(EVERYTHING)
        with Ni(d, "--policy", policy) as ni:
            ni.late()
            ni.kill()
            with open(policy, "w") as file:
                file.write(NOTHING)
            ni.daemon.process.send_signal(signal.SIGHUP)
            ni.go()
            refused_now = lambda: "no right to use it" in run(ECHO_CLIENT, "--path", "ni", "--count", "1", "echo", env=ni.env)[2]
            wait_until(refused_now, "the signal is lost")


def test_same_program_fails():
    """The requester of an upgrade gets the outcome, also if the program is the one that served before."""
    with directory() as d, Ni(d) as ni:
        other(ni.program, TAKE + "sys.exit(3)", before=f"if not marked('fails'): os.execv('{UNETD}', sys.argv)\nos.unlink('{d}/fails')")
        upgrade(ni)
        open(d + "/fails", "w").close()
        status, _, err = ni.ctl("upgrade")
        require(status == 1 and "ended with status 3" in err and "the one before goes on" in err, f"{status} {err!r}")
        ni.echo()


def test_an_outcome_is_told_once():
    with directory() as d, Ni(d) as ni:
        script(d + "/other", "#!/bin/sh\nexit 3\n")
        refused(ni, "--binary", d + "/other", says="ended with status 3")
        ni.kill()
        ni.echo()
        ni.daemon.process.send_signal(signal.SIGTERM)
        ends_with(ni, 0)
        told = ni.daemon.process.stderr.read().count("no upgrade: ")
        require(told == 1, f"told {told} times")


def test_another_socket_stays():
    """The supervisor does not remove another socket at its path."""
    with directory() as d, Ni(d) as ni:
        ni.late()
        ni.kill()
        os.unlink(ni.path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as another:
            another.bind(ni.path)
            ni.daemon.process.send_signal(signal.SIGTERM)
            require(ni.daemon.process.wait(WAIT) == 0, "not status 0")
            require(os.path.exists(ni.path), "another socket is removed")


def test_socket_is_removed_with_the_users_rights():
    if not IS_ROOT:
        return
    with directory() as d:
        os.chmod(d, 0o777)
        for keeps in (False, True):
            os.path.lexists(d + "/unetd") and os.unlink(d + "/unetd")
            with Ni(d, "--user", "nobody") as ni:
                ni.late()
                ni.kill()
                if keeps:
                    os.chmod(d, 0o755)
                ni.daemon.process.send_signal(signal.SIGTERM)
                require(ni.daemon.process.wait(WAIT) == 0, "not status 0")
                require(os.path.exists(ni.path) == keeps, "with other rights than the user's")


def stops_at(d, when, then):
    """A supervisor that gets SIGTERM once its NI has marked `when` ends well, and the serving NI has marked `then`."""
    with scripted(d, d + "/unetd") as supervisor:
        wait_for(f"{d}/{when}")
        require(supervisor.stop() == 0, "not status 0")
        wait_for(f"{d}/{then}")


def test_stop_while_another_takes_over():
    """SIGTERM goes to the NI that serves at the end."""
    with directory() as d:
        program = d + "/unetd"
        other(program, """
link.recv(1 << 17)
if first("old"):
    signal.signal(signal.SIGTERM, lambda *_: mark("told old"))
    say(READY)
    say(UPGRADE)
    while not orders(RELEASE): pass
    mark("lets go")
    wait_for("told old")
    say(RELEASED)
else:
    serve()
    mark("told new")
""")
        stops_at(d, "lets go", "told new")


def test_stop_before_another_has_loaded():
    with directory() as d:
        program = d + "/unetd"
        other(program, """
link.recv(1 << 17)
serve(UPGRADE)
mark("stopped")
""", before="if not first('old'):\n    mark('loads')\n    time.sleep(60)")
        stops_at(d, "loads", "stopped")


def test_one_that_does_not_read():
    """An NI that reads neither the journal nor orders: the supervisor does not wait for it."""
    with directory() as d:
        program = d + "/unetd"
        other(program, """
if first("old"):
    link.recv(1 << 17)
    for a in range(3000): say(PUT, bytes(2048), 1, a)
    say(READY)
    say(UPGRADE)
    while not orders(RELEASE): pass
    say(RELEASED)
    mark("let go")
else:
    time.sleep(3600)
""")
        with scripted(d, program, seconds=3600) as supervisor:
            wait_for(d + "/let go")
            require(supervisor.stop() == 0, "not status 0")
        os.unlink(d + "/old")
        # The old NI asks for upgrades without end, and never reads the refusals.
        other(program, before=f"KIND_UPGRADE = {KIND_UPGRADE}", then="""
if first("old"):
    link.recv(1 << 17)
    say(PUT, bytes(4), KIND_UPGRADE)
    say(READY)
    link.setblocking(False)
    while True:
        try: say(UPGRADE, b"none")
        except BlockingIOError: time.sleep(0.001)
        except OSError: break
else:
    link.recv(1 << 17)
    say(READY)
    mark("new")
    time.sleep(3600)
""")
        with scripted(d, program, seconds=3600) as supervisor:
            wait_for(d + "/new")


def test_much_is_kept():
    """A journal that is larger than a socket's buffer."""
    with directory() as d:
        program = d + "/unetd"
        other(program, """
if first("old"):
    link.recv(1 << 17)
    for a in range(3000): say(PUT, bytes(2048), 1, a)
    say(READY)
    signal.pause()
else:
    count, last = 0, 0
    while not last:
        packet = link.recv(1 << 17)
        last = packet[4]
        count += (len(packet) - 8) // (32 + 2048)
    mark("got " + str(count))
    time.sleep(3600)
""")
        with scripted(d, program) as supervisor:
            pid = supervisor.process.pid
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                os.kill(int(file.read()), signal.SIGKILL)
            wait_for(d + "/got 3000")


if __name__ == "__main__":
    sys.exit(main(globals()))
