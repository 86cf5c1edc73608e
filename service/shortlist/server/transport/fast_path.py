"""The fast path: a small request is answered in the callback that read it, from the bytes read to the bytes written.

The response's bytes, the metrics and the admission are those of a request through uvicorn's parser and the gateway, at
a fraction of their cost. It serves a request whose head was parsed before, byte for byte but for headers that nothing
reads, and may ask by its host, origin and API key, that came with its whole body on an idle connection, and whose task
is computed inline. For any other it returns None, with nothing done, and uvicorn and the gateway take over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from shortlist.server.access.keys import KeyRing, Role
from shortlist.server.engine.body_reading import MAX_INLINE_BYTES
from shortlist.server.engine.endpoints import EndpointMatcher, Target
from shortlist.server.engine.pipeline import respond_inline
from shortlist.server.engine.service import Service
from shortlist.server.messages.bounded_cache import BoundedCache
from shortlist.server.messages.headers import CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING, Headers, RawHeaders

from .passing_headers import drop_passing_headers, read_passing_headers
from .uvicorn_protocol import write_head

END_OF_HEAD = b"\r\n\r\n"
HEAD_CACHE_ENTRIES = 1024
MAX_CACHED_HEAD_BYTES = 2048  # of a head worth remembering
SKIPPED_REQUESTS = 16  # that are not tried after one that would have had to wait
UNUSUAL_HEADERS = frozenset((TRANSFER_ENCODING, CONTENT_ENCODING, b"expect", b"upgrade"))
KEEP_ALIVE = b"keep-alive"


@dataclass(slots=True)
class ParsedHead:
    """A request's head that was parsed before. body_bytes: of its body. skip: requests that are not to be tried.

    keys: the API keys by which it may ask; once they were read again it has to be checked again. key_client: the name
    of the client by its key, None where it has none.
    response_head: the last response's head, made of the three before it.
    """

    target: Target
    headers: RawHeaders
    body_bytes: int
    keys: KeyRing | None
    key_client: str | None
    skip: int = 0
    response_status: int = 0
    default_headers: Headers | None = None
    response_headers: Headers | None = None
    response_head: bytes = b""


class FastPath:
    """The fast path of all connections, and the heads that it knows."""

    def __init__(self, service: Service, matcher: EndpointMatcher) -> None:
        self.service, self.matcher = service, matcher
        self.max_body_bytes = min(MAX_INLINE_BYTES, service.settings.body_limit, service.settings.json_limit)
        self.heads: BoundedCache[bytes, ParsedHead] = BoundedCache(HEAD_CACHE_ENTRIES)
        service.metrics.caches.watch("heads", lambda: len(self.heads))

    def learn(self, data: bytes, path: str, headers: Headers) -> None:
        """Remember the head of `data`, parsed as one request of HTTP/1.1 that keeps its connection, and no more."""
        end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
        parsed = self.heads.get(data[:end])
        if parsed is not None and parsed.keys is self.service.access.keys:
            return
        head, size, by_name = data[:end], len(data) - end, dict(headers)
        if end > MAX_CACHED_HEAD_BYTES or size > self.max_body_bytes or head.count(b"\n") != head.count(b"\r\n"):
            return
        if by_name.get(CONTENT_LENGTH) != str(size).encode() or not UNUSUAL_HEADERS.isdisjoint(by_name):
            return
        if by_name.get(b"connection", KEEP_ALIVE).lower() != KEEP_ALIVE:
            return
        access, target, key = self.service.access, self.matcher.find_known(path), drop_passing_headers(head)
        known = self.heads.get(key)
        if target is None or (known is not None and known.keys is access.keys):
            return
        if access.permits(headers, Role.ASK):
            for name in read_passing_headers(head):
                by_name.pop(name, None)
            self.heads.put(key, ParsedHead(target, by_name, size, access.keys, self.service.find_key_client(by_name)))

    def find(self, head: bytes) -> ParsedHead | None:
        """What a head was parsed into before, be it with other passing headers; None for one that is not known."""
        parsed = self.heads.get(head)
        if parsed is None and len(head) <= MAX_CACHED_HEAD_BYTES and head.startswith(b"POST "):
            key = drop_passing_headers(head)
            return self.heads.get(key) if len(key) < len(head) else None
        return parsed

    def respond(self, data: bytes, address: str, default_headers: Headers) -> bytes | None:
        """The whole response to what an idle connection from `address` read; None where uvicorn has to parse that.

        default_headers: headers that every response begins with.
        """
        end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
        raw_head = data[:end]
        head = self.find(raw_head)
        if head is None or len(data) - end != head.body_bytes or self.service.closing:
            return None
        if head.keys is not self.service.access.keys:
            return None
        if head.skip:
            head.skip -= 1
            return None
        client = head.key_client or self.service.addresses(head.headers, address)
        response = respond_inline(
            self.service, head.target, head.headers, client, data[end:], partial(read_passing_headers, raw_head)
        )
        if response is None:
            head.skip = 0 if self.service.admission.is_refusing else SKIPPED_REQUESTS
            return None
        status, content, headers = response
        if (
            headers != head.response_headers
            or status != head.response_status
            or default_headers is not head.default_headers  # a new list whenever they change
        ):
            head.response_head = write_head(status, [*default_headers, *headers])
            head.response_status, head.response_headers, head.default_headers = status, headers, default_headers
        return head.response_head + content
