# rpc.py - calls of procedures of other processes: clients, servers; blocking, and in an asyncio event loop.
from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ._unet import ffi, lib
from .aio import Pump
from .context import Context
from .endpoint import read_buffer
from .errors import ClosedError, UnetError, check, disconnected, error_of
from .lifetime import PIECE, Closing, Handle, Raised, encoded, nanoseconds, options, text

Procedure = Callable[[bytes], Any]  # returns bytes, an object with the buffer protocol, None, or an awaitable of such


class CallError(UnetError):
    """A call that ended without a result."""

    def __init__(self, status: int) -> None:
        self.status = text(lib.unet_rpc_status_name(status))
        self.may_have_run = bool(lib.unet_rpc_may_have_run(status))  # False: the procedure has certainly not run
        super().__init__(f"the call ended with {self.status}: the procedure {'may have run' if self.may_have_run else 'has not run'}")


class CallTimedOutError(CallError, TimeoutError):
    """The deadline passed."""


class ProcedureError(CallError):
    """The procedure says that it failed, with a number of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(lib.UNET_RPC_FAILED)
        self.number = number


class Failure(Exception):
    """A procedure raises it to fail with a number, which the caller's ProcedureError has."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the procedure failed with number {number}")
        self.number = number


class BadArguments(Exception):
    """A procedure raises it if it does not accept the arguments."""


def _error(status: int, number: int) -> CallError:
    if status == lib.UNET_RPC_FAILED:
        return ProcedureError(number)
    return CallTimedOutError(status) if status in (lib.UNET_RPC_TIMED_OUT, lib.UNET_RPC_EXPIRED) else CallError(status)


def _pump(handle: Handle, take: Callable[[], Any], arm: Any) -> Pump:
    """A pump for a client or a server."""
    descriptor, limit = ffi.new("int *"), ffi.new("int64_t *")

    def armed() -> tuple[int, float | None] | None:
        with handle as pointer:
            if not check(arm(pointer, descriptor, limit)):
                return None
        return descriptor[0], None if limit[0] < 0 else limit[0] / 1e9

    return Pump(take, armed)


# The garbage collector ends the objects of a cycle in any order, and the calls of a client must end before it: `calls` are those of C that
# are not destroyed.
def _destroy_call(client: Handle, calls: set[Any], pointer: Any) -> None:
    if pointer in calls and not client.is_parents:  # else it would cancel the parent's call
        calls.remove(pointer)
        lib.unet_rpc_pending_destroy(pointer)


def _destroy_client(calls: set[Any], pointer: Any) -> None:
    for call in calls:
        lib.unet_rpc_cancel(call)
    lib.unet_rpc_client_destroy(pointer)


def _destroy_server(procedures: dict[tuple[str, int, int], Any], pointer: Any) -> None:
    """With the procedures, which must live until then."""
    lib.unet_rpc_server_destroy(pointer)
    procedures.clear()


class Call:
    """A call that is under way, or over. start() of a binding makes it."""

    def __init__(self, client: Client, pointer: Any) -> None:
        self._client = client
        self._pointer = pointer
        self._me = ffi.new_handle(weakref.ref(self))  # the client keeps a call that is under way
        self._future: asyncio.Future[bytes] | None = None

    @property
    def done(self) -> bool:
        return bool(lib.unet_rpc_is_done(self._pointer))

    def result(self) -> bytes:
        """Waits until the call is over. Returns the result, or raises CallError."""
        while not self.done:
            self._client.wait(None)
        status = lib.unet_rpc_status(self._pointer)
        if status != lib.UNET_RPC_OK:
            raise _error(status, lib.unet_rpc_failure(self._pointer))
        length = ffi.new("size_t *")
        memory = lib.unet_rpc_result(self._pointer, length)
        return bytes(ffi.buffer(memory, length[0])) if length[0] else b""

    def cancel(self) -> None:
        """Ends the call, and tells the server; result() then raises CallError."""
        if not self.done:
            with self._client._handle:
                lib.unet_rpc_cancel(self._pointer)
            self._client._ended(self)

    def _settle(self) -> None:
        if self._future is not None and not self._future.done():
            try:
                self._future.set_result(self.result())
            except CallError as error:
                self._future.set_exception(error)


