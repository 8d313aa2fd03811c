# endpoint.py - endpoints, channels, messages and regions of a network interface; what context.py makes and aio.py waits for.
#
# An endpoint belongs to one thread at a time. Calls release the interpreter's lock, so a second thread gets BusyError instead of harm.
from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from ._unet import ffi, lib
from .errors import BusyError, ClosedError, ForkedError, NotFoundError, check, disconnected, error_of
from .lifetime import PIECE, Closing, Handle, encoded, nanoseconds, options, text

T = TypeVar("T")
Path = Literal["automatic", "local", "ni"]
_PATHS = {"automatic": lib.UNET_PATH_AUTOMATIC, "local": lib.UNET_PATH_LOCAL, "ni": lib.UNET_PATH_NI}
_KINDS = {lib.UNET_KIND_NONE: None, lib.UNET_KIND_LOCAL: "local", lib.UNET_KIND_NI: "ni"}
_REASONS = {
    lib.UNET_REASON_NONE: None,
    lib.UNET_REASON_CLOSED_BY_PEER: "closed_by_peer",
    lib.UNET_REASON_PEER_DIED: "peer_died",
    lib.UNET_REASON_NI_STOPPED: "ni_stopped",
    lib.UNET_REASON_WIRE_LOST: "wire_lost",
}

_COPIED = 1 << 62  # see unet_py_receive_copy()
_send, _receive_copy = lib.unet_py_send, lib.unet_py_receive_copy  # found once: they are called for each message


def read_buffer(data: Any) -> tuple[Any, int]:
    """The memory of an object with the buffer protocol, which must be contiguous, and its bytes."""
    if type(data) is bytes:
        return data, len(data)  # cffi passes the memory of bytes as it is
    buffer = ffi.from_buffer("char[]", data)
    return buffer, len(buffer)


def connect_options(path: Path, timeout: float | None, local_depth: int | None = None, local_bytes: int | None = None) -> Any:
    if path not in _PATHS:
        raise ValueError(f"no such path: {path!r}; there are {', '.join(_PATHS)}")
    made = options("unet_connect_options", path=_PATHS[path], local_depth=local_depth, local_bytes=local_bytes)
    made.timeout_ns = max(1, nanoseconds(timeout)) if timeout is not None else -1
    return made


def until_bound(connect: Callable[[], T], wait: float | None, pause: Callable[[float], object]) -> T:
    """Calls `connect` until the name is bound, for `wait` seconds."""
    end = None if wait is None else time.monotonic() + wait
    while True:
        try:
            return connect()
        except NotFoundError:
            if end is not None and time.monotonic() >= end:
                raise
        pause(0.05)


@dataclass(frozen=True)
class Event:
    """A channel opened or closed without a call of this program."""

    kind: Literal["opened", "closed"]
    channel: Channel
    reason: str | None  # closed_by_peer, peer_died, ni_stopped, wire_lost
    peer: str


@dataclass(frozen=True)
class Request:
    """A request of a peer for a channel."""

    endpoint: Endpoint
    id: int
    peer: str  # for people
    peer_uid: int  # -1: on another host
    peer_pid: int
    same_user: bool

    def accept(self) -> Channel:
        with self.endpoint._use() as pointer:
            number = check(lib.unet_accept(pointer, self.id))
        return self.endpoint._channel(number, self)

    def reject(self) -> None:
        with self.endpoint._use() as pointer:
            check(lib.unet_reject(pointer, self.id))


