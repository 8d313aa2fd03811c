# test_asyncio.py - endpoints in an event loop, which sleeps on their descriptors.
import asyncio
import time

import network
import unet
from network import HANG
from unet import aio


class EventLoop(network.NetworkTest):
    def run_scene(self, scene):
        asyncio.run(asyncio.wait_for(scene(), HANG))

    def test_two_endpoints_in_one_loop(self):
        async def scene():
            async with aio.Endpoint(self.endpoint()) as one, aio.Endpoint(self.endpoint("other")) as other:
                here, there = await asyncio.gather(one.connect("other"), other.accept())

                async def echo():
                    async for message in other:
                        with message:
                            await other.send(there, message.data)

                echoing = asyncio.create_task(echo())
                for round_ in range(1000):
                    await one.send(here, b"%d" % round_)
                    with await one.receive() as message:
                        self.assertEqual(int(bytes(message)), round_)
                echoing.cancel()
                here.close()
                self.assertEqual((await other.next_event()).reason, "closed_by_peer")
                with self.assertRaises(LookupError):
                    await one.connect("absent")

        self.run_scene(scene)

    def test_a_sender_waits_for_room(self):
        async def scene():
            here, there = self.pair(local_depth=16)
            async with aio.Endpoint(here.endpoint) as one:
                sending = asyncio.create_task(self.send_all(one, here, 1000))
                received = 0
                while received < 1000:
                    await asyncio.sleep(0)
                    received += sum(1 for _ in there.endpoint.messages())
                await sending

        self.run_scene(scene)

    def test_a_sender_does_not_wait_for_a_peer_that_is_gone(self):
        async def scene():
            here, there = self.pair(local_depth=16)
            async with aio.Endpoint(here.endpoint) as one:
                sending = asyncio.create_task(self.send_all(one, here, 1000))
                await asyncio.sleep(0.01)
                self.assertFalse(sending.done())
                there.close()
                with self.assertRaises(unet.NoChannelError):
                    await sending
                self.assertEqual((await one.next_event()).reason, "closed_by_peer")

        self.run_scene(scene)

    @staticmethod
    async def send_all(endpoint, channel, count):
        for _ in range(count):
            await endpoint.send(channel, b"message")

    def test_an_idle_loop_sleeps(self):
        async def scene():
            here, there = self.pair()
            async with aio.Endpoint(there.endpoint) as waiting:
                receiving = asyncio.create_task(waiting.receive())
                used = time.process_time()
                await asyncio.sleep(0.3)
                self.assertLess(time.process_time() - used, 0.15)
                here.send(b"wake up")
                self.assertEqual(bytes(await receiving), b"wake up")

        self.run_scene(scene)

    def test_tasks_that_are_cancelled_lose_nothing(self):
        async def scene():
            here, there = self.pair()
            async with aio.Endpoint(there.endpoint) as waiting:
                tasks = [asyncio.create_task(waiting.receive()) for _ in range(3)]
                await asyncio.sleep(0)
                tasks[0].cancel()
                here.send(b"one")
                here.send(b"two")
                self.assertEqual([bytes(message) for message in await asyncio.gather(*tasks[1:])], [b"one", b"two"])
                with self.assertRaises(TimeoutError):
                    await asyncio.wait_for(waiting.receive(), 0.01)
                receiving = asyncio.create_task(waiting.receive())
                await asyncio.sleep(0)
            with self.assertRaises(RuntimeError):
                await receiving
            there.send(b"by blocking calls again")
            self.assertIsNotNone(here.endpoint.receive(HANG))

        self.run_scene(scene)


if __name__ == "__main__":
    network.main()
