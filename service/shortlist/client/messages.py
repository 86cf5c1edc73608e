"""Requests and responses of HTTP, as exchanges make and read them and as transports carry them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from shortlist.core.checks import cut
from shortlist.errors import BadInput

HTTP_OK = 200
T = TypeVar("T")


class Request(NamedTuple):
    """An HTTP request.

    parts: the body's buffers, one after the other. headers: names and values. is_safe: whether a server
    that gets it twice answers as if it had come once, so that it may be repeated.
    """

    method: str
    path: str
    parts: tuple[bytes | memoryview, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    is_safe: bool = True

    @property
    def size(self) -> int:
        """Bytes of the body."""
        size = 0
        for part in self.parts:
            size += len(part) if isinstance(part, bytes) else part.nbytes
        return size

    @property
    def content(self) -> bytes:
        """The body."""
        return b"".join(self.parts)


class Response(NamedTuple):
    """One HTTP response; `headers` are looked up by names in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Limits(NamedTuple):
    """How many context vectors one request may hold, and the parameters that tell the server how long it may take."""

    max_rows: int
    parameters: Mapping[str, Any] = MappingProxyType({})


Exchange = Generator[Request, Response, T]  # yields requests, is sent the responses, and at last returns the result


def quote_name(what: str, name: Any) -> str:
    """A name as a segment of a path; raises BadInput, which says of `what` it is, for what no path can hold."""
    if not isinstance(name, str) or not name:
        raise BadInput(f"{what} is {cut(repr(name))}: give its name")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise BadInput(f"{what} is {cut(repr(name))}, which is no whole text: give its name") from None
