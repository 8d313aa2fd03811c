# processes.py - processes by pid and start time, so that no signal reaches a process that has the pid later.
import contextlib
import os
import select
import signal
import time

KILL_AFTER = 3  # seconds between SIGTERM and SIGKILL


def boot():
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def start_time(pid):
    """Returns clock ticks since boot; None if the process does not exist or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def is_alive(pid, start):
    return pid is not None and start is not None and start_time(pid) == start


def age(start):
    """Returns the seconds since a process with this start time began."""
    with open("/proc/uptime", encoding="ascii") as file:
        return float(file.read().split()[0]) - start / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def handle(pid, is_meant):
    """Yields a descriptor that always means this process; None if the process is gone or not the one that is meant."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        # Check after opening the descriptor: from now on the pid cannot come to mean another process.
        yield descriptor if is_meant(pid) else None
    finally:
        os.close(descriptor)


def send(pid, is_meant, number):
    with handle(pid, is_meant) as descriptor:
        if descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)


def wait_gone(pid, is_meant, seconds):
    with handle(pid, is_meant) as descriptor:
        if descriptor is None:
            return
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(max(0, seconds) * 1000)


def end(find):
    """Ends the processes that find() returns, a list of (pid, is_meant), until it is empty: SIGTERM, later SIGKILL."""
    begin = time.monotonic()
    asked = set()
    while meant := find():
        left = begin + KILL_AFTER - time.monotonic()
        for pid, is_meant in meant:
            if left <= 0 or pid not in asked:
                send(pid, is_meant, signal.SIGKILL if left <= 0 else signal.SIGTERM)
                asked.add(pid)
        wait_gone(*meant[0], max(left, 0.1))
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
