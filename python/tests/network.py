# network.py - a unetd and its endpoints, for the tests of this directory.
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import daemon
import unet

HANG = 60  # seconds; an upper bound for what takes milliseconds on an idle machine


class NetworkTest(unittest.TestCase):
    """A test with a unetd and a context."""

    unetd_options = ()

    def setUp(self):
        directory = daemon.directory()
        self.ni = "unix:" + directory.__enter__() + "/socket"
        self.addCleanup(directory.__exit__, None, None, None)
        self.unetd = daemon.Unetd(os.environ["UNETD"], "--socket", self.ni.removeprefix("unix:"), "--host", "alpha",
                                  *self.unetd_options).__enter__()
        self.addCleanup(self.unetd.__exit__)
        self.context = unet.Context(self.ni)
        self.addCleanup(self.context.close)
        self.pool = concurrent.futures.ThreadPoolExecutor()
        self.addCleanup(self.pool.shutdown)

    def endpoint(self, name=None, **sizes):
        endpoint = self.context.endpoint(**sizes)
        self.addCleanup(endpoint.close)
        if name is not None:
            endpoint.bind(name)
        return endpoint

    def pair(self, **options):
        """Two joined endpoints: the channel at the one that connected, and at the one that accepted."""
        self.pairs = getattr(self, "pairs", 0) + 1
        one, other = self.endpoint(), self.endpoint(f"other{self.pairs}")
        accepted = self.pool.submit(other.accept, HANG)
        channel = one.connect(f"other{self.pairs}", **options)
        return channel, accepted.result()

    def assert_ctrl_c(self, call):
        """Ctrl-C soon ends a call that waits."""
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        pressed = []

        def press():
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.25, press)
        timer.start()
        try:
            with self.assertRaises(KeyboardInterrupt):
                call()
            took = time.monotonic() - pressed[0]
        finally:
            timer.cancel()
            timer.join()
        self.assertLess(took, 2)  # the least time limit of these calls is 5 s

    def python(self, program, status=0):
        """Runs a program in a new interpreter, with `ni` defined; returns what it prints."""
        done = subprocess.run([sys.executable, "-c", f"import unet\nni = {self.ni!r}\n{program}"], text=True, capture_output=True,
                              timeout=HANG, check=False)
        self.assertEqual((done.returncode, done.stderr), (status, ""))
        return done.stdout


def main():
    unittest.main(argv=sys.argv, verbosity=2)
