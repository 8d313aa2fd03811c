# am.py - Active Messages with Python handlers: bundles, endpoints and the message that a handler gets.
from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ._unet import ffi, lib
from .context import Context
from .endpoint import Path, connect_options, read_buffer, until_bound
from .errors import ClosedError, UnetError, check, disconnected, error_of
from .lifetime import PIECE, Closing, Handle, Raised, encoded, nanoseconds, options, text

ANY_TAG = 1  # of an endpoint: accepts every request
NO_TAG = 0  # of an endpoint: accepts no request

_KINDS = {
    lib.UNET_AM_SHORT_REQUEST: "short_request",
    lib.UNET_AM_MEDIUM_REQUEST: "medium_request",
    lib.UNET_AM_LONG_REQUEST: "long_request",
    lib.UNET_AM_GET: "get",
    lib.UNET_AM_SHORT_REPLY: "short_reply",
    lib.UNET_AM_MEDIUM_REPLY: "medium_reply",
    lib.UNET_AM_LONG_REPLY: "long_reply",
}


@dataclass(frozen=True)
class Returned:
    """A message of ours that was not handled."""

    status: str  # "bad_tag", "unreachable", ...
    kind: str
    handler: int
    index: int | None  # the translation; None: the peer does not say which message it was
    arguments: tuple[int, ...]


class Token:
    """The message of a running handler; ends when the handler returns."""

    def __init__(self, endpoint: Endpoint, pointer: Any) -> None:
        self.endpoint = endpoint
        self._pointer = pointer

    def _open(self) -> Any:
        if self._pointer is None:
            raise ClosedError("the handler of this message has returned: copy what is needed later")
        return self._pointer

    @property
    def arguments(self) -> tuple[int, ...]:
        count = ffi.new("unsigned *")
        first = lib.unet_am_arguments(self._open(), count)
        return tuple(ffi.unpack(first, count[0])) if count[0] else ()

    def _memory(self) -> tuple[Any, int]:
        length = ffi.new("size_t *")
        return lib.unet_am_payload(self._open(), length), length[0]

    @property
    def payload(self) -> bytes:
        """A copy of the payload. A long message has also put it into the segment, a get into the memory given to get()."""
        memory, length = self._memory()
        return bytes(ffi.buffer(memory, length)) if length else b""

    @property
    def length(self) -> int:
        """The bytes of the payload."""
        return self._memory()[1]

    @property
    def offset(self) -> int:
        """The place of a long message's payload in the segment."""
        return int(lib.unet_am_offset(self._open()))

    @property
    def kind(self) -> str:
        return _KINDS.get(lib.unet_am_kind(self._open()), "unknown")

    @property
    def is_request(self) -> bool:
        return bool(lib.unet_am_is_request(self._open()))

    @property
    def can_reply(self) -> bool:
        return bool(lib.unet_am_can_reply(self._open()))

    @property
    def tag(self) -> int:
        return int(lib.unet_am_message_tag(self._open()))

    @property
    def source(self) -> int:
        """A number for the sender, unique among all peers that the endpoint ever has."""
        return int(lib.unet_am_source(self._open()))

    @property
    def source_name(self) -> str:
        """The name by which this endpoint can map the sender; "": it has none."""
        room = ffi.new("char[]", 256)
        lib.unet_am_source_name(self._open(), room, len(room))
        return text(room)

    @property
    def index(self) -> int | None:
        """The translation of the request, if this is its reply."""
        index = lib.unet_am_index(self._open())
        return None if index == 0xFFFFFFFF else index

    def reply(self, handler: int, *arguments: int, payload: Any = None, offset: int | None = None) -> None:
        """Replies to the request, once: short, with `payload` medium, with `offset` long (into the requester's segment)."""
        if payload is None:
            check(lib.unet_am_reply_short(self._open(), handler, arguments, len(arguments)))
            return
        memory, length = read_buffer(payload)
        if offset is None:
            check(lib.unet_am_reply_medium(self._open(), handler, memory, length, arguments, len(arguments)))
        else:
            check(lib.unet_am_reply_long(self._open(), handler, offset, memory, length, arguments, len(arguments)))


Handler = Callable[[Token], None]


def _destroy(bundle: Any, handlers: dict[int, Any], gets: dict[int, Any], _: Any) -> None:
    """With the handlers and the memory of gets, which must live until then."""
    lib.unet_am_bundle_destroy(bundle)
    handlers.clear()
    gets.clear()


