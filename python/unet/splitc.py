# splitc.py - Split-C: one program that runs as several ranks, and arrays of which each rank has a part. Needs numpy.
#
#   from unet import splitc                                 unet-run -n 4 -- python3 program.py
#
#   def program():
#       numbers = splitc.Array(1000)                        # at each rank 1000 float64, zeros at first
#       numbers.local[:] = splitc.rank()                    # a numpy view of the own part
#       splitc.barrier()
#       print(numbers[(splitc.rank() + 1) % splitc.ranks(), 10:20])
#
#   splitc.run(program)
#
# Waits are in C: during the job Ctrl-C ends the rank at once. An error of Split-C ends the job with a sentence.
from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Union, cast

import numpy
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ._splitc import ffi
from ._splitc import lib as _lib

T = TypeVar("T")
Place = tuple[int, Union[int, slice]]  # a rank, and indices of its part
Operation = Literal["add", "mult", "min", "max"]


class _Job:
    """The job that this process is in."""

    thread: int | None = None  # that runs the program
    program: Callable[[], object] = print
    result: object = None
    error: BaseException | None = None
    views = 0  # of spread memory, which the job's end unmaps
    pending: list[Any] = []  # memory of gets until sync()


def _call(name: str, *arguments: Any) -> Any:
    """Calls a function of the C library."""
    if _Job.thread != threading.get_ident():
        raise RuntimeError(f"{name}() is for the program that splitc.run() runs, and for its thread")
    return getattr(_lib, "splitc_" + name)(*arguments)


def run(program: Callable[[], T]) -> T:
    """Runs `program` as one rank of the job that unet-run or another launcher has started; alone: as a job of one rank.

    Returns its result. An exception ends the job: its traceback is printed, and run() raises SystemExit. Arrays and views of them must not
    outlive the program.
    """
    if _Job.thread is not None:
        raise RuntimeError("splitc.run(): this process is in a job already")
    if "UNET_SPLITC_MACHINE" in os.environ:
        raise RuntimeError("a simulated machine runs all ranks in one thread, which Python does not allow: unset UNET_SPLITC_MACHINE")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # an error of Split-C ends the process without a flush
    with contextlib.ExitStack() as stack:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            stack.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_DFL))
        _Job.thread, _Job.program, _Job.result, _Job.error = threading.get_ident(), program, None, None
        try:
            status = _lib.splitc_run(0, ffi.new("char *[1]"), _lib.unet_py_splitc_program)
        finally:
            _Job.thread, _Job.program = None, print
            _Job.pending.clear()
    result, error, _Job.result, _Job.error = _Job.result, _Job.error, None, None
    if error is not None:
        raise error if isinstance(error, SystemExit) else SystemExit(status)
    if status != 0:
        raise RuntimeError("this rank did not start: the sentence on stderr says why")
    return cast(T, result)


@ffi.def_extern()
def unet_py_splitc_program(_count: int, _arguments: Any) -> int:
    status = 0
    try:
        _Job.result = _Job.program()
    except BaseException as error:  # noqa: BLE001: it may not pass through C
        _Job.error = error
        status = 0 if isinstance(error, SystemExit) and not error.code else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()  # at once: when others see that this rank is gone, the launcher kills it
            sys.stderr.flush()
        each: BaseException | None = error
        while each is not None:  # the variables of the program may be views
            traceback.clear_frames(each.__traceback__)
            each = each.__context__
    gc.collect()
    if _Job.views != 0:
        sentence = "splitc: views of spread memory are in use after the program: copy what it returns or stores elsewhere"
        print(sentence, file=sys.stderr, flush=True)
        os._exit(1)  # the end of the job unmaps the memory
    return status


def rank() -> int:
    return int(_call("my_proc"))


def ranks() -> int:
    return int(_call("procs"))


def poll() -> None:
    """Handles messages of other ranks. A rank that computes for long calls it, so that others need not wait for it."""
    _call("poll")


def barrier() -> None:
    """Collective: waits until all ranks call it."""
    _call("barrier")


def sync() -> None:
    """Waits until all gets and puts of this rank are complete."""
    _call("sync")
    _Job.pending.clear()


def store_sync(count: int) -> None:
    """Waits until `count` bytes more have been stored here since the last all_store_sync()."""
    _call("store_sync", count)


def all_store_sync() -> None:
    """Collective: waits until all stores have arrived."""
    _call("all_store_sync")


def _number(name: str, value: float) -> Any:
    return _call(name.format("l" if isinstance(value, (int, numpy.integer)) else "d"), value)


