"""The tree of exceptions that users see, each with its HTTP status.

ShortlistError                500
├── BadInput                  400   the request, file or option is wrong
├── Unauthorized              401   the request has no API key, or one that is not known
├── Forbidden                 403   the key's roles, the host or the page that asks, or a switch do not permit it
├── NotFound                  404   no such model, version, file
├── TooLarge                  413   over the body limit
├── Overloaded                429   more is queued than the server will hold
├── TimedOut                  504   the request's timeout passed before its result was computed
├── SlowBody                  408   the request's body did not arrive in time
├── NotReady                  503   loading, draining, or its canary failed
├── StorageFull               507   what is to be kept cannot be written to the disk
├── Unsupported               501   a feature that is not served
│   └── UnsupportedEncoding   415   a body's encoding is not served
├── BundleError               500   a bundle is damaged, newer than this runtime, or cannot be written
│   └── VersionExists         409   an exported version is never overwritten
├── QualityError              500   an export whose quality is under its promise
├── DeviceError               500   the device is not available
├── MissingExtra              500   an optional package is not installed
├── ServerError               500   (client) the server could not answer
└── Unreachable               503   (client) no server answered

The message is one sentence: what was wrong, where, and how to mend it.
"""

from __future__ import annotations

import re

# Of Python, of the linker, of C++ and of torch, which raise it as errors of several kinds.
LACKS = re.compile("can't start new thread|failed to map segment|bad_alloc|can't allocate memory")


class ShortlistError(Exception):
    """Base of all errors raised on purpose; `status` is the HTTP status of the response."""

    status = 500


class BadInput(ShortlistError):
    """The request, file or option is wrong."""

    status = 400


class Unauthorized(ShortlistError):
    """The request has no API key, or one that the server does not know."""

    status = 401


class Forbidden(ShortlistError):
    """The key's roles, the host or the page that asks, or a switch of the server do not permit the request."""

    status = 403


class NotFound(ShortlistError):
    """No such model, version or file."""

    status = 404


class TooLarge(ShortlistError):
    """The body is over the limit."""

    status = 413


class Overloaded(ShortlistError):
    """More is queued than the server will hold; there should be room `retry_after` seconds later."""

    status = 429

    def __init__(self, sentence: str, retry_after: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class TimedOut(ShortlistError):
    """The request's timeout passed before its result was computed."""

    status = 504


class SlowBody(ShortlistError):
    """The request's body did not arrive in time."""

    status = 408

    @classmethod
    def after(cls, seconds: float) -> SlowBody:
        """Make the error for a body that took more than `seconds`."""
        return cls(f"the body did not come within {seconds:g} s: send it faster")


class NotReady(ShortlistError):
    """The model is loading, draining, or failed its canary."""

    status = 503


class StorageFull(ShortlistError):
    """What is to be kept cannot be written to the disk; nothing was changed."""

    status = 507


class Unsupported(ShortlistError):
    """A feature that is not served."""

    status = 501


class UnsupportedEncoding(Unsupported):
    """A body came in an encoding that is not served; `accepted` are those that are."""

    status = 415

    def __init__(self, sentence: str, accepted: str = "identity") -> None:
        super().__init__(sentence)
        self.accepted = accepted


class BundleError(ShortlistError):
    """A bundle is damaged, newer than this runtime, or cannot be written."""


class VersionExists(BundleError):
    """An exported version is immutable and never overwritten."""

    status = 409


class QualityError(ShortlistError):
    """An export's quality on held-out contexts is under the promise that was asked for."""


class DeviceError(ShortlistError):
    """The device asked for is not available."""


class MissingExtra(ShortlistError):
    """An optional package is not installed."""


class ServerError(ShortlistError):
    """Client side: the server failed, or it is no Shortlist server."""


class Unreachable(ShortlistError):
    """Client side: no server answered."""

    status = 503


def is_lack(error: BaseException) -> bool:
    """Whether an error says that the system refused memory, files or threads, so that nothing else is to blame."""
    return isinstance(error, (OSError, MemoryError)) or LACKS.search(str(error)) is not None