class Endpoint(Closing):
    """An endpoint of Active Messages. Handlers run in calls of this object, in the thread that makes the call.

    If a handler raises, the call that ran it raises that exception when it is done with the messages.
    """

    def __init__(self, context: Context, name: str | None = None, *, tag: int = ANY_TAG, same_user_only: bool = False) -> None:
        """`name`: under which others map the endpoint. `tag`: that requests must have to be delivered."""
        made = options("unet_am_options", same_user_only=int(same_user_only))
        bundle, out = ffi.new("unet_am_bundle **"), ffi.new("unet_am_endpoint **")
        self._handlers: dict[int, Any] = {}  # what C has pointers to; -1: of returned messages
        self._gets: dict[int, list[Any]] = {}  # memory into which gets are under way, by address
        check(lib.unet_am_bundle_create(0, bundle))
        try:
            with context._use() as pointer:
                check(lib.unet_am_endpoint_create(pointer, bundle[0], made, out))
            if name is not None:
                check(lib.unet_am_bind(out[0], encoded(name)))
        except BaseException:
            lib.unet_am_bundle_destroy(bundle[0])
            raise
        lib.unet_am_set_tag(out[0], tag)
        self._bundle = bundle[0]
        self._handle = Handle(out[0], partial(_destroy, bundle[0], self._handlers, self._gets), "endpoint of Active Messages")
        self._raised = Raised()
        self._running = False  # a handler
        self.on_returned(None)

    def close(self) -> None:
        """Closes all channels. Call flush() first, so that everything sent arrives."""
        if self._handle.closed:
            return
        if self._running:
            raise RuntimeError("a handler may not close its endpoint: let it return, and close the endpoint after poll() or wait()")
        with self._handle:
            self._handle.close()
        self._raised.check()

    def handler(self, index: int) -> Callable[[Handler], Handler]:
        """A decorator: the function handles messages for `index`, 0 to 255."""

        def set_it(function: Handler) -> Handler:
            self.set_handler(index, function)
            return function

        return set_it

    def set_handler(self, index: int, function: Handler | None) -> None:
        """None: messages for `index` are returned to their senders."""
        me = ffi.new_handle((weakref.ref(self), function))
        with self._handle as pointer:
            check(lib.unet_am_set_handler(pointer, index, lib.unet_py_am_handler if function else ffi.NULL, me))
        self._handlers[index] = me

    def on_returned(self, function: Callable[[Returned], None] | None) -> None:
        """Sets the function that runs for each message of ours that comes back."""
        me = ffi.new_handle((weakref.ref(self), function))
        with self._handle as pointer:
            lib.unet_am_set_error_handler(pointer, lib.unet_py_am_returned, me)
        self._handlers[-1] = me

    def map(self, index: int, target: str, tag: int = ANY_TAG, *, path: Path = "automatic", timeout: float | None = 5.0,
            wait: float | None = 0.0) -> None:
        """Makes translation `index` lead to "NAME" or "NAME@HOST"."""
        made = connect_options(path, timeout)

        def connect() -> None:
            with self._handle as pointer:
                check(lib.unet_am_start_map(pointer, index, encoded(target), tag, made))
            try:
                while (result := self._poll_map(index)) == lib.UNET_EPENDING:
                    self.wait(PIECE)  # signals are handled after each piece
                check(result)
            except BaseException:
                with contextlib.suppress(UnetError), self._handle as pointer:
                    lib.unet_am_unmap(pointer, index)
                raise

        until_bound(connect, wait, self.wait)
        self._raised.check()

    def unmap(self, index: int) -> None:
        with self._handle as pointer:
            check(lib.unet_am_unmap(pointer, index))
        self._raised.check()

    def expose(self, size: int) -> memoryview:
        """Makes the segment: `size` bytes of zeroed memory that long messages of peers write and their gets read. Call it once."""
        out = ffi.new("void **")
        with self._handle as pointer:
            check(lib.unet_am_expose(pointer, size, out))
        return self._handle.view(out[0], size)

    def request(self, to: int, handler: int, *arguments: int, payload: Any = None, offset: int | None = None) -> None:
        """Sends a request: short, with `payload` medium, with `offset` long. Waits for a credit, and runs handlers meanwhile.

        At most 16 arguments of 32 bits. A medium payload has at most 16,384 bytes; a long one lies at `offset` of the peer's segment.
        """
        count = len(arguments)
        with self._handle as pointer:
            while not self._running and lib.unet_am_in_use(pointer, to) and not lib.unet_am_has_credit(pointer, to):
                lib.unet_am_wait(self._bundle, nanoseconds(PIECE), -1)  # in pieces, between which signals are handled
            if payload is None:
                result = lib.unet_am_request_short(pointer, to, handler, arguments, count)
            else:
                memory, length = read_buffer(payload)
                if offset is None:
                    result = lib.unet_am_request_medium(pointer, to, handler, memory, length, arguments, count)
                else:
                    result = lib.unet_am_request_long(pointer, to, handler, offset, memory, length, arguments, count)
        self._raised.check()
        check(result)

    def get(self, source: int, handler: int, offset: int, into: Any, *arguments: int) -> None:
        """Copies from `offset` of the peer's segment into a writable buffer, as many bytes as it has, then runs `handler` here."""
        buffer = ffi.from_buffer("char[]", into, require_writable=True)
        address = int(ffi.cast("uintptr_t", buffer))
        self._gets.setdefault(address, []).append(buffer)
        with self._handle as pointer:
            result = lib.unet_am_get(pointer, source, handler, offset, buffer, len(buffer), arguments, len(arguments))
        if result < 0:
            self._got(address)
        self._raised.check()
        check(result)

    def has_credit(self, to: int) -> bool:
        """Whether a request would be sent without waiting."""
        with self._handle as pointer:
            return bool(lib.unet_am_has_credit(pointer, to))

    def poll(self) -> int:
        """Runs the handlers of messages that have arrived; returns the number of messages."""
        with self._handle:
            count = int(lib.unet_am_poll(self._bundle))
        self._raised.check()
        return count

    def wait(self, timeout: float | None = None, spin: float | None = None) -> bool:
        """Waits until something arrives, and runs handlers. Polls for `spin` seconds before it sleeps. False: the time is over."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = PIECE if end is None else max(0.0, min(PIECE, end - time.monotonic()))
            with self._handle:
                got = lib.unet_am_wait(self._bundle, nanoseconds(left), nanoseconds(spin))
            self._raised.check()
            if got == lib.UNET_READY:
                return True
            if got == lib.UNET_EDISCONNECTED:
                raise disconnected()
            if end is not None and time.monotonic() >= end:
                return False

    def flush(self, timeout: float | None = None) -> None:
        """Polls until everything sent has arrived. Raises TimedOutError."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = PIECE if end is None else max(0.0, min(PIECE, end - time.monotonic()))
            with self._handle as pointer:
                result = lib.unet_am_flush(pointer, nanoseconds(left))
            self._raised.check()
            if result >= 0:
                return
            if end is not None and time.monotonic() >= end:
                raise error_of(result, "not everything that was sent has arrived in this time")

    def counters(self) -> dict[str, int]:
        value = ffi.new("uint64_t *")
        counters: dict[str, int] = {}
        with self._handle as pointer:
            while (name := lib.unet_am_counter_name(len(counters))) != ffi.NULL:
                check(lib.unet_am_counter(pointer, name, value))
                counters[text(name)] = value[0]
        return counters

    def _poll_map(self, index: int) -> int:
        with self._handle as pointer:
            return int(lib.unet_am_poll_map(pointer, index))

    def _got(self, address: int) -> None:
        """The get into this memory is over."""
        buffers = self._gets.get(address)
        if buffers:
            buffers.pop()
            if not buffers:
                del self._gets[address]

    def _run(self, function: Callable[[Any], None], argument: Any) -> None:
        outer, self._running = self._running, True
        try:
            function(argument)
        except BaseException as error:  # noqa: BLE001: it may not pass through C
            self._raised.note(error)
        finally:
            self._running = outer


@ffi.def_extern()
def unet_py_am_handler(token: Any, context: Any) -> None:
    reference, function = ffi.from_handle(context)
    endpoint = reference()
    if endpoint is None:
        return
    message = Token(endpoint, token)
    if endpoint._gets and lib.unet_am_kind(token) == lib.UNET_AM_LONG_REPLY:
        endpoint._got(int(ffi.cast("uintptr_t", message._memory()[0])))
    endpoint._run(function, message)
    message._pointer = None


@ffi.def_extern()
def unet_py_am_returned(_: Any, returned: Any, context: Any) -> None:
    reference, function = ffi.from_handle(context)
    endpoint = reference()
    if endpoint is None:
        return
    if returned.memory:
        endpoint._got(int(ffi.cast("uintptr_t", returned.memory)))
    if function is None:
        return
    index = None if returned.index == 0xFFFFFFFF else returned.index
    arguments = tuple(ffi.unpack(returned.arguments, returned.count)) if returned.count else ()
    kind = _KINDS.get(returned.kind, "unknown")
    endpoint._run(function, Returned(text(lib.unet_am_name_of(returned.status)), kind, returned.handler, index, arguments))
