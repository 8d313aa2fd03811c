#!/usr/bin/env python3
# remote_tasks.py - unet-run --hosts and unet-agent on the hosts of a testbed: output, exit statuses, refusals, deaths, nothing left behind.
#
# Usage: remote_tasks.py TESTBED UNET_RUN UNET_AGENT TASK_LIAR DIRECTORY...   (the directories of unetd and unet-bench)
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from daemon import IS_ROOT, NOBODY, main, require, wait_until

TESTBED, UNET_RUN, UNET_AGENT, LIAR = map(os.path.abspath, sys.argv[1:5])
NAME = f"r{os.getpid()}"
HOSTS = 4
WAIT = 60
SKIP = 77
SLEEP = str(7_000_000 + os.getpid() % 1_000_000)  # seconds; tells the sleeping tasks of this test from others
RULE = '[[rule]]\n{who}\nprograms = ["*"]\ncarry = true\nas = "root"\n'
OPEN = RULE.format(who='hosts = ["h*"]') + RULE.format(who='users = ["root"]')


def testbed(*args, **how):
    return subprocess.run([TESTBED, *args], capture_output=True, text=True, timeout=WAIT, check=False, **how)


def at(host):
    return [TESTBED, "exec", "--name", NAME, host, "--"]


def answer(command, text=""):
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=WAIT, check=False)
    return done.returncode, done.stdout, done.stderr


