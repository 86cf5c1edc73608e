"""What both clients share: the server's address, limits, failures."""

from __future__ import annotations

import math

import httpx

from shortlist.errors import BadInput, Unreachable

TIMEOUT_SECONDS = 30.0
MAX_REQUEST_ROWS = 4096
PORTS = 1 << 16


class BaseClient:
    """What both clients share: where the server is, and how much one request may hold.

    A server decides on dense by the rows of one request, so a split batch may be answered by another plan than a
    whole one.
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT_SECONDS, max_rows: int = MAX_REQUEST_ROWS) -> None:
        """url: as in http://127.0.0.1:8000. max_rows: context vectors a request. Raises BadInput.

        timeout: seconds a request, and for asking again where the server has too much to do.
        """
        check_url(url)
        if not 0 < timeout < math.inf:
            raise BadInput(f"timeout is {timeout}: give seconds, over 0")
        if max_rows < 1:
            raise BadInput(f"max_rows is {max_rows}: give 1 or more")
        self.url, self.timeout, self.max_rows = url.rstrip("/"), timeout, max_rows

    def unreachable(self, error: Exception) -> Unreachable:
        """A connection that failed or timed out, in one sentence."""
        if isinstance(error, httpx.TimeoutException):
            return Unreachable(f"{self.url} did not answer within {self.timeout:g} s: raise timeout or send fewer rows")
        return Unreachable(f"{self.url} cannot be reached ({error}): is the server running there?")


def check_url(url: str) -> None:
    """Raise BadInput where no server could be reached at `url`."""
    try:
        parts = httpx.URL(url)
        host = parts.raw_host.decode().encode("idna")  # as looking the host up does; refuses a..b
    except (httpx.InvalidURL, UnicodeError):
        host = b""
    if not host or parts.scheme not in ("http", "https") or not 0 < (parts.port or 1) < PORTS:
        raise BadInput(f"'{url}' is no address of a server: write it as http://host:port")
