"""U-Net, a user-level network interface, from Python. docs/PYTHON.md is the guide.

    with unet.Context() as context, context.endpoint() as endpoint:
        channel = endpoint.connect("echo")
        channel.send(b"hello")
        _, data = endpoint.receive_bytes()
"""
from ._unet import ffi as _ffi
from ._unet import lib as _lib
from .context import Context
from .endpoint import Channel, Endpoint, Event, Message, Request
from .errors import (
    BoundsError,
    BusyError,
    ClosedError,
    DisconnectedError,
    ExistsError,
    ForkedError,
    FullError,
    InvalidError,
    NoChannelError,
    NoMemoryError,
    NotFoundError,
    NotPermittedError,
    ProtocolError,
    QuotaError,
    RefusedError,
    SystemCallError,
    TimedOutError,
    TooLongError,
    UnavailableError,
    UndeliveredError,
    UnetError,
)

MESSAGE_MAX: int = _lib.UNET_MESSAGE_MAX  # bytes of one message
INLINE_MAX: int = _lib.UNET_INLINE_MAX  # bytes of a message that costs one cache line
__version__: str = _ffi.string(_lib.unet_version()).decode()

__all__ = [
    "INLINE_MAX", "MESSAGE_MAX", "BoundsError", "BusyError", "Channel", "ClosedError", "Context", "DisconnectedError", "Endpoint", "Event",
    "ExistsError", "ForkedError", "FullError", "InvalidError", "Message", "NoChannelError", "NoMemoryError", "NotFoundError",
    "NotPermittedError", "ProtocolError", "QuotaError", "RefusedError", "Request", "SystemCallError", "TimedOutError", "TooLongError",
    "UnavailableError", "UndeliveredError", "UnetError",
]
