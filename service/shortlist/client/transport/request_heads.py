"""Heads of requests as bytes, each written once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from .address import Address

MAX_KNOWN_HEADS = 256
BODY_METHODS = frozenset(("POST", "PUT"))  # whose requests say the length of their body, also of none
Headers = tuple[tuple[str, str], ...]
WriteHead = Callable[[str, str, Headers, int], bytes]  # of method, path, headers and the body's size


def make_head_writer(address: Address, common_headers: Headers) -> WriteHead:
    """What writes the heads of requests to one server, all with the same headers in common."""
    common = (("Host", address.host_header), ("Accept-Encoding", "identity"), *common_headers)

    def write_head(method: str, path: str, headers: Headers, size: int) -> bytes:
        length = (("Content-Length", str(size)),) if size or method in BODY_METHODS else ()
        lines = [f"{name}: {value}" for name, value in (*common, *headers, *length)]
        return "\r\n".join([f"{method} {address.folder}{path} HTTP/1.1", *lines, "", ""]).encode("latin-1")

    return lru_cache(MAX_KNOWN_HEADS)(write_head)
