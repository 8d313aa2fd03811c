# lifetime.py - what objects of the C ABI need of an interpreter: times, names, memory that outlives a close, forks, exceptions of handlers.
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from ._unet import ffi, lib
from .errors import BusyError, ClosedError, ForkedError, UnetError

PIECE = lib.UNET_PY_PIECE_MS / 1000  # seconds: the longest wait in C, so that Ctrl-C works


def nanoseconds(seconds: float | None) -> int:
    """None: no limit, or the library's default of a spin."""
    return -1 if seconds is None else int(min(max(0.0, seconds * 1e9), 2.0**62))


def encoded(value: str) -> bytes:
    """A string for the C ABI, where it ends at the first NUL."""
    made = value.encode()
    if b"\0" in made:
        raise ValueError(f"a name has no NUL: {value!r}")
    return made


def text(pointer: Any) -> str:
    return str(ffi.string(pointer), errors="replace")


def options(kind: str, **members: Any) -> Any:
    """A structure with a member `size`. Members that are None have their default."""
    made = ffi.new(kind + " *")
    made.size = ffi.sizeof(kind)
    for name, value in members.items():
        if value is not None:
            setattr(made, name, value)
    return made


_handles: "weakref.WeakSet[Handle]" = weakref.WeakSet()


class Handle:
    """Owns an object of the C ABI and destroys it, but not before the last view of its memory is gone."""

    def __init__(self, pointer: Any, destroy: Callable[[Any], None], what: str, guard: Any = None) -> None:
        """`guard`: the unet_py_endpoint by which calls reach the object."""
        self._owner = ffi.gc(pointer, destroy)
        self._pointer: Any = pointer
        self._guard = guard
        self._what = what
        self._refusal: tuple[type[UnetError], str] | None = None  # why no call is possible any more
        self._views: set[object] = set()
        self.is_parents = False  # the object's; this process is a child
        self.lock = threading.RLock()
        _handles.add(self)

    @property
    def pointer(self) -> Any:
        if self._refusal is not None:
            error, sentence = self._refusal
            raise error(sentence)
        return self._pointer

    @property
    def closed(self) -> bool:
        return self._refusal is not None

    def __enter__(self) -> Any:
        """Returns the pointer, for calls that one thread at a time may make."""
        if not self.lock.acquire(blocking=False):
            raise BusyError(f"another thread is in a call of this {self._what}: use it from one thread at a time")
        try:
            return self.pointer
        except BaseException:
            self.lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def close(self) -> None:
        """Does nothing if it is closed. The object itself lives until the last view of its memory is gone."""
        if self._refusal is None:
            self._refuse(ClosedError, f"this {self._what} is closed", lib.UNET_PY_ECLOSED)
        self._destroy_if_unused()

    def forked(self) -> None:
        self._refuse(ForkedError, f"this {self._what} belongs to the parent process: a child opens its own context", lib.UNET_PY_EFORKED)
        self.is_parents = True
        self.lock = threading.RLock()
        ffi.gc(self._owner, None)  # the parent destroys it

    def _refuse(self, error: type[UnetError], sentence: str, code: int) -> None:
        self._refusal = (error, sentence)
        if self._guard is not None:
            self._guard.refused = code

    def _destroy_if_unused(self) -> None:
        if not self._views and self._refusal is not None and self._refusal[0] is ClosedError:
            ffi.release(self._owner)

    def view(self, memory: Any, length: int, ended: Callable[[], None] | None = None) -> memoryview:
        """A writable view of memory of the object; `ended` runs when it and everything made from it is gone."""
        key = object()
        self._views.add(key)  # first, so that a close() in another thread sees it, or is seen
        if self.closed:
            self._view_gone(key, None, None)
        self.pointer  # raises ClosedError, ForkedError
        guarded = ffi.gc(ffi.cast("char *", memory), partial(self._view_gone, key, ended))
        return memoryview(ffi.buffer(guarded, length))

    def _view_gone(self, key: object, ended: Callable[[], None] | None, _: Any) -> None:
        if ended is not None:
            ended()
        self._views.discard(key)
        self._destroy_if_unused()


def _in_child() -> None:
    for handle in list(_handles):
        handle.forked()


os.register_at_fork(after_in_child=_in_child)


class Closing:
    """A `with` block closes the object at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class Raised:
    """The exceptions of a program's handlers, which may not pass through C: the call that ran the handlers raises the first of them."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []

    def note(self, error: BaseException) -> None:
        self._errors.append(error)

    def check(self) -> None:
        if self._errors:
            first = self._errors[0]
            self._errors.clear()
            raise first
