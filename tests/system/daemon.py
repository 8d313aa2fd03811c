# daemon.py - runs a unetd for a test, and reports failures of the tests in Python; for the other files here.
import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
WAIT = 120  # seconds; an upper bound for what takes milliseconds on an idle machine


class Failure(Exception):
    pass


class Skipped(Exception):
    """A requirement of the test is missing, or the test was not asked for."""


def require(condition, text):
    if not condition:
        raise Failure(text)


def wait_until(condition, text):
    end = time.monotonic() + WAIT
    while not condition():
        require(time.monotonic() < end, text)
        time.sleep(0.01)


def born(pid):
    """The start time of a process, in clock ticks since boot: it tells the process from a later one with the same pid. None: it is gone, or
    a zombie. It may exit at any time, also between open() and read()."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


@contextlib.contextmanager
def directory():
    path = tempfile.mkdtemp(prefix="unet-programs-", dir="/tmp")  # $TMPDIR may be too long for sockets, or closed to other users
    try:
        yield path
    finally:
        shutil.rmtree(path)


def run(*args, env=None, user=None, before=None):
    """`before`: called in the new process."""
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user is not None else []
    done = subprocess.run([*command, *args], capture_output=True, text=True, timeout=WAIT, env=env, preexec_fn=before)
    return done.returncode, done.stdout, done.stderr


def others_may_run(*programs):
    """Another user may have no access to a build directory below a home directory."""
    may = all(run(program, "--help", user=NOBODY)[0] == 0 for program in programs)
    if not may:
        print(f"      not tried as another user, who may not run {programs[0]}", flush=True)
    return may


def veth_pair(one, other):
    """Joins two interfaces of this process's network, both up. False, with a message, where that is impossible."""
    status, _, err = run("ip", "link", "add", one, "type", "veth", "peer", "name", other)
    if status != 0:
        print(f"      not tried: what needs a veth pair, which cannot be made here: {err.strip()}", flush=True)
        return False
    for each in (one, other):
        status, _, err = run("ip", "link", "set", each, "up")
        require(status == 0, f"{each} does not come up: {err}")
    return True


class Unetd:
    """A running unetd; killed at the end of the with block if it still runs."""

    def __init__(self, unetd, *args, user=None, env=None, executable=None):
        """`unetd`: a program, or a command. `executable`: the program to run instead, under the name `unetd`."""
        ready, write = os.pipe()
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user is not None else []
        command += [unetd] if isinstance(unetd, str) else unetd
        self.process = subprocess.Popen([*command, "--ready-fd", str(write), *args], pass_fds=[write], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, executable=executable)
        os.close(write)
        self.ready = os.read(ready, 1) == b"\n"
        os.close(ready)

    def __enter__(self):
        if not self.ready:
            self.process.wait(WAIT)
            raise Failure("unetd did not start: " + self.process.stderr.read())
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def stop(self, with_signal=signal.SIGTERM):
        self.process.send_signal(with_signal)
        return self.process.wait(WAIT)


class EchoNi:
    """A unetd with an echo server that is bound to `echo`."""

    def __init__(self, programs, path, *args):
        """`programs`: unetd, unetctl and echo_server."""
        (self.unetd, self.unetctl, self.echo_server), self.path, self.args = programs, path, args

    def __enter__(self):
        self.daemon = Unetd(self.unetd, "--socket", self.path, "--host", "alpha", *self.args).__enter__()
        self.env = os.environ | {"UNET_NI": "unix:" + self.path}
        self.server = subprocess.Popen([self.echo_server, "echo"], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: "echo" in self.ctl("names")[1], "the echo server does not come up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.server.wait(WAIT)
        self.end()
        self.daemon.__exit__()

    def end(self):
        """Called before the daemon is killed, if it still runs."""

    def ctl(self, *args, user=None):
        return run(self.unetctl, *args, "--socket", self.path, user=user)


def one_line(text, program, *parts):
    require(text.count("\n") == 1, f"not one line but: {text!r}")
    require(program in text, f"{program} does not say who it is: {text!r}")
    for part in parts:
        require(part in text, f"{part!r} is missing in {text!r}")


def beside(test):
    """Marks a test that mostly waits: main() runs it beside the others, in a process of its own."""
    test.beside = True
    return test


def attempt(name, test):
    try:
        test()
        print(f"ok    {name}", flush=True)
        return True
    except Skipped as why:
        print(f"skip  {name}: {why}", flush=True)
        return True
    except (Failure, subprocess.TimeoutExpired, OSError, ValueError, KeyError) as failure:
        print(f"FAIL  {name}: {failure}", flush=True)
        return False


def main(names):
    """Runs every test_ of a file's globals(), in order of name. SIGTERM cleans up as a failure does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    tests = [(name, test) for name, test in sorted(names.items()) if name.startswith("test_")]
    own_process = multiprocessing.get_context("fork").Process
    waiting = [own_process(target=lambda each=each: sys.exit(not attempt(*each))) for each in tests if hasattr(each[1], "beside")]
    for process in waiting:
        process.start()
    results = [attempt(*each) for each in tests if not hasattr(each[1], "beside")]
    for process in waiting:
        process.join()
        results.append(process.exitcode == 0)
    return 0 if all(results) else 1
