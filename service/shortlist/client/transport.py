"""What the blocking and the asyncio client share: address, limits of a request, errors of the network."""

from __future__ import annotations

import math
import os
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from shortlist.errors import BadInput, Unreachable

from .exchange import Response

TIMEOUT_SECONDS = 30.0
MAX_REQUEST_ROWS = 4096
MAX_PORT = 65_535
KEY_VARIABLE = "SHORTLIST_API_KEY"
KEY_PATTERN = re.compile(r"[\x21-\x7e]+")


class BaseClient(ABC):
    """Where the server is, and how much one request may hold.

    A head may switch to dense by the number of rows in a request, so a batch that is split into several requests may be
    answered by another plan than a whole one.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = TIMEOUT_SECONDS,
        max_rows: int = MAX_REQUEST_ROWS,
        api_key: str | None = None,
        ca_file: str | Path | None = None,
    ) -> None:
        """url: as in http://127.0.0.1:8000. max_rows: context vectors in one request. Raises BadInput.

        timeout: seconds that a response may take, and that a request is sent again while the server is overloaded.
        api_key: sent with every request; by default that of the variable SHORTLIST_API_KEY, if it is set. ca_file:
        PEM certificates to trust for https in place of those of the common authorities.
        """
        check_url(url)
        if not 0 < timeout < math.inf:
            raise BadInput(f"timeout is {timeout}: give seconds, over 0")
        if max_rows < 1:
            raise BadInput(f"max_rows is {max_rows}: give 1 or more")
        self.url, self.timeout, self.max_rows = url.rstrip("/"), timeout, max_rows
        headers = make_key_header(api_key)
        verify = True if ca_file is None else read_authorities(ca_file)
        self._open(base_url=self.url, timeout=timeout, trust_env=False, headers=headers, verify=verify)

    @abstractmethod
    def _open(self, **options: Any) -> None:
        """Make the httpx client, with these options."""

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


def make_key_header(api_key: str | None) -> dict[str, str]:
    """The header of an API key, by default of the one in the environment; raises BadInput, which does not show it."""
    source = f"the variable {KEY_VARIABLE}" if api_key is None else "api_key"
    key = os.environ.get(KEY_VARIABLE, "") if api_key is None else api_key
    if api_key is None and not key:
        return {}
    if not KEY_PATTERN.fullmatch(key):
        raise BadInput(f"{source} is no API key: give printable ASCII characters without spaces")
    return {"Authorization": f"Bearer {key}"}


def read_authorities(ca_file: str | Path) -> ssl.SSLContext:
    """What a connection trusts: the certificates of a PEM file; raises BadInput."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"ca_file {ca_file} cannot be read ({reason}): give PEM certificates") from None
