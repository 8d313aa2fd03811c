#!/usr/bin/env python3
# programs.py - unetd, unetctl and unet-run as a user runs them: start, stop, signals, stale sockets, wrong input, other users.
#
# Usage: programs.py UNETD UNETCTL UNET_RUN
import contextlib
import errno
import functools
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys

import daemon
from daemon import IS_ROOT, NOBODY, WAIT, born, directory, one_line, others_may_run, require, run, wait_until

UNETD, UNETCTL, UNET_RUN = (os.path.abspath(p) for p in sys.argv[1:4])
Unetd = functools.partial(daemon.Unetd, UNETD)


def test_start_and_stop():
    for with_signal in (signal.SIGTERM, signal.SIGINT):
        with directory() as d:
            path = d + "/s"
            with Unetd("--socket", path, "--host", "alpha") as ni:
                mode = os.lstat(path).st_mode
                require(stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600, f"mode of the socket: {oct(mode)}")
                status, out, _ = run(UNETCTL, "all", "--socket", path, "--json")
                report = json.loads(out)
                require(status == 0 and report["host"] == "alpha", f"unetctl: {out}")
                require(report["clients"][0]["program"] == "unetctl", f"clients: {report['clients']}")
                require(ni.stop(with_signal) == 0, "exit status after a signal")
                require("unetd ready at " + path in ni.process.stdout.read(), "no ready line")
            require(os.listdir(d) == [], f"left behind: {os.listdir(d)}")


def test_help_lists_the_wires():
    status, out, _ = run(UNETD, "--help")
    missing = [word for word in ("dpdk:DEVICE", "pcap:iface=", "faulty:OPTIONS", "capture:file=") if word not in out]
    require(status == 0 and not missing, f"unetd --help lacks {missing}")


def test_second_network_interface():
    with directory() as d:
        path = d + "/s"
        with Unetd("--socket", path) as first:
            status, _, err = run(UNETD, "--socket", path)
            require(status == 1, f"status {status}")
            one_line(err, "unetd", "is running at", path)
            require(run(UNETCTL, "names", "--socket", path)[0] == 0, "the first one was harmed")
            require(first.stop() == 0, "stop")


def test_second_network_interface_on_one_wire():
    with directory() as d:
        wire = ["--port", f"dpdk:net_memif0,role=server,socket={d}/m"]
        with Unetd("--socket", d + "/s", *wire) as first:
            status, _, err = run(UNETD, "--socket", d + "/t", *wire)
            require(status == 1, f"status {status}")
            one_line(err, "unetd", "another process has the socket", "choose another socket=")
            require(sorted(os.listdir(d)) == ["m", "s"], f"left behind: {os.listdir(d)}")
            require(run(UNETCTL, "ports", "--socket", d + "/s")[0] == 0 and first.stop() == 0, "the first one was harmed")
            require(not os.listdir(d), f"left behind: {os.listdir(d)}")


def test_memif_socket_of_one_user():
    """No other user can connect, and the files of a killed server do not disturb the next one."""
    with directory() as d:
        os.chmod(d, 0o755)
        wire = ["--port", f"dpdk:net_memif0,role=server,socket={d}/m"]
        with Unetd("--socket", d + "/s", *wire) as first:
            require(os.stat(d + "/m").st_mode & 0o7777 == 0o600, "others have rights")
            if os.geteuid() == 0:
                child = os.fork()
                if child == 0:
                    os.setgroups([])
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                    os._exit(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect_ex(d + "/m"))
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                require(status == errno.EACCES, f"another user connects: {status}")
            first.process.kill()
            first.process.wait(WAIT)
        require(os.path.exists(d + "/m"), "a killed unetd cannot have removed it")
        with Unetd("--socket", d + "/s", *wire) as second:
            require(second.stop() == 0 and not os.listdir(d), f"left behind: {os.listdir(d)}")


