"""What the head of a request has to be, over what the parser asks of it: the rules of RFC 9112 against smuggling."""

from __future__ import annotations

import re

from shortlist.errors import BadInput, ShortlistError
from shortlist.server.messages.headers import (
    AUTHORIZATION,
    CONTENT_LENGTH,
    FORWARDED_FOR,
    HOST,
    TRANSFER_ENCODING,
    Headers,
)

MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 128  # tiny ones take many times their size in memory
CHECKED_HEADERS = frozenset((HOST, AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING))
WHITESPACE = b" \t"  # that may stand around a header's value
SERVED_VERSIONS = ("1.0", "1.1")
HOST_PATTERN = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[\w.~!$&'()*+,;=%-]*)(:\d*)?", re.ASCII)


class MalformedRequest(BadInput):
    """What came is no request of HTTP/1.1."""

    def __init__(self, reason: str = "check its request line, headers and Content-Length") -> None:
        super().__init__(f"the request is not HTTP/1.1: {reason}")


class HeadTooLarge(ShortlistError):
    """A request line and headers that are more than the server reads."""

    status = 431

    def __init__(self) -> None:
        size = f"{MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers"
        super().__init__(f"the request line and headers are over the limit of {size}: send fewer or shorter headers")


def check_head(method: bytes, version: str, headers: Headers) -> int:
    """Check a head that is parsed; returns the bytes of the body that it announces, 0 where it names no number.

    Raises MalformedRequest, HeadTooLarge.
    """
    if len(headers) > MAX_HEADERS:
        raise HeadTooLarge
    if version not in SERVED_VERSIONS:
        raise MalformedRequest(f"send version 1.1 in place of {version}")
    if method == b"CONNECT":
        raise MalformedRequest("CONNECT is for proxies, which this server is not")
    checked = [header for header in headers if header[0] in CHECKED_HEADERS]
    values = dict(checked)
    if len(values) < len(checked):  # a proxy in front may have looked at another one
        raise MalformedRequest("send one header each of Host, Authorization, Content-Length and Transfer-Encoding")
    if TRANSFER_ENCODING in values:
        check_transfer_encoding(values[TRANSFER_ENCODING], version)
    check_host(values.get(HOST), version)
    return int(values.get(CONTENT_LENGTH, b"0"))


def join_forwarded(headers: Headers) -> None:
    """Make one line of the lines of X-Forwarded-For, which is a list: each proxy may have added one."""
    lines = [value for name, value in headers if name == FORWARDED_FOR]
    if len(lines) > 1:
        others = [header for header in headers if header[0] != FORWARDED_FOR]
        headers[:] = [*others, (FORWARDED_FOR, b", ".join(lines))]


def check_transfer_encoding(value: bytes, version: str) -> None:
    """Raise MalformedRequest for a coding that is not served, and for one in HTTP/1.0, which knows none."""
    if value.strip(WHITESPACE).lower() != b"chunked" or version == "1.0":
        raise MalformedRequest("of Transfer-Encoding, chunked alone is served")


def check_host(host: bytes | None, version: str) -> None:
    """Raise MalformedRequest unless there is a Host header, which in HTTP/1.0 may be missing, with a host in it."""
    if host is None and version == "1.1":
        raise MalformedRequest("send one Host header")
    if host is not None and HOST_PATTERN.fullmatch(host.strip(WHITESPACE)) is None:
        raise MalformedRequest("Host has to be a name or an address, and a port")


def write_head_without_upgrade(method: bytes, url: bytes, version: str, headers: Headers) -> bytes:
    """The same head without its wish to go on in another protocol, which a server may ignore (RFC 9110, 7.8)."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    for name, value in headers:
        if name == b"connection":
            tokens = [token for token in value.split(b",") if token.strip().lower() not in (b"", b"upgrade")]
            lines += [b"connection: %b" % b",".join(tokens)] if tokens else []
        elif name != b"upgrade":
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
