# guest_agent.py - process 1 of a virtual machine: runs the programs that guest_client.py asks for, one for each port of virtio-serial.
import contextlib
import glob
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading

from guest_frames import BEGIN, CHUNK, ERROR, EXIT, INPUT, OUTPUT, SIGNAL, TAKEN, Reader, pack, write_all

PORTS = "/sys/class/virtio-ports/*/name"
NAME = "testbed."
LINGER = 0.5  # seconds for a program's last output; its background processes may keep the pipes open for longer
NO_PROGRAM = 127


class Session:
    """One program. Threads copy its input and output until its end."""

    def __init__(self, port, wanted):
        self.port, self.input = port, queue.SimpleQueue()
        place = wanted["directory"] if os.path.isdir(wanted["directory"]) else "/"
        self.process = subprocess.Popen(wanted["program"], env=wanted["environment"], cwd=place, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)

    def start(self):
        outputs = [threading.Thread(target=self.copy_output, args=arguments, daemon=True)
                   for arguments in ((self.process.stdout, OUTPUT), (self.process.stderr, ERROR))]
        for thread in [*outputs, threading.Thread(target=self.copy_input, daemon=True),
                       threading.Thread(target=self.report_end, args=(outputs,), daemon=True)]:
            thread.start()

    def copy_output(self, stream, kind):
        # Goes on after the end of the session: a background process must not fail because nothing reads its output.
        while data := os.read(stream.fileno(), CHUNK):
            self.port.send(self, kind, data)

    def copy_input(self):
        while data := self.input.get():
            with contextlib.suppress(BrokenPipeError):
                write_all(self.process.stdin.fileno(), data)
            self.port.send(self, TAKEN)
        self.process.stdin.close()

    def report_end(self, outputs):
        code = self.process.wait()
        self.input.put(b"")
        for thread in outputs:
            thread.join(LINGER)
        self.port.send(self, EXIT, str(code if code >= 0 else 128 - code).encode())

    def take(self, kind, body):
        if kind == INPUT:
            self.input.put(body)
        elif kind == SIGNAL:
            self.signal(int(body))

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)


class Port:
    def __init__(self, path):
        self.descriptor = os.open(path, os.O_RDWR)
        self.lock, self.session = threading.Lock(), None
        self.reader = Reader(lambda: os.read(self.descriptor, CHUNK))
        # While no process on the host has the port open, a read returns nothing at once. An edge tells when to read again.
        self.edge = select.epoll()
        self.edge.register(self.descriptor, select.EPOLLIN | select.EPOLLET)

    def send(self, session, kind, body=b""):
        with self.lock:
            if self.session is session:
                write_all(self.descriptor, pack(kind, body))

    def begin(self, wanted):
        # The token tells the client where its own session begins: bytes of an earlier one may be under way.
        try:
            session, why = Session(self, wanted), ""
        except OSError as error:
            session, why = object(), f"testbed: {wanted['program'][0]}: {error.strerror}\n"
        with self.lock:
            self.session = session
            write_all(self.descriptor, wanted["token"].encode())
        if why:
            self.send(session, ERROR, why.encode())
            self.send(session, EXIT, str(NO_PROGRAM).encode())
        else:
            session.start()

    def end(self):
        """Ends the program: the process on the host that asked for it is gone."""
        session, self.session = self.session, None
        if isinstance(session, Session):
            session.signal(signal.SIGKILL)

    def serve(self):
        while True:
            frame = self.reader.frame()
            if frame is None:
                self.end()
                self.edge.poll()
            elif frame[0] == BEGIN:
                self.end()
                self.begin(json.loads(frame[1]))
            elif isinstance(self.session, Session):
                self.session.take(*frame)


def serve_all():
    threads = []
    for path in glob.glob(PORTS):
        with open(path, encoding="ascii") as file:
            if not file.read().startswith(NAME):
                continue
        port = Port("/dev/" + os.path.basename(os.path.dirname(path)))
        threads.append(threading.Thread(target=port.serve))
        threads[-1].start()
    for thread in threads:
        thread.join()


def main():
    agent = os.fork()
    if agent == 0:
        serve_all()
        os._exit(1)
    # Process 1 inherits every orphan. If the agent ends, so does the machine.
    while os.wait()[0] != agent:
        pass
    sys.exit("testbed: the agent has ended")
