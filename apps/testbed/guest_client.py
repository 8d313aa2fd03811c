# guest_client.py - runs a program in a virtual machine, as ssh does on a real host: with its input, output, signals and exit status.
#
# Arguments: the machine's directory, the seconds until it has answered, and the program's words.
import fcntl
import json
import os
import signal
import socket
import sys
import threading

from guest_frames import BEGIN, CHUNK, ERROR, EXIT, INPUT, OUTPUT, SIGNAL, TAKEN, Reader, pack, write_all

SESSIONS = 16       # programs on one machine at the same time
NO_ANSWER = 255     # exit status, as ssh's
PASSED_ON = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]


def fail(text):
    print(f"testbed: {text}", file=sys.stderr, flush=True)
    os._exit(NO_ANSWER)


def connect(directory):
    """Takes a port that no other process uses. Its lock file stays locked until this process ends."""
    for number in range(SESSIONS):
        lock = os.open(f"{directory}/session{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        line = socket.socket(socket.AF_UNIX)
        line.connect(f"{directory}/session{number}")
        return line
    return fail(f"{SESSIONS} programs run in this machine already")


class Client:
    def __init__(self, line):
        self.line, self.lock, self.taken = line, threading.Lock(), threading.Semaphore(1)

    def send(self, kind, body):
        with self.lock:
            self.line.sendall(pack(kind, body))

    def copy_input(self):
        # One piece at a time: a program that reads nothing must not keep signals from passing.
        while True:
            self.taken.acquire()
            data = os.read(0, CHUNK)
            self.send(INPUT, data)
            if not data:
                return

    def begin(self, program, seconds):
        """Returns what came after the machine's answer."""
        token = os.urandom(16).hex()
        self.send(BEGIN, json.dumps({"token": token, "program": program, "environment": dict(os.environ),
                                     "directory": os.getcwd()}).encode())
        self.line.settimeout(seconds)
        came = b""
        try:
            while token.encode() not in came:
                more = self.line.recv(CHUNK)
                if not more:
                    fail("the virtual machine has ended")
                came += more
        except TimeoutError:
            fail(f"the virtual machine did not answer within {seconds:.0f} s")
        self.line.settimeout(None)
        return came.partition(token.encode())[2]

    def run(self, program, seconds):
        """Returns the program's exit status."""
        reader = Reader(lambda: self.line.recv(CHUNK), self.begin(program, seconds))
        for number in PASSED_ON:
            signal.signal(number, lambda got, _: self.send(SIGNAL, str(int(got)).encode()))
        threading.Thread(target=self.copy_input, daemon=True).start()
        while (frame := reader.frame()) is not None:
            kind, body = frame
            if kind == EXIT:
                return int(body)
            if kind == TAKEN:
                self.taken.release()
            else:
                write_all({OUTPUT: 1, ERROR: 2}[kind], body)
        return fail("the virtual machine has ended")


def main(directory, seconds, *program):
    try:
        status = Client(connect(directory)).run(list(program), float(seconds))
    except BrokenPipeError:
        status = 128 + signal.SIGPIPE
    except OSError as error:
        fail(f"the virtual machine of {directory} is not reached: {error.strerror}")
    os._exit(status)