def test_memif_client_hangs_up_before_it_is_greeted():
    with directory() as d, Unetd("--socket", d + "/s", "--port", f"dpdk:net_memif0,role=server,socket={d}/m") as ni:
        address = f"{d}/m"
        for hasty in range(1, 4):
            ni.process.send_signal(signal.SIGSTOP)
            for _ in range(hasty):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                    client.setblocking(False)
                    client.connect_ex(address)  # fills the short accept queue
            ni.process.send_signal(signal.SIGCONT)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(address)
                client.settimeout(WAIT)
                require(len(client.recv(256)) == 128, "not greeted")
        require(ni.stop() == 0, "stop")


def test_one_name_everywhere():
    """An NI has one name for programs, unetctl and unetd. UNET_SOCKET and --socket are the older ones."""
    with directory() as d:
        path = d + "/s"
        bare = {k: v for k, v in os.environ.items() if k not in ("UNET_NI", "UNET_SOCKET")}
        ni = subprocess.Popen([UNETD], env=bare | {"UNET_NI": "unix:" + path}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def names(words=(), more=None):
            return subprocess.run([UNETCTL, "names", *words], env=bare | (more or {}), capture_output=True, text=True, timeout=WAIT,
                                  check=False)

        try:
            wait_until(lambda: names(["--ni", path]).returncode == 0, "unetd does not take its socket from UNET_NI")
            for words, more in ((["--ni", "unix:" + path], {}), (["--socket", path], {}), ([], {"UNET_NI": "unix:" + path}),
                                ([], {"UNET_NI": path}), ([], {"UNET_SOCKET": path}), (["--ni", path], {"UNET_NI": "unix:/nowhere"}),
                                ([], {"UNET_NI": "embedded:none", "UNET_SOCKET": path})):
                require(names(words, more).returncode == 0, f"{words} {more}: {names(words, more).stderr}")
            done = names(["--ni", "embedded:none"])
            require(done.returncode == 2 and "no socket" in done.stderr, f"--ni embedded:none: {done.stderr}")
        finally:
            ni.terminate()
            ni.wait(WAIT)


def test_closed_standard_descriptors():
    """The first file opened does not become standard error, to which the log goes."""
    with directory() as d:
        ni = subprocess.Popen(["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', UNETD, "--socket", d + "/s"])
        try:
            wait_until(lambda: run(UNETCTL, "names", "--ni", d + "/s")[0] == 0, "not ready")
            held = [os.readlink(f"/proc/{ni.pid}/fd/{number}") for number in range(3)]
            require(held == ["/dev/null"] * 3, f"0, 1 and 2 are {held}")
        finally:
            ni.terminate()
            require(ni.wait(WAIT) == 0, "stop")


def test_stale_socket():
    with directory() as d:
        path = d + "/s"
        with Unetd("--socket", path) as first:
            first.process.kill()
            first.process.wait(WAIT)
        require(os.path.exists(path), "a killed unetd cannot have removed its socket")
        status, _, err = run(UNETCTL, "names", "--socket", path)
        require(status == 1, f"unetctl with a stale socket: {status}")
        one_line(err, "unetctl")
        with Unetd("--socket", path) as second:
            require(run(UNETCTL, "names", "--socket", path)[0] == 0, "the new one does not answer")
            require(second.stop() == 0, "stop")
        require(os.listdir(d) == [], "left behind")


def test_client_of_a_dying_ni():
    with directory() as d:
        path = d + "/s"
        with Unetd("--socket", path) as ni:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            client.connect(path)
            require(ni.stop() == 0, "stop with a client that does nothing")
            client.settimeout(WAIT)
            with contextlib.suppress(ConnectionResetError):
                require(client.recv(10) == b"", "the client is told")
            client.close()


def test_unetctl():
    with directory() as d:
        path = d + "/s"
        with Unetd("--socket", path):
            for what in ("endpoints", "channels", "names", "counters", "drops", "clients", "users", "held", "ports", "hosts", "all"):
                status, out, err = run(UNETCTL, what, "--socket", path)
                require(status == 0 and out and not err, f"unetctl {what}: {status} {out!r} {err!r}")
                status, out, _ = run(UNETCTL, what, "--socket", path, "--json")
                require(status == 0, f"unetctl {what} --json")
                json.loads(out)
            require("requests" in run(UNETCTL, "counters", "--socket", path)[1], "no service counters")
        for args, part in ((["endpoint"], "endpoints"), ([], "a command is required"), (["names", "--socket", "/" + "x" * 200], "100"),
                           (["names", "--socket", d + "/none"], "unetd"), (["names", "--bad"], "--bad")):
            status, _, err = run(UNETCTL, *args)
            require(status != 0, f"unetctl {args} succeeded")
            one_line(err, "unetctl", part)


WRONG_OPTIONS = [
    (["--idle", "never"], ["never", "spin, adaptive, block"]),
    (["--host", "a b"], ["'a b'", "A-Z a-z 0-9"]),
    (["--host", "x" * 64], ["1 to 63"]),
    (["--core", "x"], ["--core"]),
    (["--core", "99999"], ["--core", "1023"]),
    (["--peers", "beta"], ["HOST=MAC"]),
    (["--peers", "beta=02:00:00:00:00"], ["02:00:00:00:00:01"]),
    (["--peers", "beta=01:00:00:00:00:02"], ["multicast"]),
    (["--peers", "beta=02:00:00:00:00:02@x"], ["0 to 15"]),
    (["--peers", "beta=02:00:00:00:00:02"], ["port 0 does not exist"]),
    (["--config", "/nonexistent/c.toml"], ["/nonexistent/c.toml", "No such file"]),
    (["--policy", "/nonexistent/p.toml"], ["/nonexistent/p.toml", "No such file"]),
    (["--ready-fd", "77"], ["77"]),
    (["--socket", "/" + "x" * 120], ["100"]),
    (["--socket", "/nonexistent/s"], ["/nonexistent"]),
    (["--group", "no-such-group-here"], ["no-such-group-here"]),
    (["--port", "nosuchdriver:x"], ["nosuchdriver"]),
    (["--nonsense"], ["--nonsense"]),
    (["--log", "loud"], ["loud"]),
]

WRONG_LINES = [
    ("host = \n", 1, "not TOML"),
    ("host = 'a b'\n", 1, "A-Z a-z 0-9"),
    ("\nidle = 'never'\n", 2, "spin, adaptive, block"),
    ("spin_us = -1\n", 1, "0 to 1000000"),
    ("spin_us = 'x'\n", 1, "whole number"),
    ("core = 5000\n", 1, "1023"),
    ("lost_after_ms = 1\n", 1, "100 to 3600000"),
    ("ports = 'x'\n", 1, "list of texts"),
    ("ports = [1]\n", 1, "list of texts"),
    ("socket = '/" + "x" * 120 + "'\n", 1, "100"),
    ("hosts = 'x'\n", 1, "unknown key 'hosts'"),
    ("[[peer]]\nhost = 'b'\n", 1, "a peer needs a mac"),
    ("[[peer]]\nhost = 'b'\nmac = 'zz'\n", 3, "02:00:00:00:00:01"),
    ("[[peer]]\nhost = 'b'\nmac = '02:00:00:00:00:02'\nport = 99\n", 4, "0 to 15"),
    ("[peer]\nhost = 'b'\n", 1, "[[peer]]"),
    ("[[channel]]\nendpoint = 'x'\nlocal_tag = 0\n", 3, "low 16 bits"),
    ("[[channel]]\nendpoint = 'x'\nlocal_tag = 1\nremote_tag = 65536\n", 4, "low 16 bits"),
    ("[[channel]]\nendpoint = '-x'\n", 2, "A-Z a-z 0-9"),
    ("[[channel]]\nendpoint = 'x'\nlocal_tag = 1\nremote_tag = 1\n", 1, "peer's address"),
    ("[[channel]]\nendpoint = 'x'\nlocal_tag = 1\nremote_tag = 1\npeer = '02:00:00:00:00:02'\nnonsense = 1\n", 6, "unknown key"),
]


def test_wrong_options():
    with directory() as d:
        for args, parts in WRONG_OPTIONS:
            socket_args = [] if "--socket" in args else ["--socket", d + "/s"]
            status, _, err = run(UNETD, *socket_args, *args)
            require(status != 0, f"unetd {args} succeeded")
            one_line(err, "unetd", *parts)
        require(os.listdir(d) == [], "left behind")


def test_wrong_configuration_lines():
    with directory() as d:
        for text, line, part in WRONG_LINES:
            path = d + "/c.toml"
            with open(path, "w", encoding="ascii") as f:
                f.write(text)
            status, _, err = run(UNETD, "--check", "--config", path)
            require(status != 0, f"accepted: {text!r}")
            one_line(err, "unetd", f"{path}:{line}: ", part)


def test_example_configuration():
    with directory() as d:
        status, out, _ = run(UNETD, "--print-config")
        require(status == 0, "--print-config")
        for text in (out, re.sub(r"^# (?!ports|policy|user)(?=\w+ = |\[\[)", "", out, flags=re.M)):
            with open(d + "/c.toml", "w", encoding="ascii") as f:
                f.write(text)
            status, out2, err = run(UNETD, "--check", "--config", d + "/c.toml")
            if "\n[[peer]]" in text:  # once uncommented: a peer on a port that the file does not have
                one_line(err, "unetd", "port 0 does not exist")
            else:
                require(status == 0 and "right" in out2, f"the example is refused: {err}")


def test_not_root():
    if not IS_ROOT or not others_may_run(UNETD, UNETCTL):
        return
    with directory() as d:
        os.chmod(d, 0o755)
        home = d + "/home"
        os.mkdir(home, 0o700)
        os.chown(home, NOBODY, NOBODY)
        env = {k: v for k, v in os.environ.items() if k != "UNET_SOCKET"} | {"XDG_RUNTIME_DIR": home}
        with Unetd(user=NOBODY, env=env) as ni:
            path = home + "/unet/unet.sock"
            require(os.path.exists(path), "not at $XDG_RUNTIME_DIR/unet/unet.sock")
            require(stat.S_IMODE(os.stat(home + "/unet").st_mode) == 0o700, "mode of the directory")
            require(run(UNETCTL, "all", env=env, user=NOBODY)[0] == 0, "its own user")
            require(run(UNETCTL, "all", "--socket", path)[0] == 0, "root")
            status, _, err = run(UNETCTL, "all", "--socket", path, user=1)
            require(status == 1, "another user got in")
            one_line(err, "unetctl")
            require(ni.stop() == 0, "stop")
        require(os.listdir(home + "/unet") == [], "left behind")


def test_group_and_policy():
    if not IS_ROOT or not others_may_run(UNETD, UNETCTL):
        return
    with directory() as d:
        os.chmod(d, 0o755)
        path, policy = d + "/s", d + "/p.toml"
        with open(policy, "w", encoding="ascii") as f:
            f.write("[[rule]]\nuid = 65534\nendpoints = 4\n")
        with Unetd("--socket", path, "--group", "nogroup", "--policy", policy):
            require(stat.S_IMODE(os.lstat(path).st_mode) == 0o660, "mode of the socket")
            status, out, _ = run(UNETCTL, "all", "--socket", path, "--json", user=NOBODY)
            require(status == 0, "a user of the policy")
            report = json.loads(out)
            require(len(report["clients"]) == 1 and report["counters"] == {} and report["held"] == {}, f"sees what is not its own: {out}")
            require([user["uid"] for user in report["users"]] == [65534], f"sees other users: {report['users']}")
        with open(policy, "w", encoding="ascii") as f:
            f.write("[[rule]]\nuid = 1234\n")
        with Unetd("--socket", path, "--group", "nogroup", "--policy", policy):
            status, _, err = run(UNETCTL, "all", "--socket", path, user=NOBODY)
            require(status == 1, "a user without rights got in")
            one_line(err, "unetctl", "no right", "65534")


def test_directory_of_somebody_else():
    if not IS_ROOT or not others_may_run(UNETD, UNETCTL):
        return
    path = f"/tmp/unet-{NOBODY}"
    if os.path.exists(path):
        return  # another program uses it
    os.mkdir(path, 0o700)
    try:
        os.chown(path, 1, 1)
        env = {k: v for k, v in os.environ.items() if k not in ("UNET_SOCKET", "XDG_RUNTIME_DIR")}
        status, _, err = run(UNETD, env=env, user=NOBODY)
        require(status != 0, "unetd used another user's directory")
        one_line(err, "unetd", path, "belongs to user 1")
        status, _, err = run(UNETCTL, "names", env=env, user=NOBODY)
        require(status != 0, "unetctl trusted another user's directory")
        one_line(err, "unetctl")
    finally:
        os.rmdir(path)


@contextlib.contextmanager
def place_of_run():
    """The environment that decides where unet-run makes its directories, and the directories there."""
    with directory() as d:
        yield os.environ | {"TMPDIR": d}, lambda: os.listdir(d)


def test_run():
    with place_of_run() as (env, left):
        script = 'echo "$UNET_RANK of $UNET_SIZE at $UNET_NI"; ' + UNETCTL + ' names --socket "${UNET_NI#unix:}"'
        status, out, err = run(UNET_RUN, "-n", "3", "--", "sh", "-c", script, env=env)
        require(status == 0, f"unet-run: {err}")
        for rank in range(3):
            require(f"{rank} of 3 at unix:/" in out, f"rank {rank} is missing in {out!r}")
        require(out.count("no names") == 3, f"the network interface does not answer: {out!r} {err!r}")
        require(left() == [], f"left behind: {left()}")


def test_run_input():
    with place_of_run() as (env, _):
        done = subprocess.run([UNET_RUN, "-n", "3", "--", "sh", "-c", 'echo "$UNET_RANK:$(cat)"'], env=env, input="a\nb\n",
                              capture_output=True, text=True, timeout=WAIT)
        require(sorted(done.stdout.split("\n")) == ["", "0:a", "1:", "2:", "b"], f"who reads the input: {done}")


def test_run_ends_what_programs_started():
    """Ends grandchildren, and those in a session of their own."""
    with directory() as d, place_of_run() as (env, left):
        mark = d + "/pids"
        note = f"echo $$ >> {mark}; sleep 1000"
        inner = 'sh -c "' + note.replace("$", "\\$") + '; true"'
        script = (f"sh -c '({inner} & {inner}); true' & setsid sh -c '{note}; true' & "
                  f"while [ $(wc -l < {mark}) -lt 3 ]; do sleep 0.1; done")
        open(mark, "w", encoding="ascii").close()
        status, _, err = run(UNET_RUN, "--", "sh", "-c", script, env=env)
        require(status == 0, f"unet-run: {err}")
        pids = [int(pid) for pid in open(mark, encoding="ascii").read().split()]
        alive = [pid for pid in pids if born(pid) is not None]
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        require(len(pids) == 3 and not alive, f"left behind: {alive} of {pids}")
        sleeping = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, timeout=WAIT, check=False).stdout
        require(sleeping == "" and left() == [], f"left behind: {sleeping} {left()}")


def test_run_labels():
    """Each line has its rank: a last line without a newline, errors, and long lines too. Output of a process left behind is not awaited."""
    script = 'echo "one $UNET_RANK"; echo "bad $UNET_RANK" >&2; head -c 200000 /dev/zero | tr "\\0" x; echo; printf "last %s" $UNET_RANK'
    with place_of_run() as (env, left):
        status, out, err = run(UNET_RUN, "-n", "3", "--label", "--", "sh", "-c", script, env=env)
        require(status == 0, f"unet-run --label: {err}")
        require(sorted(err.splitlines()) == [f"[{rank}] bad {rank}" for rank in range(3)], f"errors: {err!r}")
        for rank in range(3):
            lines = [line.removeprefix(f"[{rank}] ") for line in out.splitlines() if line.startswith(f"[{rank}] ")]
            require(lines[0] == f"one {rank}" and lines[-1] == f"last {rank}", f"lines of rank {rank}: {[line[:20] for line in lines]}")
            require("".join(lines[1:-1]) == 200000 * "x", f"{sum(map(len, lines[1:-1]))} bytes of a long line of rank {rank}")
        status, out, err = run(UNET_RUN, "-n", "2", "--label", "--", "sh", "-c", "sleep 1000 & echo $UNET_RANK", env=env)
        require(status == 0 and sorted(out.splitlines()) == ["[0] 0", "[1] 1"], f"with a process left behind: {status}: {out!r} {err!r}")
        status, _, err = run(UNET_RUN, "-n", "2", "--label", "--", "sh", "-c", "echo why >&2; exit 7", env=env)
        require(status == 7 and re.search(r"^\[[01]\] why$", err, re.M), f"a failure: {status}: {err!r}")
        # The reader of the output has gone, so the processes get SIGPIPE and end.
        command = f"{UNET_RUN} -n 2 --label -- sh -c 'while echo line; do :; done' | head -n 1"
        done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], env=env, capture_output=True, text=True, timeout=WAIT)
        require(re.fullmatch(r"\[[01]\] line\n", done.stdout), f"a reader that goes: {done}")
        require(left() == [], f"left behind: {left()}")


