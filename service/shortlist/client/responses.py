"""What every response may say: an error, a time to come again, JSON."""

from __future__ import annotations

import json
import time
from typing import Any

from shortlist.core.checks import cut
from shortlist.errors import (
    BadInput,
    Forbidden,
    NotFound,
    NotReady,
    Overloaded,
    ServerError,
    ShortlistError,
    StorageFull,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unsupported,
)

from .messages import HTTP_OK, Response

MIN_PAUSE_SECONDS = 0.1  # before a repeat, also where a proxy says 0
MAX_DIGITS = 9  # of a Retry-After: no server means three decades
ERROR_OF_STATUS: dict[int, type[ShortlistError]] = {
    error.status: error
    for error in (
        *(BadInput, Unauthorized, Forbidden, NotFound, TooLarge, Overloaded),
        *(StorageFull, Unsupported, NotReady, TimedOut),
    )
}


def parse_json_object(content: bytes) -> dict[str, Any]:
    """Parse a body that must be a JSON object; raises ServerError."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ServerError("the answer is not JSON, so this is no Shortlist server: check the URL")
    return value


def read_retry_after(response: Response) -> int | None:
    """Return the seconds of Retry-After of a 429, None for any other response."""
    seconds = response.headers.get("retry-after", "")
    is_number = seconds.isdecimal() and len(seconds) <= MAX_DIGITS
    return int(seconds) if response.status == Overloaded.status and is_number else None


def get_retry_after(response: Response) -> float | None:
    """Return the seconds to wait after a 429 that says Retry-After, None for any other response.

    Up to a tenth is added at random, so that clients refused together do not come back together.
    """
    seconds = read_retry_after(response)
    if seconds is None:
        return None
    from random import uniform  # takes milliseconds to import, and most clients never need it

    return max(MIN_PAUSE_SECONDS, seconds) * uniform(1.0, 1.1)


def choose_pause(response: Response, deadline: float) -> float | None:
    """Seconds until a request refused for load is sent again; None where it is not, or that is after the deadline.

    deadline: by the monotonic clock.
    """
    seconds = get_retry_after(response)
    return None if seconds is None or time.monotonic() + seconds > deadline else seconds


def raise_for_status(response: Response) -> Response:
    """Return a response of status 200; raise the error that stands for any other, with the server's sentence."""
    if response.status == HTTP_OK:
        return response
    try:
        sentence = str(parse_json_object(response.content)["error"])
    except (ServerError, KeyError):
        body = cut(response.content.decode(errors="replace"))
        sentence = f"the server answered {response.status} without a reason ({body})"
    raise make_error(response, sentence)


def make_error(response: Response, sentence: str) -> ShortlistError:
    """The error that stands for a status; of a refusal for load with the seconds that the server said."""
    seconds = read_retry_after(response)
    if seconds is not None:
        return Overloaded(sentence, seconds)
    return ERROR_OF_STATUS.get(response.status, ServerError)(sentence)
