# test_rpc.py - calls of procedures, blocking and in an event loop.
import asyncio
import struct
import threading
import time

import network
import unet
from network import HANG
from unet import rpc

ADD, ECHO, FAIL, REFUSE, BROKEN, SLOW = range(6)


class Calls(network.NetworkTest):
    def setUp(self):
        super().setUp()
        self.server = rpc.Server(self.context, "server")
        self.addCleanup(self.server.close)
        self.client = rpc.Client(self.context)
        self.addCleanup(self.client.close)
        self.server.provide("test", 1, ADD, self.add)
        self.server.provide("test", 1, ECHO, lambda arguments: arguments)

        @self.server.procedure("test", 1, FAIL)
        def fail(_):
            raise rpc.Failure(7)

        @self.server.procedure("test", 1, REFUSE)
        def refuse(_):
            raise rpc.BadArguments

        @self.server.procedure("test", 1, BROKEN)
        def broken(_):
            raise KeyError("broken")

        @self.server.procedure("test", 1, SLOW)
        async def slow(arguments):
            await asyncio.sleep(0.01)
            return arguments

    @staticmethod
    def add(arguments):
        return struct.pack("i", sum(struct.unpack("2i", arguments)))

    def serve(self):
        """In a thread, until the test ends."""
        self.errors = []

        def run():
            while not stop.is_set():
                try:
                    self.server.wait(0.05)
                except Exception as error:
                    self.errors.append(error)

        stop, thread = threading.Event(), threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(stop.set)
        return self.client.bind("server", "test")

    def assert_errors(self, *kinds):
        """The thread of the server raises them, after the calls have ended."""
        end = time.monotonic() + HANG
        while len(self.errors) < len(kinds) and time.monotonic() < end:
            time.sleep(0.001)
        self.assertEqual([type(error) for error in self.errors], list(kinds))

    def test_ctrl_c_ends_bind(self):
        self.assert_ctrl_c(lambda: self.client.bind("server", "test"))  # no channel
        bound = self.pool.submit(self.client.bind, "server", "test")
        while not bound.done():
            self.server.wait(0.01)
        bound.result()
        self.assert_ctrl_c(lambda: self.client.bind("server", "test"))  # no answer
        with self.assertRaises(unet.TimedOutError):
            self.client.bind("server", "test", timeout=0.2)
        with self.assertRaises(unet.NotFoundError):
            self.client.bind("absent", "test")

    def test_calls(self):
        binding = self.serve()
        self.assertEqual(struct.unpack("i", binding.call(ADD, struct.pack("2i", 1, 2))), (3,))
        for data in (b"", b"x" * 100, bytearray(300000)):
            self.assertEqual(binding.call(ECHO, data), bytes(data))
        calls = [binding.start(ECHO, b"%d" % i) for i in range(100)]
        self.assertEqual([call.result() for call in calls], [b"%d" % i for i in range(100)])
        binding.tell(ECHO, b"no answer")
        binding.release()
        with self.assertRaises(unet.ClosedError):
            binding.call(ECHO)

    def test_calls_that_fail(self):
        binding = self.serve()
        for procedure, status, number in ((FAIL, "failed", 7), (REFUSE, "bad_arguments", None), (BROKEN, "failed", 0),
                                          (SLOW, "failed", 0), (99, "no_procedure", None)):
            with self.assertRaises(rpc.CallError) as raised:
                binding.call(procedure)
            self.assertEqual((raised.exception.status, getattr(raised.exception, "number", None)), (status, number))
            self.assertEqual(raised.exception.may_have_run, status == "failed")
        with self.assertRaises(ValueError):
            binding.call(65536)
        with self.assertRaises(LookupError):
            self.client.bind("server", "another")
        self.assert_errors(KeyError, RuntimeError)

    def test_deadlines_and_ends(self):
        binding = self.client_of_silence()
        binding.set_timeout(0.05)
        with self.assertRaises(TimeoutError):
            binding.call(ECHO)
        binding.set_timeout(None)
        call = binding.start(ECHO)
        call.cancel()
        with self.assertRaises(rpc.CallError) as raised:
            call.result()
        self.assertEqual(raised.exception.status, "abandoned")
        call = binding.start(ECHO)
        self.client.close()
        with self.assertRaises(rpc.CallError):
            call.result()
        with self.assertRaises(unet.ClosedError):
            binding.call(ECHO)

    def client_of_silence(self):
        """A binding to a server that does not poll any more."""
        bound = self.pool.submit(self.client.bind, "server", "test")
        while not bound.done():
            self.server.wait(0.01)
        return bound.result()

    def test_a_procedure_may_not_change_its_server(self):
        self.server.provide("test", 1, 50, lambda _: self.server.close())
        self.server.provide("test", 1, 51, lambda _: self.server.provide("test", 1, 52, print))
        binding = self.serve()
        for procedure in (50, 51):
            with self.assertRaises(rpc.ProcedureError):
                binding.call(procedure)
        self.assert_errors(RuntimeError, RuntimeError)

    def test_an_event_loop_with_a_client_and_a_server(self):
        async def scene():
            binding = await asyncio.get_running_loop().run_in_executor(self.pool, self.client_of_silence)
            serving = asyncio.create_task(self.server.serve_async())
            results = await asyncio.wait_for(asyncio.gather(*(binding.call_async(SLOW, b"%d" % i) for i in range(50))), HANG)
            self.assertEqual(results, [b"%d" % i for i in range(50)])
            for _ in range(100):
                self.assertEqual(await binding.call_async(ECHO, b"echo"), b"echo")
            with self.assertRaises(rpc.ProcedureError):
                await binding.call_async(FAIL)
            with self.assertRaises(TimeoutError):
                await asyncio.wait_for(binding.call_async(SLOW), 0.001)
            with self.assertRaises(rpc.ProcedureError):
                await binding.call_async(BROKEN)
            with self.assertRaises(KeyError):
                await serving

        asyncio.run(scene())


if __name__ == "__main__":
    network.main()
