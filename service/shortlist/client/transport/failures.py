"""How sending a request fails, and which failures a request is repeated after."""

from __future__ import annotations

from collections.abc import Iterator

from shortlist.errors import Unreachable

MAX_ATTEMPTS = 3  # the first may be on a connection that the server has closed, the second while it restarts
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 0.15  # before a new connection is tried again


class ConnectionLost(Exception):
    """The connection ended before the response did, or carried what is no HTTP; the message says how."""


def choose_pause() -> float:
    """Seconds to wait before a repeat, at random, so that clients cut off together do not come back together."""
    from random import uniform  # takes milliseconds to import, and most clients never need it

    return uniform(MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS)


def make_timeout_error(url: str, timeout: float) -> Unreachable:
    """The error for a response that did not come in time."""
    return Unreachable(f"{url} did not answer within {timeout:g} s: raise timeout or send fewer rows")


def make_place_error(url: str, count: int, timeout: float) -> Unreachable:
    """The error for a request that was not sent, since others had all connections of the client."""
    return Unreachable(
        f"none of {count} connections to {url} was free within {timeout:g} s: "
        "raise timeout or send fewer requests at once"
    )


def make_connection_error(url: str, error: Exception) -> Unreachable:
    """The error for a server that cannot be connected to, or that ends connections before it has answered."""
    doubt = next((text for cause in list_causes(error) if (text := getattr(cause, "verify_message", ""))), None)
    if doubt is not None:
        return Unreachable(
            f"{url} is not trusted ({doubt.rstrip('.')}): give ca_file of the authority that signed its certificate, "
            "ask by a name that the certificate has, or have it renewed"
        )
    reason = next((text for cause in list_causes(error) if (text := str(cause))), type(error).__name__)
    return Unreachable(f"{url} cannot be reached ({reason}): is the server running there?")


def list_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came from, one after the other."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