class Binding:
    """An interface of a server. Client.bind() makes it."""

    def __init__(self, client: Client, pointer: Any) -> None:
        self.client = client
        self._pointer = pointer

    def release(self) -> None:
        """Ends the binding. Calls that are under way go on. The client's close() does it, too."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None and not self.client._handle.closed:
            with self.client._handle:
                lib.unet_rpc_release(pointer)

    def _open(self) -> Any:
        if self._pointer is None:
            raise ClosedError("this binding is released: call bind() of the client again")
        return self._pointer

    def set_timeout(self, seconds: float | None) -> None:
        """The time that calls may take which start from now on; None: no limit."""
        with self.client._handle:
            lib.unet_rpc_set_timeout(self._open(), nanoseconds(seconds))

    def call(self, procedure: int, arguments: Any = b"") -> bytes:
        """Calls a procedure, and waits for its end. Raises CallError."""
        return self.start(procedure, arguments).result()

    def start(self, procedure: int, arguments: Any = b"") -> Call:
        """Starts a call. Waits while too many calls are under way, and until long arguments are sent."""
        client = self.client
        with client._handle:
            call = client._new_call()
            memory, length = read_buffer(arguments)
            part = ffi.new("unet_rpc_part *", {"data": ffi.from_buffer(memory) if type(memory) is bytes else memory, "length": length})
            client._calls[call] = None
            try:
                check(lib.unet_rpc_start(self._open(), call._pointer, procedure, part, 1))
            except BaseException:
                del client._calls[call]
                raise
            if call.done:
                client._ended(call)
        return call

    async def call_async(self, procedure: int, arguments: Any = b"") -> bytes:
        """As call(), in the running event loop. A task that is cancelled cancels its call."""
        self.client._use_loop()
        call = self.start(procedure, arguments)
        if not call.done:
            call._future = asyncio.get_running_loop().create_future()
            self.client._poll()
            try:
                return await call._future
            finally:
                call.cancel()
        return call.result()

    def tell(self, procedure: int, arguments: Any = b"") -> None:
        """Calls a procedure without an answer: the caller does not learn whether it runs."""
        memory, length = read_buffer(arguments)
        with self.client._handle:
            check(lib.unet_rpc_tell(self._open(), procedure, memory, length))


class Client(Closing):
    """Calls procedures of servers. A client and everything made from it belongs to one thread at a time."""

    def __init__(self, context: Context, *, result_max: int = 0, same_user_only: bool = False) -> None:
        """`result_max`: bytes of a long result; 0: 64 MiB."""
        made = options("unet_rpc_client_options", result_max=result_max, same_user_only=int(same_user_only))
        out = ffi.new("unet_rpc_client **")
        with context._use() as pointer:
            check(lib.unet_rpc_client_create(pointer, made, out))
        self._pointers: set[Any] = set()  # of all calls
        self._handle = Handle(out[0], partial(_destroy_client, self._pointers), "client")
        self._calls: dict[Call, None] = {}  # under way
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump: Pump | None = None

    def __del__(self) -> None:
        if hasattr(self, "_calls") and not self._handle.closed:
            self.close()

    def close(self) -> None:
        """Calls that are under way end with CallError ("abandoned")."""
        if self._handle.closed:
            return
        for call in list(self._calls):
            if call._pointer in self._pointers:
                call.cancel()
        if self._pump is not None:
            self._pump.stop()
        with self._handle:
            self._handle.close()

    def bind(self, target: str, interface: str, version: int = 1, timeout: float | None = 10.0) -> Binding:
        """Imports an interface from the server "NAME" or "NAME@HOST"."""
        out, end = ffi.new("unet_rpc_binding **"), None if timeout is None else time.monotonic() + timeout
        with self._handle as pointer:
            check(lib.unet_rpc_import_start(pointer, encoded(target), encoded(interface), version, out))
        binding = Binding(self, out[0])
        try:
            while True:
                with self._handle:
                    result = lib.unet_rpc_import_poll(out[0], nanoseconds(timeout))
                if result != lib.UNET_EPENDING:
                    check(result)
                    return binding
                left = PIECE if end is None else end - time.monotonic()
                if left <= 0:
                    raise error_of(lib.UNET_ETIMEDOUT, f"{target} has not answered in this time")
                self.wait(min(left, PIECE))
        except BaseException:
            with contextlib.suppress(UnetError):
                binding.release()
            raise

    def poll(self) -> int:
        """Handles what has arrived; returns the number of messages."""
        with self._handle as pointer:
            return int(lib.unet_rpc_poll(pointer))

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until something may have happened. False: the time is over."""
        return _wait(self._handle, lib.unet_rpc_wait, timeout)

    def _new_call(self) -> Call:
        out = ffi.new("unet_rpc_pending **")
        check(lib.unet_rpc_pending_create(out))
        self._pointers.add(out[0])
        call = Call(self, ffi.gc(out[0], partial(_destroy_call, self._handle, self._pointers)))
        lib.unet_rpc_on_end(out[0], lib.unet_py_rpc_ended, call._me)
        return call

    def _ended(self, call: Call) -> None:
        self._calls.pop(call, None)
        call._settle()

    def _use_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._pump is not None:
                self._pump.stop()
            self._loop = loop
            self._pump = _pump(self._handle, self.poll, lib.unet_rpc_arm)
            self._pump.start(self._failed)

    def _poll(self) -> None:
        if self._pump is not None:
            self._pump.poll()

    def _failed(self, error: Exception) -> None:
        self._loop = None
        for call in list(self._calls):
            if call._future is not None and not call._future.done():
                call._future.set_exception(error)