def reduce(value: float, operation: Operation = "add") -> Any:
    """Collective: the sum, product, least or greatest of the ranks' values, at every rank. All give an int, or all give a float."""
    return _number("all_reduce_to_all_{}" + operation, value)


def scan(value: float, operation: Operation = "add") -> Any:
    """Collective: as reduce(), over the ranks up to this one."""
    return _number("all_scan_{}" + operation, value)


def broadcast(value: float) -> Any:
    """Collective: the value of rank 0."""
    return _number("all_{}bcast", value)


class Array:
    """An array of which each rank has a part of `count` elements. Making and freeing one is collective.

    array[rank, indices] reads a copy, array[rank, indices] = values writes; indices are a number or a slice without step.
    """

    def __init__(self, count: int, dtype: DTypeLike = numpy.float64) -> None:
        self.dtype = numpy.dtype(dtype)
        if self.dtype.hasobject:
            raise TypeError("an array of Split-C cannot contain Python objects")
        if count < 1:
            raise ValueError("an array of Split-C has at least one element at each rank")
        self.count = count
        self._spread = _call("all_spread_malloc", ranks(), count * self.dtype.itemsize)
        start = ffi.gc(ffi.cast("char *", _call("spread_local", self._spread)), self._unview)
        _Job.views += 1
        memory = ffi.buffer(start, count * self.dtype.itemsize)
        self._memory: Callable[[], Any] = weakref.ref(memory)
        self.local: NDArray[Any] = numpy.frombuffer(memory, self.dtype)
        self.local[:] = numpy.zeros(1, self.dtype)
        barrier()  # no rank writes before

    @staticmethod
    def _unview(_: Any) -> None:
        _Job.views -= 1

    def _place(self, place: Place) -> tuple[Any, int]:
        """The global pointer, and the number of elements."""
        at, indices = place
        if not 0 <= at < ranks():
            raise IndexError(f"there is no rank {at}: there are {ranks()}")
        if isinstance(indices, slice):
            first, last, step = indices.indices(self.count)
            if step != 1:
                raise IndexError("a slice of another rank's part has no step: read all, and slice the copy")
        else:
            first = indices + self.count if indices < 0 else indices
            last = first + 1
            if not 0 <= first < self.count:
                raise IndexError(f"index {indices} is out of bounds: each rank has {self.count} elements")
        return _call("spread_at", self._spread, at) + first * self.dtype.itemsize, max(0, last - first)

    def _values(self, values: ArrayLike, count: int) -> Any:
        return ffi.from_buffer(numpy.ascontiguousarray(numpy.broadcast_to(numpy.asarray(values, self.dtype), count)))

    def __getitem__(self, place: Place) -> Any:
        at, count = self._place(place)
        copy = numpy.empty(count, self.dtype)
        _call("bulk_read", ffi.from_buffer(copy), at, copy.nbytes)
        return copy if isinstance(place[1], slice) else copy[0]

    def __setitem__(self, place: Place, values: ArrayLike) -> None:
        at, count = self._place(place)
        memory = self._values(values, count)
        _call("bulk_write", at, memory, len(memory))

    def get(self, place: Place, into: NDArray[Any]) -> None:
        """Starts to read into an array, which is complete after sync()."""
        at, count = self._place(place)
        if into.dtype != self.dtype or into.size != count:
            raise ValueError(f"get() needs an array of {count} elements of {self.dtype}")
        memory = ffi.from_buffer(into, require_writable=True)
        _Job.pending.append(memory)
        _call("bulk_get", memory, at, into.nbytes)

    def put(self, place: Place, values: ArrayLike) -> None:
        """Starts to write, which is complete after sync()."""
        at, count = self._place(place)
        memory = self._values(values, count)
        _call("bulk_put", at, memory, len(memory))

    def store(self, place: Place, values: ArrayLike) -> None:
        """Writes without an answer: the owner learns of it by store_sync() or all_store_sync()."""
        at, count = self._place(place)
        memory = self._values(values, count)
        _call("bulk_store", at, memory, len(memory))

    def free(self) -> None:
        """Collective; the job's end does it, too. Raises BufferError while views of the own part exist."""
        self.local = numpy.empty(0, self.dtype)
        if self._memory() is not None:
            raise BufferError("views of this array's memory are in use: delete them before free()")
        _call("all_spread_free", self._spread)


def _in_child() -> None:
    _Job.thread = None


os.register_at_fork(after_in_child=_in_child)
