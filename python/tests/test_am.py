# test_am.py - Active Messages with Python handlers.
import array

import network
import unet
from network import HANG
from unet import am


class ActiveMessages(network.NetworkTest):
    def setUp(self):
        super().setUp()
        self.server, self.client = am.Endpoint(self.context, "server"), am.Endpoint(self.context)
        self.addCleanup(self.server.close)
        self.addCleanup(self.client.close)
        mapped = self.pool.submit(self.client.map, 0, "server")
        while not mapped.done():
            self.server.wait(0.01)
        mapped.result()
        self.answers = []
        self.client.set_handler(1, lambda message: self.answers.append((message.arguments, message.payload)))

    def run_until(self, done):
        while not done():
            self.server.wait(0.001)
            self.client.wait(0.001)

    def test_requests_and_replies(self):
        @self.server.handler(7)
        def double(message):
            self.assertTrue(message.is_request and message.can_reply)
            message.reply(1, *(2 * value for value in message.arguments), payload=message.payload or None)
            self.kept = message

        self.client.request(0, 7, 1, 2, 3)
        self.client.request(0, 7, payload=b"medium")
        self.client.request(0, 7, 3, payload=array.array("H", [1, 2]))
        with self.assertRaises(OverflowError):
            self.client.request(0, 7, -1)
        self.run_until(lambda: len(self.answers) == 3)
        self.assertEqual(self.answers, [((2, 4, 6), b""), ((), b"medium"), ((6,), bytes(array.array("H", [1, 2])))])
        with self.assertRaises(unet.ClosedError):
            self.kept.arguments

    def test_long_messages_and_gets(self):
        segment, mine = self.server.expose(1 << 20), bytearray(5)
        arrived = []

        @self.server.handler(2)
        def stored(message):
            arrived.append((message.kind, message.offset, message.length, message.arguments))

        self.client.request(0, 2, 9, payload=b"x" * 100000, offset=10)
        self.run_until(lambda: arrived)
        self.assertEqual(arrived, [("long_request", 10, 100000, (9,))])
        self.assertEqual(bytes(segment[9:12]), b"\0xx")
        segment[500:505] = b"bytes"
        self.client.get(0, 1, 500, mine, 4)
        self.run_until(lambda: self.answers)
        self.assertEqual((self.answers, mine), ([((4,), b"bytes")], b"bytes"))
        self.assertEqual(self.client._gets, {})
        with self.assertRaises((BufferError, ValueError)):
            self.client.get(0, 1, 500, b"read-only")

    def test_a_handler_that_raises(self):
        @self.server.handler(3)
        def broken(message):
            raise KeyError("broken")

        self.client.request(0, 3)
        with self.assertRaises(KeyError):
            while True:
                self.server.wait(HANG)
        self.assertEqual(self.server.poll(), 0)

    def test_a_handler_may_not_close_or_request(self):
        @self.server.handler(3)
        def close(message):
            self.server.close()

        @self.server.handler(4)
        def request(message):
            self.server.request(0, 1)

        for handler, error in ((3, RuntimeError), (4, unet.UndeliveredError)):
            self.client.request(0, handler)
            with self.assertRaises(error):
                while True:
                    self.server.wait(HANG)

    def test_messages_that_come_back(self):
        returned = []
        self.client.on_returned(returned.append)
        self.client.request(0, 200, 5)  # no such handler
        self.run_until(lambda: returned)
        self.assertEqual((returned[0].status, returned[0].handler, returned[0].kind), ("bad_handler", 200, "short_request"))
        with self.assertRaises(unet.UnetError):
            self.client.request(99, 1)
        with self.assertRaises(unet.UndeliveredError):
            self.client.request(0, 1, *range(17))
        with self.assertRaises(LookupError):
            self.client.map(5, "absent")

    def test_a_get_that_comes_back_gives_its_memory_back(self):
        returned, mine = [], bytearray(5)
        self.server.expose(1 << 12)
        self.client.on_returned(returned.append)
        for handler, offset in ((1, 1 << 20), (200, 0)):  # beyond the segment; no such handler here
            try:
                self.client.get(0, handler, offset, mine, 4)
            except unet.UndeliveredError:
                pass
            self.run_until(lambda: returned)
            self.assertEqual((returned.pop().kind, self.client._gets), ("get", {}))
        mine.extend(b"may grow again")
        self.client.on_returned(None)
        self.client.get(0, 200, 0, mine)
        self.run_until(lambda: not self.client._gets)

    def test_ctrl_c_ends_map(self):
        silent = am.Endpoint(self.context, "silent")
        self.addCleanup(silent.close)
        self.assert_ctrl_c(lambda: self.client.map(1, "silent"))
        self.assert_ctrl_c(lambda: self.client.map(1, "absent", wait=None))
        mapped = self.pool.submit(self.client.map, 1, "silent")  # the index is free
        while not mapped.done():
            silent.wait(0.01)
        mapped.result()

    def test_flush_and_counters(self):
        self.server.set_handler(2, lambda message: None)
        self.client.request(0, 2)
        self.run_until(lambda: self.server.counters()["handled"] == 1)
        self.client.flush(HANG)
        self.assertTrue(self.client.has_credit(0))
        self.assertEqual(self.client.counters()["requests"], 1)
        self.client.close()
        with self.assertRaises(unet.ClosedError):
            self.client.poll()


if __name__ == "__main__":
    network.main()
