# context.py - connections to a network interface.
from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from ._unet import ffi, lib
from .endpoint import Endpoint
from .errors import check
from .lifetime import Closing, Handle, encoded, options, text


class Context(Closing):
    """A connection to a network interface. Any thread may use it."""

    def __init__(self, ni: str | None = None, *, program: str | None = None) -> None:
        """`ni`: "unix:PATH", "embedded:SPEC", or None for $UNET_NI, else the unetd of this host. `program`: shown to operators."""
        name = ffi.new("char[]", encoded(program)) if program is not None else ffi.NULL
        made = options("unet_context_options", program=name)
        out = ffi.new("unet_context **")
        check(lib.unet_context_open(encoded(ni) if ni is not None else ffi.NULL, made, out))
        self._handle = Handle(out[0], lib.unet_context_close, "context")

    def close(self) -> None:
        """Endpoints work until they are closed."""
        with self._handle.lock:
            self._handle.close()

    @contextlib.contextmanager
    def _use(self) -> Iterator[Any]:
        with self._handle.lock:
            yield self._handle.pointer

    @property
    def alive(self) -> bool:
        """Whether the network interface exists."""
        with self._use() as pointer:
            return bool(lib.unet_alive(pointer))

    def report(self) -> Any:
        """Everything that this user may see: endpoints, channels, names, counters, ports; as `unetctl --json` prints it."""
        out = ffi.new("char **")
        with self._use() as pointer:
            check(lib.unet_report(pointer, out))
        try:
            return json.loads(text(out[0]))
        finally:
            lib.unet_free(out[0])

    def endpoint(self, **sizes: Any) -> Endpoint:
        """Creates an endpoint; see Endpoint for the sizes."""
        return Endpoint(self, **sizes)
