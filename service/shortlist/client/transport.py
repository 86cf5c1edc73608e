"""What the blocking and the asyncio client share: address, limits of a request, errors of the network."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from shortlist.errors import BadInput, Unreachable

from .exchange import Response

TIMEOUT_SECONDS = 30.0
MAX_REQUEST_ROWS = 4096
MAX_PORT = 65_535


class BaseClient:
    """Where the server is, and how much one request may hold.

    A head may switch to dense by the number of rows in a request, so a batch that is split into several requests may be
    answered by another plan than a whole one.
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT_SECONDS, max_rows: int = MAX_REQUEST_ROWS) -> None:
        """url: as in http://127.0.0.1:8000. max_rows: context vectors in one request. Raises BadInput.

        timeout: seconds that a response may take, and that a request is sent again while the server is overloaded.
        """
        check_url(url)
        if not 0 < timeout < math.inf:
            raise BadInput(f"timeout is {timeout}: give seconds, over 0")
        if max_rows < 1:
            raise BadInput(f"max_rows is {max_rows}: give 1 or more")
        self.url, self.timeout, self.max_rows = url.rstrip("/"), timeout, max_rows

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Turn a connection that fails or times out into Unreachable, in one sentence."""
        try:
            yield
        except httpx.TimeoutException as error:
            sentence = f"{self.url} did not answer within {self.timeout:g} s: raise timeout or send fewer rows"
            raise Unreachable(sentence) from error
        except httpx.TransportError as error:
            raise Unreachable(f"{self.url} cannot be reached ({error}): is the server running there?") from error


def to_response(response: httpx.Response) -> Response:
    """Convert httpx's response to the type that exchanges take."""
    return Response(response.status_code, response.headers, response.content)


def check_url(url: str) -> None:
    """Raise BadInput if `url` is not the address of an HTTP server."""
    try:
        parts = httpx.URL(url)
        host = parts.raw_host.decode().encode("idna")  # as name resolution encodes it; refuses a..b
    except (httpx.InvalidURL, UnicodeError):
        host = b""
    if not host or parts.scheme not in ("http", "https") or not 0 < (parts.port or 1) <= MAX_PORT:
        raise BadInput(f"'{url}' is no address of a server: write it as http://host:port")
