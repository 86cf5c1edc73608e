"""Every error a user can meet.

ShortlistError                500
├── BadInput                  400   the request, file or option is wrong
├── NotFound                  404   no such model, version, file
├── TooLarge                  413   over the body limit
├── Overloaded                429   more is queued than the server will hold
├── TimedOut                  504   the request's time was over before its answer was computed
├── SlowBody                  408   the body did not come in time
├── NotReady                  503   loading, draining, or its canary failed
├── Unsupported               501   an encoding or feature that is not served
├── BundleError               500   a bundle is damaged, newer than this runtime, or cannot be written
│   └── VersionExists         409   an exported version is never overwritten
├── QualityError              500   an export under the promise that was asked for
├── DeviceError               500   the device asked for is not there
├── MissingExtra              500   an optional package is not installed
├── ServerError               500   (client) the server could not answer
└── Unreachable               503   (client) no server, or it hung up

The message is one sentence: what was wrong, where, and how to mend it.
"""

from __future__ import annotations


class ShortlistError(Exception):
    """Base of all errors raised on purpose; `status` is the HTTP status it answers with."""

    status = 500


class BadInput(ShortlistError):
    """The request, file or option is wrong."""

    status = 400


class NotFound(ShortlistError):
    """No such model, version or file."""

    status = 404


class TooLarge(ShortlistError):
    """A body over the limit."""

    status = 413


class Overloaded(ShortlistError):
    """More is queued than the server will hold; `retry_after` seconds from now there should be room."""

    status = 429

    def __init__(self, sentence: str, retry_after: int = 1) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class TimedOut(ShortlistError):
    """The request's time was over before its answer was computed."""

    status = 504


class SlowBody(ShortlistError):
    """The request's body did not come in time."""

    status = 408

    @classmethod
    def after(cls, seconds: float) -> SlowBody:
        """With its sentence."""
        return cls(f"the body did not come within {seconds:g} s: send it faster")


class NotReady(ShortlistError):
    """The model is loading, draining, or failed its canary."""

    status = 503


class Unsupported(ShortlistError):
    """An encoding or a feature that is not served."""

    status = 501


class BundleError(ShortlistError):
    """A bundle that is damaged, newer than this runtime, or cannot be written."""


class VersionExists(BundleError):
    """An exported version is immutable and never overwritten."""

    status = 409


class QualityError(ShortlistError):
    """An export whose held-out quality is under the promise that was asked for."""


class DeviceError(ShortlistError):
    """The device asked for is not there."""


class MissingExtra(ShortlistError):
    """An optional package is not installed."""


class ServerError(ShortlistError):
    """Client side: the server answered with an internal error."""


class Unreachable(ShortlistError):
    """Client side: no server answered."""

    status = 503
