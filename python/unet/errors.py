# errors.py - the exceptions of the package: one class for each error code of the C ABI.
from ._unet import ffi, lib


class UnetError(Exception):
    """An error of U-Net. Its text says what is wrong, and what is allowed or what to do."""

    code: int = 0  # UNET_E... of unet.h

    @property
    def name(self) -> str:
        """One word for the error, such as "not_found"."""
        return str(ffi.string(lib.unet_error_name(self.code)), "ascii")


class InvalidError(UnetError, ValueError):
    """A malformed option, name or address."""


class NotPermittedError(UnetError, PermissionError):
    """The policy of the network interface does not allow it to this user."""


class QuotaError(UnetError):
    """A limit of the policy or of the implementation is reached."""


class NotFoundError(UnetError, LookupError):
    """There is no such name, host, request, region or channel."""


class ExistsError(UnetError):
    """It exists already."""


class RefusedError(UnetError, ConnectionRefusedError):
    """The peer did not accept the channel."""


class TimedOutError(UnetError, TimeoutError):
    """Not done within the time allowed."""


class DisconnectedError(UnetError, ConnectionError):
    """The network interface or the peer is gone."""


class UnavailableError(UnetError, ConnectionError):
    """No network interface is there, or this machine lacks something."""


class NoMemoryError(UnetError, MemoryError):
    """No memory or descriptors were available."""


class ProtocolError(UnetError):
    """The other side broke the control protocol."""


class SystemCallError(UnetError):
    """A system call failed; the text names it."""


class FullError(UnetError, BlockingIOError):
    """A channel has no room now."""


class TooLongError(UnetError, ValueError):
    """A message is too long."""


class NoChannelError(UnetError, ConnectionError):
    """There is no such channel, or one side has closed it."""


class BoundsError(UnetError, IndexError):
    """A put outside the region that the peer exposes."""


class UndeliveredError(UnetError):
    """An Active Message that was not sent, or that came back."""


class ClosedError(UnetError, ValueError):
    """The object has been closed, or its message released."""


class ForkedError(UnetError):
    """The object belongs to the parent of this process."""


class BusyError(UnetError):
    """Another thread is in a call of the same endpoint."""


# Errors of calls that store no text, with their sentence.
_SENTENCES: dict[int, tuple[type[UnetError], str]] = {
    lib.UNET_EFULL: (FullError, "the channel has no room now: receive messages, or wait_room(), and send again"),
    lib.UNET_ETOOLONG: (TooLongError, f"a message has at most {lib.UNET_MESSAGE_MAX} bytes"),
    lib.UNET_ENOCHANNEL: (NoChannelError, "the channel is closed, by this side or by its peer: connect() again"),
    lib.UNET_EBOUNDS: (BoundsError, "the put lies outside the region that the peer exposes: map_peer_region() returns the region's size"),
    lib.UNET_AM_ENOTSENT: (FullError, "there is no credit now: poll(), and send again"),
    lib.UNET_AM_ERETURNED: (UndeliveredError, "the message came back: see the function given to on_returned()"),
    lib.UNET_AM_EBADCALL: (
        UndeliveredError,
        "against the rules of Active Messages: too many arguments, too long a payload, no such handler index, a second reply, a reply from "
        "a reply's handler, or a request from a handler"),
    lib.UNET_PY_EBUSY: (BusyError, "another thread is in a call of this endpoint: use an endpoint from one thread at a time"),
    lib.UNET_PY_ECLOSED: (ClosedError, "this endpoint is closed"),
    lib.UNET_PY_EFORKED: (ForkedError, "this endpoint belongs to the parent process: a child opens its own context and endpoints"),
}

# Errors of calls that store a text.
_CLASSES: dict[int, type[UnetError]] = {
    lib.UNET_EINVALID: InvalidError,
    lib.UNET_EPERMISSION: NotPermittedError,
    lib.UNET_EQUOTA: QuotaError,
    lib.UNET_ENOTFOUND: NotFoundError,
    lib.UNET_EEXISTS: ExistsError,
    lib.UNET_EREFUSED: RefusedError,
    lib.UNET_ETIMEDOUT: TimedOutError,
    lib.UNET_EDISCONNECTED: DisconnectedError,
    lib.UNET_EUNAVAILABLE: UnavailableError,
    lib.UNET_ENOMEMORY: NoMemoryError,
    lib.UNET_EPROTOCOL: ProtocolError,
    lib.UNET_ESYSTEM: SystemCallError,
}

for _code, (_class, _) in _SENTENCES.items():
    _class.code = _code
for _code, _class in _CLASSES.items():
    _class.code = _code


def error_of(code: int, text: str | None = None) -> UnetError:
    """The exception for an error code; its text is `text`, or the sentence of this thread's last failed call."""
    if code in _SENTENCES:
        kind, sentence = _SENTENCES[code]
        return kind(text or sentence)
    return _CLASSES.get(code, UnetError)(text or ffi.string(lib.unet_error_text()).decode(errors="replace"))


def check(result: int) -> int:
    """Returns the result of a call, or raises its error."""
    if result < 0:
        raise error_of(result)
    return result


def disconnected() -> UnetError:
    return DisconnectedError("the network interface is gone, and no local channel is left: open a new context when it runs again")