class Channel:
    """A way to one peer. Over a wire messages may be lost or overtake each other; on one host none is lost."""

    def __init__(self, endpoint: Endpoint, number: int, request: Request | None) -> None:
        self.endpoint = endpoint
        self.number = number
        self.request = request  # of the peer that asked for the channel, if one did
        self._guard = endpoint._guard
        self._ended = False  # closed here: another channel may have the number

    def __repr__(self) -> str:
        return f"<unet.Channel {self.number} of endpoint {self.endpoint.id}>"

    def send(self, data: Any, *, more: bool = False) -> None:
        """Sends one message: bytes, or any contiguous object with the buffer protocol. Raises FullError if there is no room now."""
        if type(data) is bytes:
            result = _send(self._guard, self.number, data, len(data), more)
        else:
            buffer = ffi.from_buffer("char[]", data)
            result = _send(self._guard, self.number, buffer, len(buffer), more)
        if result:
            raise error_of(result)

    def put(self, offset: int, data: Any, *, notify: bool = False, more: bool = False) -> None:
        """Writes at `offset` of the region that the peer exposes; with `notify` the peer receives a message of kind "put"."""
        flags = (lib.UNET_NOTIFY if notify else 0) | (lib.UNET_MORE if more else 0)
        memory, length = read_buffer(data)
        check(lib.unet_py_put(self._guard, self.number, offset, memory, length, flags))

    def map_peer_region(self) -> int:
        """The size of the region that the peer of a local channel exposes."""
        size = ffi.new("uint64_t *")
        with self.endpoint._use() as pointer:
            check(lib.unet_map_peer_region(pointer, self.number, size))
        return int(size[0])

    def wait_room(self, timeout: float | None = None, spin: float | None = None) -> bool:
        """Waits for room after a FullError. False: the time is over, or the endpoint has something to take, which comes first."""
        return self.endpoint._wait(self.number, timeout, spin) == int(lib.UNET_ROOM)

    @property
    def is_open(self) -> bool:
        with self.endpoint._use() as pointer:
            return bool(lib.unet_is_open(pointer, self.number))

    @property
    def kind(self) -> str | None:
        """"local": memory of the two processes; "ni": the network interface; None: closed."""
        with self.endpoint._use() as pointer:
            return _KINDS[lib.unet_channel_kind(pointer, self.number)]

    def close(self) -> None:
        """Sends what is waiting, and closes. Messages of the channel must be released before: BufferError if one is not."""
        self.endpoint._close_channel(self)


class Message:
    """A received message, in place. Its memory returns to the sender at release(), or when nothing uses it any more.

    `data` is a read-only view; numpy.frombuffer(message.data) copies nothing. On a local channel the peer can still write the bytes: a
    program that does not trust its peer copies them (bytes(message)) before it checks them.
    """

    __slots__ = ("_endpoint", "_raw", "_view", "channel", "kind", "length", "offset")

    def __init__(self, endpoint: Endpoint, raw: Any, put: bool) -> None:
        self._endpoint = endpoint
        self._raw = raw
        self._view: memoryview | None = None
        self.channel = endpoint._channel(raw.channel)
        self.kind = "put" if put else "message"
        self.length: int = raw.length
        self.offset = raw.region_offset if put else 0  # of a put, in the region

    @property
    def data(self) -> memoryview:
        """After release() the view raises ValueError. Slices and arrays of it keep the message: release() then raises BufferError."""
        if self._view is not None:
            return self._view
        endpoint, raw = self._endpoint, self._raw
        if raw is None:
            raise ClosedError("this message is released: take bytes(message) before, to have its bytes after")
        if self.kind == "put" or self.length == 0:
            return memoryview(b"")
        endpoint._viewed[id(raw)] = self.channel  # first, so that a close() in another thread sees it, or is seen
        if self.channel._ended:
            del endpoint._viewed[id(raw)]
            raise ClosedError("the channel of this message is closed: take bytes(message) before, to have its bytes after")
        self._view = endpoint._handle.view(raw.data, self.length, partial(endpoint._view_ended, raw)).toreadonly()
        return self._view

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __enter__(self) -> Message:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            self.release()
        except BufferError:
            if error is None:  # else the traceback may have the slices: the memory returns when they are gone
                raise

    def release(self) -> None:
        """Gives the memory back. Does nothing the second time."""
        if self._view is not None:
            memory: Callable[[], Any] = weakref.ref(self._view.obj)
            with contextlib.suppress(BufferError):
                self._view.release()
                self._view = None
            if memory() is not None:
                self._view = self._view or memoryview(memory()).toreadonly()
                raise BufferError("slices or arrays of this message are in use: delete them before release()")
        elif self._raw is not None and not self.channel._ended:
            self._endpoint._returned.append(self._raw)
        self._raw = None
        self._endpoint._release_returned()

    def __del__(self) -> None:
        if self._raw is not None and self._view is None and not self.channel._ended:
            self._endpoint._returned.append(self._raw)  # with a view, the end of the view does it


