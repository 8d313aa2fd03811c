# test_channels.py - contexts, endpoints, channels, messages, regions and waiting from Python.
import array
import gc
import threading
import time
import unittest

import network
import unet
from network import HANG

try:
    import numpy
except ImportError:
    numpy = None


class Channels(network.NetworkTest):
    def test_anything_with_the_buffer_protocol_is_sent(self):
        here, there = self.pair()
        self.assertEqual((here.kind, here.is_open, there.request.same_user), ("local", True, True))
        words = array.array("d", [1.5, 2.5])
        for data in (b"", b"bytes", bytearray(b"bytearray"), memoryview(b"view")[1:3], words, b"x" * unet.INLINE_MAX, b"y" * 2048,
                     b"z" * 2049, b"y" * unet.MESSAGE_MAX):
            here.send(data)
            channel, received = there.endpoint.receive_bytes(HANG)
            self.assertIs(channel, there)
            self.assertEqual(received, bytes(data))
        with self.assertRaises(unet.TooLongError):
            here.send(b"z" * (unet.MESSAGE_MAX + 1))
        with self.assertRaises((BufferError, ValueError)):
            here.send(memoryview(b"0123456789")[::2])
        with self.assertRaises(TypeError):
            here.send("text")

    @unittest.skipUnless(numpy, "numpy is not installed")
    def test_an_array_is_sent_and_received_without_a_copy(self):
        here, there = self.pair()
        here.send(numpy.arange(1000.0))
        with there.endpoint.receive(HANG) as message:
            values = numpy.frombuffer(message.data)
            self.assertEqual(values.sum(), 499500.0)
            self.assertFalse(values.flags.writeable)
            with self.assertRaises(BufferError):
                message.release()
            del values

    def test_a_released_message_cannot_be_read(self):
        here, there = self.pair()
        here.send(b"some message of more than a cache line, so that it lies in the ring of data")
        message = there.endpoint.receive(HANG)
        view = message.data
        self.assertTrue(view.readonly)
        self.assertEqual((message.length, bytes(view[:4])), (75, b"some"))
        part = view[5:12]
        with self.assertRaises(BufferError):
            message.release()
        self.assertEqual(bytes(part), b"message")
        del part
        message.release()
        message.release()
        for use in (lambda: view[0], lambda: message.data, lambda: bytes(message)):
            with self.assertRaises(ValueError):
                use()

    def test_memory_returns_when_nothing_uses_a_message(self):
        here, there = self.pair(local_depth=16)
        for round_ in range(100):  # more than the ring has room for
            here.send(b"message %3d, and its slice that outlives it, longer than a line" % round_)
            part = there.endpoint.receive(HANG).data[8:11]
            gc.collect()
            self.assertEqual(int(bytes(part)), round_)
            there.endpoint.receive(0)  # releases the former slice

    def test_memory_of_a_closed_endpoint_lives_as_long_as_its_views(self):
        here, there = self.pair()
        region = there.endpoint.expose(4096)
        here.send(b"a message longer than one cache line, that is read after the close of its endpoint")
        message, unread = there.endpoint.receive(HANG).data, None
        here.send(b"another")
        unread = there.endpoint.receive(HANG)
        there.endpoint.close()
        self.assertEqual(bytes(message[:9]), b"a message")
        region[0] = 1
        with self.assertRaises(unet.ClosedError):
            unread.data
        unread.release()
        with self.assertRaises(unet.ClosedError):
            there.send(b"x")
        with self.assertRaises(unet.ClosedError):
            there.endpoint.receive(0)

    def test_a_full_channel_refuses_until_there_is_room(self):
        here, there = self.pair(local_depth=16)
        with self.assertRaises(unet.FullError):
            while True:
                here.send(b"x")
        self.assertFalse(here.wait_room(0.01))
        reader = self.pool.submit(lambda: [bytes(m) for m in there.endpoint.messages()])
        self.assertTrue(here.wait_room(HANG))
        reader.result()
        here.send(b"x")

    def test_puts_into_a_region(self):
        here, there = self.pair()
        region = there.endpoint.expose(4096)
        self.assertEqual(here.map_peer_region(), 4096)
        here.put(100, array.array("I", [1, 2, 3]), notify=True)
        message = there.endpoint.receive(HANG)
        self.assertEqual((message.kind, message.offset, message.length, bytes(message)), ("put", 100, 12, b""))
        self.assertEqual(region[100:112].cast("I").tolist(), [1, 2, 3])
        with self.assertRaises(unet.BoundsError):
            here.put(4095, b"xx")
        with self.assertRaises(unet.ExistsError):
            there.endpoint.expose(4096)

    def test_requests_and_events(self):
        one, other = self.endpoint(), self.endpoint("other")
        refused = self.pool.submit(one.connect, "other")
        self.assertTrue(other.wait(HANG))
        self.assertIsNone(other.receive(0))
        request = other.next_request()
        self.assertGreater(request.peer_pid, 0)
        request.reject()
        with self.assertRaises(ConnectionRefusedError):
            refused.result()
        self.assertIsNone(other.next_request())
        accepted = self.pool.submit(other.accept, HANG)
        here, there = one.connect("other"), accepted.result()
        here.close()
        self.assertTrue(other.wait(HANG))
        event = other.next_event()
        self.assertEqual((event.kind, event.channel, event.reason), ("closed", there, "closed_by_peer"))
        self.assertFalse(there.is_open)
        with self.assertRaises(unet.NoChannelError):
            there.send(b"x")
        there.close()

    def test_errors_have_the_text_of_the_library(self):
        endpoint = self.endpoint("name")
        cases = [
            (LookupError, lambda: endpoint.connect("absent")),
            (unet.ExistsError, lambda: self.endpoint().bind("name")),
            (ValueError, lambda: self.endpoint().bind("no name")),
            (ValueError, lambda: endpoint.connect("name", path="slow")),
            (TimeoutError, lambda: endpoint.accept(0.01)),
            (unet.UnavailableError, lambda: unet.Context("unix:/nowhere/socket")),
            (unet.UnavailableError, lambda: unet.Context("nothing")),
            (unet.InvalidError, lambda: self.endpoint(weight=1000)),
        ]
        for error, call in cases:
            with self.assertRaises(error) as raised:
                call()
            self.assertGreater(len(str(raised.exception)), 10, raised.exception)
        self.assertEqual(unet.NotFoundError("x").name, "not_found")

    def test_waits_release_the_interpreter(self):
        endpoint = self.endpoint()
        for spin in (None, 1.0):
            counted, stop = 0, threading.Event()

            def count():
                nonlocal counted
                while not stop.is_set():
                    counted += 1
                    time.sleep(0.001)

            other = threading.Thread(target=count)
            other.start()
            start = time.monotonic()
            self.assertIsNone(endpoint.receive(0.2, spin=spin))
            self.assertGreaterEqual(time.monotonic() - start, 0.2)
            stop.set()
            other.join()
            self.assertGreater(counted, 10)

    def test_reports_and_counters(self):
        here, there = self.pair(path="ni")
        here.send(b"hello")
        self.assertEqual(there.endpoint.receive_bytes(HANG)[1], b"hello")
        self.assertEqual(here.kind, "ni")
        self.assertEqual(here.endpoint.counters()["sent_messages"], 1)
        self.assertTrue(self.context.report()["endpoints"])
        self.assertTrue(self.context.alive)


if __name__ == "__main__":
    network.main()
