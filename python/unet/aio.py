# aio.py - endpoints, and clients and servers of calls, in an asyncio event loop: a Pump takes what has arrived, and sleeps on a descriptor.
from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from . import endpoint as blocking
from .endpoint import Channel, Event, Message, Path, Request, connect_options
from .errors import FullError, UnetError

T = TypeVar("T")
POLLS_MOST = 16  # of a pump, before other tasks run


class Pump:
    """Calls `take` until there is nothing left, then sleeps on the descriptor that `arm` returns.

    arm() returns None if there is something already, else a descriptor, and the seconds after which to take anyway (None: no limit).
    """

    def __init__(self, take: Callable[[], None], arm: Callable[[], tuple[int, float | None] | None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._arm = arm
        self._descriptor = -1
        self._timer: asyncio.Handle | None = None
        self._failed: Callable[[Exception], None] = lambda _: None

    def start(self, failed: Callable[[Exception], None]) -> None:
        """`failed`: runs with the exception that stopped the pump."""
        self._failed = failed
        self.poll()

    def poll(self) -> None:
        try:
            for _ in range(POLLS_MOST):
                self._take()
                armed = self._arm()
                if armed is not None:
                    self._sleep(*armed)
                    return
        except Exception as error:  # noqa: BLE001: all of it goes to the tasks that wait
            self.stop()
            self._failed(error)
            return
        self._cancel_timer()
        self._timer = self._loop.call_soon(self.poll)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sleep(self, descriptor: int, limit: float | None) -> None:
        self._cancel_timer()
        if limit is not None:
            self._timer = self._loop.call_later(limit, self.poll)
        if descriptor != self._descriptor:
            self._forget_descriptor()
            self._loop.add_reader(descriptor, self.poll)
            self._descriptor = descriptor

    def _forget_descriptor(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = -1

    def stop(self) -> None:
        self._forget_descriptor()
        self._cancel_timer()


class _Queue(Generic[T]):
    """Objects that have arrived, and the tasks that wait for one."""

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def put(self, item: T) -> None:
        self.items.append(item)
        self.wake_one()

    def wake_one(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    def wake_all(self) -> None:
        while self._waiting:
            self.wake_one()

    def fail(self, error: Exception) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)

    async def wait(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.wake_one()  # this task does not use its turn
            raise

    async def get(self) -> T:
        while not self.items:
            await self.wait()
        return self.items.popleft()


class Endpoint:
    """An endpoint in the running event loop. Make it in a coroutine; close() gives the endpoint back to blocking calls.

    It takes everything that arrives; messages that no task has received occupy the endpoint's receive buffers, as without asyncio.
    """

    def __init__(self, endpoint: blocking.Endpoint) -> None:
        self.blocking = endpoint
        self._messages: _Queue[Message] = _Queue()
        self._requests: _Queue[Request] = _Queue()
        self._events: _Queue[Event] = _Queue()
        self._answers: dict[int, asyncio.Future[Channel]] = {}  # by pending connects
        self._full: Channel | None = None  # the channel without room that the descriptor waits for
        self._senders: _Queue[None] = _Queue()  # tasks that wait for it
        self._error: Exception | None = None
        self._pump = Pump(self._take, self._arm)
        self._pump.start(self._failed)

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops using the event loop. The endpoint itself stays open."""
        self._pump.stop()
        self._failed(RuntimeError("the endpoint does not use the event loop any more: close() was called"))

    async def receive(self) -> Message:
        return await self._get(self._messages)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            yield await self.receive()

    async def next_request(self) -> Request:
        return await self._get(self._requests)

    async def accept(self) -> Channel:
        return (await self.next_request()).accept()

    async def next_event(self) -> Event:
        return await self._get(self._events)

    async def connect(self, target: str, *, path: Path = "automatic", timeout: float | None = 5.0) -> Channel:
        """Opens a channel to "NAME" or "NAME@HOST"."""
        self._check()
        pending = self.blocking._start_connect(target, connect_options(path, timeout))
        future: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()
        self._answers[pending] = future
        try:
            self._pump.poll()
            return await future
        except BaseException:
            self.blocking._cancel_connect(pending)
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().close()  # it opened when this task was cancelled
            raise
        finally:
            self._answers.pop(pending, None)

    async def send(self, channel: Channel, data: Any) -> None:
        """Sends one message, and waits while the channel has no room."""
        while True:
            self._check()
            try:
                return channel.send(data)
            except FullError:
                pass
            if self._full is None:
                self._full = channel
                self._pump.poll()
            if self._full is channel:
                await self._senders.wait()
            else:  # there is room already, or the descriptor waits for another channel, and can wait for one only
                await asyncio.sleep(0 if self._full is None else 0.001)

    # ---- the pump's functions

    def _take(self) -> None:
        endpoint = self.blocking
        while (request := endpoint.next_request()) is not None:
            self._requests.put(request)
        while (event := endpoint.next_event()) is not None:
            self._events.put(event)
        for message in endpoint.messages():
            self._messages.put(message)
        for pending, future in list(self._answers.items()):
            if future.done():
                continue  # cancelled
            try:
                channel = endpoint._poll_connect(pending)
                if channel is not None:
                    future.set_result(channel)
            except UnetError as error:
                future.set_exception(error)

    def _arm(self) -> tuple[int, float | None] | None:
        endpoint = self.blocking
        if self._full is not None:
            if endpoint.arm(self._full):
                return endpoint.fileno(), None
            self._full = None
            self._senders.wake_all()
        return (endpoint.fileno(), None) if endpoint.arm() else None

    def _failed(self, error: Exception) -> None:
        self._error = self._error or error
        queues: tuple[_Queue[Any], ...] = (self._messages, self._requests, self._events, self._senders)
        for queue in queues:
            queue.fail(error)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(error)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _get(self, queue: _Queue[T]) -> T:
        if not queue.items:
            self._check()
        return await queue.get()