class Server(Closing):
    """Exports interfaces under a name. Procedures run in poll(), wait(), serve() and serve_async().

    A procedure gets the arguments as bytes. If it raises Failure or BadArguments, the caller learns that. With any other exception the call
    fails with number 0, and the function that ran the procedure raises the exception.
    """

    def __init__(self, context: Context, name: str, *, arguments_max: int = 0, same_user_only: bool = False) -> None:
        """`arguments_max`: bytes of the arguments of a call; 0: 64 MiB."""
        made = options("unet_rpc_server_options", arguments_max=arguments_max, same_user_only=int(same_user_only))
        out = ffi.new("unet_rpc_server **")
        with context._use() as pointer:
            check(lib.unet_rpc_server_create(pointer, encoded(name), made, out))
        self._procedures: dict[tuple[str, int, int], Any] = {}  # what C has pointers to
        self._handle = Handle(out[0], partial(_destroy_server, self._procedures), "server")
        self._raised = Raised()
        self._running = False  # a procedure
        self._ended: asyncio.Future[None] | None = None  # of serve_async(), while it runs
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopped = False

    def close(self) -> None:
        """Ends all calls under way."""
        if self._handle.closed:
            return
        if self._running:
            raise RuntimeError("a procedure may not close its server: call stop(), and close the server when serve() has returned")
        with self._handle:
            self._handle.close()

    def provide(self, interface: str, version: int, number: int, procedure: Procedure) -> None:
        """Exports a procedure, numbered 0 to 65535. One that returns an awaitable needs serve_async()."""
        if self._running:
            raise RuntimeError("a procedure may not export procedures: do so when poll() or wait() has returned")
        me = ffi.new_handle((weakref.ref(self), procedure))
        with self._handle as pointer:
            check(lib.unet_rpc_provide(pointer, encoded(interface), version, number, lib.unet_py_rpc_procedure, me, 0))
        self._procedures[interface, version, number] = me

    def procedure(self, interface: str, version: int, number: int) -> Callable[[Procedure], Procedure]:
        """provide() as a decorator."""

        def provide_it(function: Procedure) -> Procedure:
            self.provide(interface, version, number, function)
            return function

        return provide_it

    def poll(self) -> int:
        """Runs procedures that are called; returns the number of messages."""
        with self._handle as pointer:
            count = int(lib.unet_rpc_server_poll(pointer))
        self._raised.check()
        return count

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until something may have happened, and runs procedures. False: the time is over."""
        try:
            return _wait(self._handle, lib.unet_rpc_server_wait, timeout)
        finally:
            self._raised.check()

    def serve(self) -> None:
        """Runs procedures until stop()."""
        self._stopped = False
        while not self._stopped:
            self.wait(PIECE)

    def stop(self) -> None:
        """Ends serve(), from a procedure or a signal handler."""
        self._stopped = True

    async def serve_async(self) -> None:
        """Runs procedures in the event loop until the task is cancelled."""
        self._ended = asyncio.get_running_loop().create_future()
        pump = _pump(self._handle, self.poll, lib.unet_rpc_server_arm)
        pump.start(self._failed)
        try:
            await self._ended
        finally:
            pump.stop()
            self._ended = None

    def _failed(self, error: Exception) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)

    def _run(self, request: Any, procedure: Procedure) -> None:
        length = ffi.new("size_t *")
        memory = lib.unet_rpc_arguments(request, length)
        arguments = ffi.buffer(memory, length[0])[:] if length[0] else b""
        outer, self._running = self._running, True
        try:
            result = procedure(arguments)
            if inspect.isawaitable(result):
                self._answer_later(request, result)
            else:
                lib.unet_rpc_answer(request, *read_buffer(b"" if result is None else result))
        except Failure as failure:
            lib.unet_rpc_fail(request, failure.number)
        except BadArguments:
            lib.unet_rpc_refuse(request)
        except BaseException as error:  # noqa: BLE001: it may not pass through C
            lib.unet_rpc_fail(request, 0)
            self._raised.note(error)
        finally:
            self._running = outer

    def _answer_later(self, request: Any, result: Awaitable[Any]) -> None:
        if self._ended is None:
            if inspect.iscoroutine(result):
                result.close()
            raise RuntimeError("this procedure returns an awaitable: run it by serve_async()")
        task = asyncio.ensure_future(result)
        self._tasks.add(task)
        task.add_done_callback(partial(self._answer, lib.unet_rpc_defer(request)))

    def _answer(self, later: Any, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        try:
            value = task.result()
            lib.unet_rpc_later_answer(later, *read_buffer(b"" if value is None else value))
        except (Failure, asyncio.CancelledError) as end:
            lib.unet_rpc_later_fail(later, getattr(end, "number", 0))
        except Exception as error:  # noqa: BLE001: serve_async() raises it
            lib.unet_rpc_later_fail(later, 0)
            self._failed(error)


def _wait(handle: Handle, wait: Any, timeout: float | None) -> bool:
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = PIECE if end is None else max(0.0, min(PIECE, end - time.monotonic()))
        with handle as pointer:
            got = wait(pointer, nanoseconds(left))
        if got == lib.UNET_READY:
            return True
        if got == lib.UNET_EDISCONNECTED:
            raise disconnected()
        if end is not None and time.monotonic() >= end:
            return False


@ffi.def_extern()
def unet_py_rpc_ended(_: Any, context: Any) -> None:
    call = ffi.from_handle(context)()
    if call is not None:
        call._client._ended(call)


@ffi.def_extern()
def unet_py_rpc_procedure(request: Any, context: Any) -> None:
    reference, procedure = ffi.from_handle(context)
    server = reference()
    if server is None:
        lib.unet_rpc_fail(request, 0)
    else:
        server._run(request, procedure)
