"""What the blocking and the asyncio client share: the server's address, limits of a request, what is always sent."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from shortlist.core.checks import parse_whole_number
from shortlist.core.units import MICROSECONDS_PER_SECOND
from shortlist.errors import BadInput
from shortlist.runtime.handle import Handle

from .messages import Limits
from .transport.address import Address
from .transport.request_heads import Headers

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

TIMEOUT_SECONDS = 30.0
MAX_TIMEOUT_SECONDS = 10**9  # three decades; sockets know no more than ten times as many
MAX_REQUEST_ROWS = 4096
KEY_VARIABLE = "SHORTLIST_API_KEY"


class BaseClient(Handle, ABC):
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
        proxy: str | None = None,
    ) -> None:
        """url: as in http://127.0.0.1:8000, or unix:///run/shortlist.sock. max_rows: context vectors in one request.

        timeout: seconds that a response may take, and that a request is sent again while the server is overloaded; one
        under 30 is told to the server, which computes nothing that comes too late. api_key: sent with every request; by
        default that of the variable SHORTLIST_API_KEY, if it is set. ca_file: PEM certificates to trust for https in
        place of those of the common authorities. proxy: URL of a proxy to go through; the environment names none.
        Raises BadInput.
        """
        address = Address.parse(url)
        if not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT_SECONDS:
            raise BadInput(f"timeout is {timeout!r}: give seconds, over 0 and up to {MAX_TIMEOUT_SECONDS}")
        max_rows = parse_whole_number("max_rows", max_rows)
        if max_rows < 1:
            raise BadInput(f"max_rows is {max_rows}: give 1 or more")
        if address.is_unix and (proxy is not None or os.name != "posix"):
            raise BadInput(f"{url} is a Unix socket, which neither a proxy nor Windows reaches: give http://host:port")
        self.url, self.timeout = url.rstrip("/"), timeout
        parameters = {"timeout": int(timeout * MICROSECONDS_PER_SECOND)} if timeout < TIMEOUT_SECONDS else {}
        self.limits = Limits(max_rows, parameters)
        headers = make_key_header(api_key)
        authorities = None if ca_file is None else read_authorities(ca_file)
        if address.scheme == "https" or address.has_user or proxy is not None or os.name != "posix":
            self.open_httpx(headers, {"verify": authorities or True, "proxy": proxy})
        else:
            self.open_sockets(address, headers)

    def __repr__(self) -> str:
        """As in `Client('http://127.0.0.1:8000')`."""
        return f"{type(self).__name__}({self.url!r})"

    @abstractmethod
    def open_sockets(self, address: Address, headers: Headers) -> None:
        """Make the transport over plain sockets."""

    @abstractmethod
    def open_httpx(self, headers: Headers, options: dict[str, Any]) -> None:
        """Make the transport by httpx, with these options."""


def make_key_header(api_key: str | None) -> Headers:
    """The header of an API key, by default of the one in the environment; raises BadInput, which does not show it."""
    source = f"the variable {KEY_VARIABLE}" if api_key is None else "api_key"
    key = os.environ.get(KEY_VARIABLE, "") if api_key is None else api_key
    if api_key is None and not key:
        return ()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput(f"{source} is no API key: give printable ASCII characters without spaces")
    return (("Authorization", f"Bearer {key}"),)


def read_authorities(ca_file: str | Path) -> ssl.SSLContext:
    """What a connection trusts: the certificates of a PEM file; raises BadInput."""
    import ssl  # takes milliseconds to import

    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"ca_file {ca_file} cannot be read ({reason}): give PEM certificates") from None
