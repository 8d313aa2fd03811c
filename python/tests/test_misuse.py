# test_misuse.py - what a program must not do, and what happens to it: an exception, and never a crash of the interpreter.
import contextlib
import gc
import os
import signal
import threading
import time

import network
import unet
from network import HANG
from unet import am, rpc


class Misuse(network.NetworkTest):
    def test_two_threads_in_one_endpoint(self):
        here, there = self.pair()
        endpoint = there.endpoint
        waiting = self.pool.submit(endpoint.receive, HANG)
        while not endpoint._guard.busy:
            time.sleep(0.001)
        with self.assertRaises(unet.BusyError):
            while not waiting.done():
                endpoint.wait(0)
        with self.assertRaises(unet.BusyError):
            while not waiting.done():
                endpoint.close()
        here.send(b"x")
        self.assertEqual(waiting.result().data, b"x")

    def test_a_thread_closes_what_another_one_reads(self):
        for closes_endpoint in (False, True) * 20:
            here, there = self.pair()
            reading = self.pool.submit(self.read, there.endpoint)
            with contextlib.suppress(unet.FullError, unet.NoChannelError):
                for _ in range(20):
                    here.send(b"longer than one cache line, so that it is read where it arrived" * 10)
            while not reading.done():
                with contextlib.suppress(unet.BusyError, BufferError):
                    (there.endpoint if closes_endpoint else there).close()
            reading.result()

    @staticmethod
    def read(endpoint):
        views = []
        try:
            while (message := endpoint.receive(0.001)) is not None:
                views.append(message.data[5:])
                bytes(views.pop(0)) if len(views) > 3 else message
        except (unet.ClosedError, unet.BusyError):
            pass

    def test_a_child_cannot_use_its_parents_objects(self):
        here, there = self.pair()
        here.send(b"before")
        child = os.fork()
        if child == 0:
            wrong = 1
            try:
                calls = [lambda: here.send(b"x"), lambda: there.endpoint.receive(0), lambda: here.endpoint.bind("x"), self.context.report]
                for call in calls:
                    try:
                        call()
                    except unet.ForkedError:
                        continue
                    os._exit(2)
                here.endpoint.close()
                with unet.Context(self.ni) as context, context.endpoint() as endpoint:
                    endpoint.bind("child")
                wrong = 0
            finally:
                os._exit(wrong)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(there.endpoint.receive_bytes(HANG)[1], b"before")
        here.send(b"after")
        self.assertEqual(there.endpoint.receive_bytes(HANG)[1], b"after")

    def test_a_child_leaves_its_parents_calls_alone(self):
        server, client = rpc.Server(self.context, "server"), rpc.Client(self.context)
        self.addCleanup(server.close)
        self.addCleanup(client.close)
        server.provide("test", 1, 0, lambda arguments: arguments)
        bound = self.pool.submit(client.bind, "server", "test")
        while not bound.done():
            server.wait(0.01)
        calls = [bound.result().start(0, b"x")]
        child = os.fork()
        if child == 0:
            try:
                client._calls.clear()
                calls.clear()
                gc.collect()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        while not calls[0].done:
            server.poll()
            client.poll()
        self.assertEqual(calls[0].result(), b"x")

    def test_an_interpreter_exits_with_everything_open(self):
        for end in ("", "raise SystemExit(0)", "del context, one, other"):
            self.python(f"""
context = unet.Context(ni)
one, other = context.endpoint(), context.endpoint()
other.bind("exit")
import threading
accepting = threading.Thread(target=lambda: globals().update(there=other.accept(60)))
accepting.start()
here = one.connect("exit")
accepting.join()
region = other.expose(4096)
here.send(b"x" * 1000)
view = other.receive(60).data
{end}
""")

    def test_an_interpreter_exits_during_a_call(self):
        for end in ("", "del client, call, binding", "import gc; del client, call, binding, server; gc.collect()"):
            self.python(f"""
import threading
from unet import am, rpc
context = unet.Context(ni)
messages = am.Endpoint(context, "messages")
messages.set_handler(1, print)
server, client = rpc.Server(context, "exit"), rpc.Client(context)
server.provide("test", 1, 0, lambda arguments: arguments)
binding = None
def bind():
    global binding
    binding = client.bind("exit", "test")
binding_thread = threading.Thread(target=bind)
binding_thread.start()
while binding is None:
    server.wait(0.01)
binding_thread.join()
call = binding.start(0, b"x")
{end}
""")

    def test_the_network_interface_goes_away(self):
        endpoint = self.endpoint()
        waiting = self.pool.submit(endpoint.receive, HANG)
        time.sleep(0.05)
        self.unetd.process.kill()
        with self.assertRaises(ConnectionError) as raised:
            while waiting.result() is None:
                endpoint.next_event()
                waiting = self.pool.submit(endpoint.receive, HANG)
        self.assertIn("network interface", str(raised.exception))
        self.assertFalse(self.context.alive)
        with self.assertRaises(unet.UnetError):
            endpoint.bind("name")

    def assert_interrupted(self, call):
        """A signal ends the call, if its handler raises."""

        def interrupt(*_):
            raise InterruptedError("by the test")

        before = signal.signal(signal.SIGUSR1, interrupt)
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        try:
            with self.assertRaises(InterruptedError):
                timer.start()
                call()
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, before)

    def test_a_signal_ends_a_wait(self):
        endpoint = self.endpoint()
        for call in (endpoint.receive, endpoint.receive_bytes, endpoint.wait, endpoint.accept, lambda: endpoint.receive(spin=HANG)):
            self.assert_interrupted(call)

    def test_a_signal_ends_a_connect(self):
        self.endpoint("busy")  # never accepts
        for target, wait in (("busy", 0), ("absent", HANG)):
            endpoint = self.endpoint()
            self.assert_interrupted(lambda: endpoint.connect(target, timeout=None, wait=wait))

    def test_a_signal_ends_the_wait_of_a_request(self):
        server, client = am.Endpoint(self.context, "server"), am.Endpoint(self.context)
        self.addCleanup(server.close)
        self.addCleanup(client.close)
        mapped = self.pool.submit(client.map, 0, "server", wait=HANG)
        while not mapped.done():
            server.wait(0.01)
        self.assert_interrupted(lambda: [client.request(0, 1) for _ in range(1000)])  # more than there are credits

    def test_garbage_in_cycles(self):
        other = self.context.endpoint()
        other.bind("garbage")
        accepted = self.pool.submit(other.accept, HANG)
        here, there = self.endpoint().connect("garbage"), accepted.result()
        del other, accepted
        here.send(b"a message longer than one cache line, with a view that is in a cycle with its endpoint")
        message = there.endpoint.receive(HANG)
        view, there.endpoint.cycle = message.data[2:], [message]
        region = there.endpoint.expose(4096)
        there.endpoint.cycle += [view, region]
        del message, view, region, there
        gc.collect()
        self.assertTrue(here.endpoint.wait(HANG))
        self.assertEqual(here.endpoint.next_event().reason, "closed_by_peer")

    def test_wrong_types(self):
        here, _ = self.pair()
        for call in (lambda: here.send(None), lambda: here.put("0", b""), lambda: here.endpoint.bind(1), lambda: here.put(0, 1),
                     lambda: here.endpoint.receive("soon"), lambda: unet.Context(5), lambda: here.endpoint.expose("much"),
                     lambda: here.endpoint.connect(None)):
            with self.assertRaises((TypeError, AttributeError)):
                call()
        with self.assertRaises(OverflowError):
            here.put(-1, b"")
        with self.assertRaises(ValueError):
            here.endpoint.connect("other\0name")
        self.assertIsNone(here.endpoint.receive(-1))
        with self.assertRaises(unet.ClosedError):
            with unet.Context(self.ni) as context:
                pass
            context.endpoint()

    def test_a_closed_channels_messages_are_gone(self):
        here, there = self.pair()
        for text in (b"one", b"two"):
            here.send(text * 100)
        message, other = there.endpoint.receive(HANG), there.endpoint.receive(HANG)
        view = message.data
        with self.assertRaises(BufferError):
            there.close()
        self.assertEqual(bytes(view[:3]), b"one")
        message.release()
        there.close()
        with self.assertRaises(unet.ClosedError):
            other.data
        other.release()


if __name__ == "__main__":
    network.main()