def sleepers():
    """Tasks of this test that still run."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if SLEEP.encode() in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


class Agents:
    """An agent on each host, with a directory for the files of jobs; at the end nothing of any job may be left."""

    def __init__(self, policies=None, directories=None, agents=HOSTS):
        self.policies, self.places, self.count = policies or {}, directories or {}, agents

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="unet-tasks-", dir="/tmp")
        os.chmod(self.path, 0o711)
        self.hosts(f"h{i}" for i in range(HOSTS))
        self.processes = {}
        for number in range(self.count):
            self.start(number)
        return self

    def start(self, number, wrapper=()):
        policy = f"{self.path}/policy.{number}"
        with open(policy, "w", encoding="ascii") as file:
            file.write(self.policies.get(number, OPEN).replace("DIR", self.path))
        place = self.places.get(number, f"{self.path}/jobs.{number}")
        os.makedirs(place, exist_ok=True)
        os.chmod(place, 0o1777)
        ready, write = os.pipe()
        agent = [UNET_AGENT, "--policy", policy, "--dir", place, "--ready-fd", str(write), "--log", "warning"]
        namespace = ["ip", "netns", "exec", f"unet-testbed.{NAME}.h{number}", *wrapper, *agent]
        self.processes[number] = subprocess.Popen(namespace, pass_fds=[write], stdout=subprocess.DEVNULL,
                                                  env=os.environ | {"UNET_NI": f"unix:/run/unet-testbed/{NAME}/h{number}/unet.sock"})
        os.close(write)
        require(os.read(ready, 1) == b"\n", f"the agent of h{number} does not start")
        os.close(ready)

    def hosts(self, lines):
        with open(self.path + "/hosts", "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")

    def command(self, *args):
        return [*at("h0"), UNET_RUN, "--hosts", self.path + "/hosts", *args]

    def run(self, *args, text=""):
        return answer(self.command(*args), text)

    def begin(self, *args):
        """Starts a job of sleeping tasks, and returns when all sleep."""
        job = subprocess.Popen(self.command(*args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: len(sleepers()) >= HOSTS or job.poll() is not None, "the tasks do not start")
        require(job.poll() is None, "the job ended before it ran")
        return job

    def left(self):
        found = sleepers()
        for number in range(self.count):
            place = self.places.get(number, f"{self.path}/jobs.{number}")
            found += [f"h{number}/{entry}" for entry in os.listdir(place)]
        return found

    def nothing_left(self):
        end = time.monotonic() + 20
        while self.left() and time.monotonic() < end:
            time.sleep(0.02)
        require(not self.left(), f"left behind: {self.left()}")

    def __exit__(self, kind, *_):
        if kind is None:
            self.nothing_left()
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(WAIT)
        shutil.rmtree(self.path)


def failed(answer, *parts, within=15, began=None):
    status, _, err = answer
    require(status != 0, f"the job succeeds: {answer}")
    for part in parts:
        require(part in err, f"{part!r} is missing in {err!r}")
    require(began is None or time.monotonic() - began < within, f"it took more than {within} s")


def test_output_and_exit_statuses():
    with Agents() as agents:
        agents.hosts(["h0 2", "h1  # one", "h2 3", "h3"])
        for way in ("tree", "flat", "flat-threads"):
            status, out, err = agents.run("--start", way, "--label", "--env", "A=a b", "--", "sh", "-c", 'echo "$UNET_RANK of $UNET_SIZE, $A"')
            require(status == 0 and not err, f"{way}: {status} {err}")
            require(sorted(out.splitlines()) == [f"[{rank}] {rank} of 7, a b" for rank in range(7)], f"{way}: {out}")
            status, _, err = agents.run("--start", way, "--", "sh", "-c", 'test $UNET_RANK != 4 || exit 7; sleep 20')
            require(status == 7 and "rank 4 failed with status 7" in err, f"{way}: {status} {err}")
        require(agents.run("-n", "3", "--", "sh", "-c", "echo $UNET_SIZE")[1] == "3\n3\n3\n", "-n")
        require(agents.run("--", "cat", text="a\nb")[1] == "a\nb", "standard input of rank 0")
        require(agents.run("--", "sh", "-c", "kill -9 $$")[0] == 128 + 9, "a task that is killed")
        out = agents.run("--", "sh", "-c", "test $UNET_RANK = 3 && head -c 20000000 /dev/zero | tr '\\0' x; exit 0")[1]
        require(len(out) == 20_000_000, f"much output: {len(out)}")
        require(len(agents.run("--", "wc", "-c", text="y" * 3_000_000)[1].split()) == 7, "much input")


def test_files_come_along():
    with Agents() as agents:
        with open(agents.path + "/program", "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nstat -c %a . data; cksum < data; cat empty; echo $1\n")
        os.chmod(agents.path + "/program", 0o755)
        with open(agents.path + "/data", "wb") as file:
            file.write(os.urandom(3_333_333))
        with open(agents.path + "/empty", "wb"):
            pass
        with open(agents.path + "/data", "rb") as file:
            digest = subprocess.run(["cksum"], stdin=file, capture_output=True, text=True, check=True).stdout
        for way in ("tree", "flat", "flat-threads"):
            status, out, err = agents.run("--start", way, "--file", agents.path + "/data", "--file", agents.path + "/empty", "--",
                                          agents.path + "/program", "word")
            require(status == 0, f"{way}: {status} {err}")
            require(sorted(out.splitlines()) == sorted(HOSTS * ["700", "600", digest.strip(), "word"]), f"{way}: {out}")
        failed(agents.run("--file", agents.path + "/none", "--", "true"), "none", "No such file")
        failed(agents.run("--", agents.path + "/nothing"), "nothing", "No such file")
        failed(agents.run("--", "no-such-program"), "cannot start 'no-such-program'", "no_program")
        failed(agents.run("--in-place", "--", agents.path + "/nothing"), "no_program")
        failed(agents.run("--dir", "/nonexistent", "--", "true"), "no_program")


def test_refusals():
    nobody = f'[[rule]]\nhosts = ["h0", "h1"]\nprograms = ["id", "/bin/*"]\nas = "{NOBODY}"\ntasks = 2\n'
    with Agents(policies={2: "", 3: nobody}) as agents:
        for way in ("tree", "flat"):
            failed(agents.run("--start", way, "--", "true"), "host h2", "not_permitted")
        agents.hosts(["h1", "h3 2"])
        status, out, err = agents.run("--", "id", "-u")
        require(status == 0 and sorted(out.splitlines()) == ["0", str(NOBODY), str(NOBODY)], f"as another user: {status} {out} {err}")
        failed(agents.run("--", "true"), "host h3", "start no program 'true'", "not_permitted")
        failed(agents.run("--in-place", "--", "/bin/../bin/true"), "absolute path without ..")
        failed(agents.run("--", "/bin/true"), "bring no program", "not_permitted")
        failed(agents.run("--in-place", "--env", "A=x", "--", "/bin/true"), "set no variables", "not_permitted")
        agents.hosts(["h3 3"])
        failed(agents.run("--", "id"), "3 more are too many", "too_many")


def test_secret():
    with Agents(policies={number: 'secret = "DIR/secret"\n' + OPEN for number in range(1, HOSTS)}, agents=0) as agents:
        with open(agents.path + "/secret", "w", encoding="ascii") as file:
            file.write("0123456789abcdef\n")
        with open(agents.path + "/other", "w", encoding="ascii") as file:
            file.write("0123456789abcdeg\n")
        agents.hosts(["h1", "h2", "h3"])
        agents.count = HOSTS
        for path in ("secret", "other"):
            require("chmod 600" in agents.run("--secret", f"{agents.path}/{path}", "--", "true")[2], "others may read the secret")
            os.chmod(f"{agents.path}/{path}", 0o600)
        for number in range(HOSTS):
            agents.start(number)
        status, _, err = agents.run("--secret", agents.path + "/secret", "--", "true")
        require(status == 0, f"with the secret: {err}")
        failed(agents.run("--secret", agents.path + "/other", "--", "true"), "another secret", "not_permitted")
        failed(agents.run("--", "true"), "another secret", "not_permitted")


def test_callers_that_want_more_than_their_rights():
    as_nobody = RULE.format(who='hosts = ["h*"]').replace('"root"', f'"{NOBODY}"')
    by_user = RULE.format(who='users = ["root"]')
    secret = 'secret = "DIR/secret"\n' + by_user
    with Agents(policies={1: as_nobody + by_user, 2: secret}, agents=0) as agents:
        with open(agents.path + "/secret", "w", encoding="ascii") as file:
            file.write("0123456789abcdef\n")
        os.chmod(agents.path + "/secret", 0o600)
        agents.count = HOSTS
        for number in range(HOSTS):
            agents.start(number)
        # An agent that is a host of its own job would call itself, as a user of its host.
        status, out, err = answer([*at("h0"), LIAR, "self", "h1"])
        require(status == 0 and "node 1 failed: its agent accepts no channel" in out and "rank 1" not in out,
                f"an agent that calls itself: {status} {out} {err}")
        status, out, err = answer([*at("h2"), LIAR, "secret", agents.path + "/secret"])
        require("it tells no secret" in out and not out.startswith("0 records"), f"a local caller without the secret: {status} {out} {err}")


def test_tasks_that_attack_their_agent():
    stubborn = "mkdir -p a/b/c; : > a/b/c/file; chmod 0 a/b/c a/b a ."
    as_nobody = RULE.format(who='hosts = ["h*"]').replace('"root"', f'"{NOBODY}"')
    with Agents(policies={3: as_nobody}) as agents:
        agents.hosts(["h3"])
        require(agents.run("--", "sh", "-c", stubborn)[0] == 0, "directories without rights")
        agents.nothing_left()
        # A runner that was killed leaves its directory to the agent.
        agents.run("--", "sh", "-c", stubborn + "; kill -9 $PPID")
        agents.nothing_left()
        # A task stops its runner: the agent serves others, and at last ends the runner.
        job = subprocess.Popen(agents.command("--", "sh", "-c", f"kill -STOP $PPID; sleep {SLEEP}"), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(sleepers, "the task does not start")
        began = time.monotonic()
        require(agents.run("--", "true")[0] == 0, "a stopped runner stops the agent")
        require(time.monotonic() - began < 5, "a stopped runner holds up the agent")
        job.send_signal(signal.SIGINT)
        job.wait(WAIT)
        agents.nothing_left()


def test_children_that_are_no_tasks():
    """What the agent's process had started before it became the agent lives on when the agent ends orphans of tasks."""
    with Agents(agents=HOSTS - 1) as agents:
        agents.count = HOSTS
        agents.start(3, wrapper=("sh", "-c", 'sleep 1000 & exec "$@"', "sh"))
        inherited = runners(agents, 3)
        job = agents.begin("--", "sleep", SLEEP)
        os.kill(next(pid for pid in runners(agents, 3) if pid not in inherited), signal.SIGKILL)
        job.communicate(timeout=WAIT)
        agents.nothing_left()
        require(agents.run("--", "true")[0] == 0, "the agent serves no more")
        require(inherited and inherited[0] in runners(agents, 3), "the agent ended a process that was no task")
        os.kill(inherited[0], signal.SIGKILL)