def test_run_failures():
    with place_of_run() as (env, left):
        status, _, err = run(UNET_RUN, "-n", "3", "--", "sh", "-c", 'if [ $UNET_RANK = 1 ]; then exit 7; fi; sleep 1000', env=env)
        require(status == 7, f"status {status}")  # and not run()'s time-out: the other ranks were ended
        require("rank 1 failed with status 7" in err, err)
        status, out, err = run(UNET_RUN, "-n", "1", "--", "printf", "%s.", "[a,b]", "--", "-x", "", env=env)
        require((status, out) == (0, "[a,b].--.-x.."), f"a program's arguments: {status} {out}{err}")
        status, _, err = run(UNET_RUN, "-n", "2", "--", "sh", "-c", "kill -SEGV $$", env=env)
        require(status == 128 + signal.SIGSEGV, f"status {status}")
        status, _, err = run(UNET_RUN, "-n", "2", "--", "/no/such/program", env=env)
        require(status == 1, f"status {status}")
        one_line(err, "unet-run", "/no/such/program", "No such file")
        for args, part in ((["-n", "0", "--", "true"], "-n '0': write a number of processes from 1 to 1024"),
                           (["-n", "two", "--", "true"], "-n 'two'"), (["--cores", "1-", "--", "true"], "0,2-4"),
                           (["--cores", "1023", "--", "true"], f"no core 1023 for unet-run, which may use {len(os.sched_getaffinity(0))}: "), (["-n", "2"], "program"),
                           (["-n", "2", "--"], "program"), (["--nonsense", "true"], "--nonsense"), (["--nonsense", "--", "true"], "--nonsense"),
                           (["--idle", "x", "--", "true"], "adaptive"), (["--port", "nosuchdriver:x", "--", "true"], "nosuchdriver")):
            status, _, err = run(UNET_RUN, *args, env=env)
            require(status != 0, f"{args} succeeded")
            one_line(err, "unet-run", part)
        require(left() == [], f"left behind: {left()}")


def test_run_signals():
    with directory() as d, place_of_run() as (env, left):
        for with_signal, expected in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)):
            mark = d + "/pids"
            process = subprocess.Popen([UNET_RUN, "-n", "2", "--", "sh", "-c", f"echo $$ >> {mark}; exec sleep 1000"],
                                       stderr=subprocess.DEVNULL, env=env)
            wait_until(lambda: os.path.exists(mark) and open(mark, encoding="ascii").read().count("\n") == 2, "ranks did not start")
            ranks = {int(p): born(int(p)) for p in open(mark, encoding="ascii").read().split()}
            require(None not in ranks.values(), "a rank ended by itself")
            process.send_signal(with_signal)
            require(process.wait(WAIT) == expected, f"status after {with_signal}")
            wait_until(lambda: not any(born(pid) == when for pid, when in ranks.items()), "a rank outlived unet-run")
            wait_until(lambda: left() == [], "the directory was left behind")
            os.unlink(mark)


sys.exit(daemon.main(globals()))