class Endpoint(Closing):
    """A communication endpoint. Close it, or use it in a `with` statement."""

    def __init__(self, context: Any, *, send_depth: int | None = None, receive_depth: int | None = None, buffers: int | None = None,
                 buffer_size: int | None = None, send_bytes: int | None = None, emulated: bool = False, weight: int | None = None) -> None:
        """The sizes of its parts, as in unet.h; None: the default."""
        made = options("unet_endpoint_options", send_depth=send_depth, receive_depth=receive_depth, buffers=buffers,
                       buffer_size=buffer_size, send_bytes=send_bytes, emulated=int(emulated), weight=weight)
        out = ffi.new("unet_endpoint **")
        with context._use() as pointer:
            check(lib.unet_endpoint_create(pointer, made, out))
        self._guard = ffi.new("unet_py_endpoint *", {"endpoint": out[0]})
        self._handle = Handle(out[0], lib.unet_endpoint_destroy, "endpoint", self._guard)
        self.context = context
        self.id: int = lib.unet_endpoint_id(out[0])
        self._channels: dict[int, Channel] = {}
        self._pool: list[Any] = []  # structures for messages
        self._rooms: list[tuple[Any, Any]] = []  # for copies of messages
        self._returned: list[Any] = []  # messages that nothing uses any more, to be released by the endpoint's thread
        self._viewed: dict[int, Channel] = {}  # channels of messages with a view
        self._closes = 0  # how often a channel was to be closed

    def __repr__(self) -> str:
        return f"<unet.Endpoint {self.id}{' (closed)' if self._handle.closed else ''}>"

    def close(self) -> None:
        """Closes all channels. Memory of views of messages and of the region stays valid; the channels close when the last view is gone."""
        if self._handle.closed:
            return
        check(lib.unet_py_enter(self._guard))
        self._handle.close()

    # ---- set-up

    @contextlib.contextmanager
    def _use(self) -> Iterator[Any]:
        self._handle.pointer  # raises ClosedError, ForkedError
        check(lib.unet_py_enter(self._guard))
        try:
            yield self._guard.endpoint
        finally:
            lib.unet_py_leave(self._guard)

    def bind(self, name: str) -> None:
        """Binds `name`, under which others can connect: 1 to 63 characters of A-Z a-z 0-9 . _ - /."""
        with self._use() as pointer:
            check(lib.unet_bind(pointer, encoded(name)))

    def unbind(self) -> None:
        with self._use() as pointer:
            check(lib.unet_unbind(pointer))

    def connect(self, target: str, *, path: Path = "automatic", timeout: float | None = 5.0, wait: float | None = 0.0,
                local_depth: int | None = None, local_bytes: int | None = None) -> Channel:
        """Opens a channel to "NAME" or "NAME@HOST". `wait`: seconds to wait until the name is bound."""
        made = connect_options(path, timeout, local_depth, local_bytes)
        return until_bound(lambda: self._connect(target, made), wait, time.sleep)

    def next_request(self) -> Request | None:
        """Takes the oldest request for a channel, if there is one."""
        out = options("unet_request")
        with self._use() as pointer:
            taken = check(lib.unet_next_request(pointer, out))
        return self._request(out) if taken else None

    def accept(self, timeout: float | None = None) -> Channel:
        """Waits for a request, and accepts it. Raises TimedOutError."""
        out = options("unet_request")
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = PIECE if end is None else max(0.0, min(PIECE, end - time.monotonic()))
            with self._use() as pointer:
                number = lib.unet_accept_next(pointer, nanoseconds(left), out)
                if number >= 0 or number != lib.UNET_ETIMEDOUT or (end is not None and time.monotonic() >= end):
                    check(number)
                    break
        return self._channel(number, self._request(out))

    def next_event(self) -> Event | None:
        """Takes the oldest event, if there is one."""
        out = options("unet_event")
        with self._use() as pointer:
            if not check(lib.unet_next_event(pointer, out)):
                return None
        kind: Literal["opened", "closed"] = "opened" if out.kind == lib.UNET_EVENT_OPENED else "closed"
        return Event(kind, self._channel(out.channel), _REASONS.get(out.reason), text(out.peer))

    def expose(self, size: int) -> memoryview:
        """Exposes `size` bytes of zeroed memory, into which the peers of all channels may put; once per endpoint."""
        out = ffi.new("void **")
        with self._use() as pointer:
            check(lib.unet_expose(pointer, size, out))
        return self._handle.view(out[0], size)

    def counters(self) -> dict[str, int]:
        value = ffi.new("uint64_t *")
        counters: dict[str, int] = {}
        with self._use() as pointer:
            while (name := lib.unet_counter_name(pointer, len(counters))) != ffi.NULL:
                check(lib.unet_counter(pointer, name, value))
                counters[text(name)] = value[0]
        return counters

    # ---- receiving

    def receive(self, timeout: float | None = None, spin: float | None = None) -> Message | None:
        """The next message, at most `timeout` seconds from now (None: no limit; 0: only if it is there). Polls for `spin` before it sleeps.

        None: the time is over, or there is a request or an event, which must be taken before the next wait.
        """
        raw = self._pool.pop() if self._pool else ffi.new("unet_message *")
        closes = self._closes
        got = self._take(lib.unet_py_receive, raw, timeout, spin)
        if got == lib.UNET_PY_MESSAGE or got == lib.UNET_PY_PUT_DONE:
            if self._closes != closes and raw.channel not in self._channels:
                raise BusyError("another thread has closed the channel of this message: use an endpoint from one thread at a time")
            return Message(self, raw, got == lib.UNET_PY_PUT_DONE)
        self._pool.append(raw)
        return None

    def receive_bytes(self, timeout: float | None = None, spin: float | None = None) -> tuple[Channel, bytes] | None:
        """Works like receive(), and copies the message, which is released: faster for short messages. A put with `notify` arrives as b""."""
        room = self._rooms.pop() if self._rooms else self._new_room()
        got = self._take(_receive_copy, room[0], timeout, spin)
        data = room[1][:got & 0xFFFFFFFF] if got >= _COPIED else b""
        self._rooms.append(room)
        if got < _COPIED:
            return None
        number = (got - _COPIED) >> 32
        return self._channels.get(number) or self._channel(number), data

    def messages(self) -> Iterator[Message]:
        """The messages that are there."""
        while (message := self.receive(0)) is not None:
            yield message

    def wait(self, timeout: float | None = None, spin: float | None = None) -> bool:
        """Waits until there is something to take: a message, request or event. Take everything, or the next wait returns at once."""
        return self._wait(-1, timeout, spin) == int(lib.UNET_READY)

    def fileno(self) -> int:
        """A descriptor for poll and epoll, which the endpoint owns. Sleep on it only after arm() returned True."""
        with self._use() as pointer:
            return check(lib.unet_descriptor(pointer))

    def arm(self, room: Channel | None = None) -> bool:
        """False: there is something to take already. `room`: a channel that had none."""
        self._release_returned()
        with self._use() as pointer:
            return bool(lib.unet_arm(pointer) if room is None else lib.unet_arm_room(pointer, room.number))

    # ---- for the classes of this file

    def _start_connect(self, target: str, made: Any) -> int:
        pending = ffi.new("uint64_t *")
        with self._use() as pointer:
            check(lib.unet_connect_start(pointer, encoded(target), made, pending))
        return int(pending[0])

    def _poll_connect(self, pending: int) -> Channel | None:
        """None: there is no answer yet."""
        with self._use() as pointer:
            number = lib.unet_connect_poll(pointer, pending)
            return None if number == lib.UNET_EPENDING else self._channel(check(number))

    def _cancel_connect(self, pending: int) -> None:
        """Does nothing if it is over, or the endpoint closed."""
        with contextlib.suppress(ClosedError, ForkedError), self._use() as pointer:
            lib.unet_connect_cancel(pointer, pending)

    def _connect(self, target: str, made: Any) -> Channel:
        pending = self._start_connect(target, made)
        try:
            while (channel := self._poll_connect(pending)) is None:
                if lib.unet_py_wait(self._guard, -1, nanoseconds(PIECE), 0) == lib.UNET_READY:
                    time.sleep(0.001)  # the answer is there, or something else, which stays
            return channel
        except BaseException:
            self._cancel_connect(pending)
            raise

    def _channel(self, number: int, request: Request | None = None) -> Channel:
        channel = self._channels.get(number)
        if channel is None:
            channel = self._channels[number] = Channel(self, number, request)
        return channel

    def _request(self, out: Any) -> Request:
        return Request(self, out.id, text(out.peer), out.peer_uid, out.peer_pid, bool(out.same_user))

    def _take(self, receive: Any, into: Any, timeout: float | None, spin: float | None) -> int:
        """Calls `receive` until it has something, or the time is over; returns its result."""
        if self._returned:
            self._release_returned()
        end = time.monotonic() + timeout if timeout else 0.0
        timeout_ns = -1 if timeout is None else nanoseconds(timeout)
        spin_ns = -1 if spin is None else nanoseconds(spin)
        while True:
            got: int = receive(self._guard, into, timeout_ns, spin_ns)
            if got > 0:
                return got
            if got != lib.UNET_TIMED_OUT and got != lib.UNET_EINTERRUPTED:
                raise disconnected() if got == lib.UNET_EDISCONNECTED else error_of(got)
            if timeout is not None:
                timeout_ns = nanoseconds(end - time.monotonic())
                if timeout_ns == 0:
                    return got

    @staticmethod
    def _new_room() -> tuple[Any, Any]:
        room = ffi.new("unet_py_room *")
        return room, ffi.buffer(room.bytes)

    def _wait(self, channel: int, timeout: float | None, spin: float | None) -> int:
        self._release_returned()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = PIECE if end is None else end - time.monotonic()
            got = lib.unet_py_wait(self._guard, channel, nanoseconds(left), nanoseconds(spin))
            if got == lib.UNET_EDISCONNECTED:
                raise disconnected()
            if got != lib.UNET_TIMED_OUT and got != lib.UNET_EINTERRUPTED:
                return check(got)
            if end is not None and time.monotonic() >= end:
                return int(lib.UNET_TIMED_OUT)

    def _view_ended(self, raw: Any) -> None:
        self._viewed.pop(id(raw), None)
        self._returned.append(raw)

    def _release_returned(self) -> None:
        """Another thread may be in a call of the endpoint: its next call releases them."""
        returned = self._returned
        while returned:
            raw = returned.pop()
            if lib.unet_py_release(self._guard, raw) == lib.UNET_PY_EBUSY:
                returned.append(raw)
                return
            self._pool.append(raw)

    def _close_channel(self, channel: Channel) -> None:
        if channel._ended:
            return
        self._handle.pointer  # raises ClosedError, ForkedError
        channel._ended = True  # no message gives a view from now on
        self._closes += 1
        if channel in list(self._viewed.values()):
            channel._ended = False
            raise BufferError("messages of this channel are in use: release them, and delete slices and arrays of them, before close()")
        self._release_returned()
        try:
            with self._use() as pointer:
                check(lib.unet_channel_close(pointer, channel.number))
        except BusyError:
            channel._ended = False
            raise
        self._channels.pop(channel.number, None)