def test_hosts_that_are_down():
    with Agents(agents=HOSTS - 1) as agents:
        began = time.monotonic()
        failed(agents.run("--", "sleep", SLEEP), "host h3", "unreachable", began=began)
        agents.hosts(["h0", "h1", "nowhere", "h2"])
        for way in ("tree", "flat", "flat-threads"):
            began = time.monotonic()
            failed(agents.run("--start", way, "--", "sleep", SLEEP), "host nowhere", "unreachable", began=began)
        agents.nothing_left()


def test_full_disk():
    with tempfile.TemporaryDirectory(prefix="unet-full-", dir="/tmp") as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
        try:
            with Agents(directories={3: place}) as agents:
                with open(agents.path + "/data", "wb") as file:
                    file.write(bytes(4_000_000))
                failed(agents.run("--file", agents.path + "/data", "--", "true"), "host h3", "No space left", "file_failed")
                agents.nothing_left()
        finally:
            subprocess.run(["umount", place], check=True)


def runners(agents, number):
    """The processes of jobs at an agent."""
    pid = agents.processes[number].pid
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return list(map(int, file.read().split()))


def test_deaths():
    grandchildren = f"trap '' HUP; setsid sleep {SLEEP} & sleep {SLEEP}"
    with Agents() as agents:
        for victim in (3, 1, 0):
            job = agents.begin("--start", "tree", "--", "sh", "-c", grandchildren)
            agents.processes[victim].kill()
            _, err = job.communicate(timeout=WAIT)
            require(job.returncode == 1 and f"host h{victim}" in err, f"an agent was killed: {job.returncode} {err}")
            agents.nothing_left()
            agents.processes[victim].wait(WAIT)
            agents.start(victim)
            require(agents.run("--", "true")[0] == 0, "the agent was started again")
        job = agents.begin("--", "sh", "-c", grandchildren)
        os.kill(runners(agents, 2)[0], signal.SIGKILL)
        _, err = job.communicate(timeout=WAIT)
        require(job.returncode == 1 and "host h2" in err, f"a runner was killed: {job.returncode} {err}")
        agents.nothing_left()
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            job = agents.begin("--", "sh", "-c", grandchildren)
            job.send_signal(number)
            job.communicate(timeout=WAIT)
            require(job.returncode in (status, 128 - status), f"signal {number}: {job.returncode}")
            agents.nothing_left()
        job = agents.begin("--", "sh", "-c", f"trap '' TERM INT; sleep {SLEEP}; sleep {SLEEP}")
        began = time.monotonic()
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=WAIT)
        require(1.5 < time.monotonic() - began < 10, "tasks that ignore signals get SIGKILL after two seconds")
        job = agents.begin("--", "sh", "-c", f"trap 'exit 0' USR1; sleep {SLEEP} & wait")
        job.send_signal(signal.SIGUSR1)
        job.communicate(timeout=WAIT)
        require(job.returncode == 0, f"SIGUSR1 is passed on: {job.returncode}")
        # An agent that is stopped answers no more.
        job = agents.begin("--", "sleep", SLEEP)
        agents.processes[3].send_signal(signal.SIGSTOP)
        began = time.monotonic()
        _, err = job.communicate(timeout=WAIT)
        require("host h3" in err and "does not answer" in err, f"a stopped agent: {err}")
        require(time.monotonic() - began < 20, "a stopped agent is noticed late")
        agents.processes[3].send_signal(signal.SIGCONT)


def in_testbed(names):
    if not IS_ROOT or not shutil.which("ip"):
        print("no root, or no ip: there are no hosts to start tasks on")
        return SKIP
    made = testbed("up", "--name", NAME, "-n", str(HOSTS), env=os.environ | {"PATH": ":".join(sys.argv[5:]) + ":" + os.environ["PATH"]})
    if made.returncode != 0:
        print(made.stderr)
        return 1
    try:
        return main(names)
    finally:
        testbed("down", "--name", NAME)


if __name__ == "__main__":
    sys.exit(in_testbed(globals()))
