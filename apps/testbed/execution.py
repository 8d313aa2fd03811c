# execution.py - `testbed exec`: a program on one host, with its terminal, signals and exit status; or on all hosts at once.
import contextlib
import os
import signal
import subprocess
import sys
import threading

from failure import Failure
import testbeds

PASSED_ON = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]


@contextlib.contextmanager
def passing_on(running):
    def pass_on(number, _):
        for program in running:
            program.signal(number)
    before = [(number, signal.signal(number, pass_on)) for number in PASSED_ON]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def status_of(code):
    """The exit status as a shell reports it."""
    return code if code >= 0 else 128 - code


def on_one(host, program):
    # Find the program first: the error message of `ip` would be unclear.
    program = [program[0] if "/" in program[0] else host.find(program[0]), *program[1:]]
    if hasattr(host, "become"):
        sys.stdout.flush()
        host.become(program)
    terminal = os.isatty(0) and os.isatty(1)
    running = []
    with passing_on(running):
        running.append(host.start(program, terminal=terminal))
        return status_of(running[0].process.wait())


def copy_lines(name, stream, to, lock):
    for line in stream:
        with lock:
            to.write(f"{name}| {line}" + ("" if line.endswith("\n") else "\n"))
            to.flush()


def on_all(hosts, program):
    """Prints each line of output after its host's name; returns the first exit status that is not 0."""
    running, readers, lock = [], [], threading.Lock()
    with passing_on(running):
        for host in hosts:
            found = [program[0] if "/" in program[0] else host.find(program[0]), *program[1:]]
            running.append(host.start(found, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      errors="replace", start_new_session=True))
            for stream, to in ((running[-1].process.stdout, sys.stdout), (running[-1].process.stderr, sys.stderr)):
                readers.append(threading.Thread(target=copy_lines, args=(host.name, stream, to, lock)))
                readers[-1].start()
        codes = [program.process.wait() for program in running]
        for reader in readers:
            reader.join()
    return next((status_of(code) for code in codes if code != 0), 0)


def run(state, word, program):
    if not program:
        raise Failure("say which program to run: testbed exec 0 -- unetctl all")
    if word == "all":
        return on_all(testbeds.hosts_of(state), program)
    return on_one(testbeds.host_called(state, word), program)
