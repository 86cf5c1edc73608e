"""Responses from the bytes of a connection, by the parser that uvicorn parses requests with; no I/O."""

from __future__ import annotations

from typing import NamedTuple

import httptools

from ..messages import HTTP_OK, Response
from .failures import ConnectionLost

READ_BYTES = 64 << 10  # that a connection reads at a time
MAX_HEAD_BYTES = 64 << 10
FIRST_FINAL_STATUS = 200  # below are interim responses, which come before the one that counts
IDENTITY = "identity"
END_OF_HEAD = b"\r\n\r\n"
NO_HTTP = "something that is no HTTP response"
GZIP_OR_ZLIB_BITS = 47  # zlib's: a window of 32 KiB, the format by its first bytes


class KnownHead(NamedTuple):
    """A response's head that was parsed before. size: of the response, with its body."""

    head: bytes
    headers: dict[str, str]
    size: int


class ResponseParser:
    """Parses the responses that one connection carries, one at a time.

    response: the one that came last, None while it is not whole. keeps_open: whether another request may follow it.
    known: the last head that came with its whole body; a server writes the same one for a second, until its date
    changes, and who sees it again has nothing to parse.
    """

    known: KnownHead | None = None

    def __init__(self) -> None:
        self.raw_headers: dict[bytes, bytes] = {}
        self.pieces: list[bytes] = []
        self.on_header, self.on_body = self.raw_headers.__setitem__, self.pieces.append  # the parser calls these
        self.parser = httptools.HttpResponseParser(self)
        self.expect()

    def expect(self) -> None:
        """Begin with the next response."""
        self.response: Response | None = None
        self.headers: dict[str, str] = {}
        self.raw_headers.clear()
        self.pieces.clear()
        self.read_bytes = 0
        self.in_head = True
        self.keeps_open = False

    def parse_piece(self, data: bytes) -> Response | None:
        """The response once it is whole, None before; raises ConnectionLost for what is no HTTP."""
        known = self.known
        if known is not None and len(data) == known.size and not self.read_bytes and data.startswith(known.head):
            self.response, self.keeps_open = Response(HTTP_OK, known.headers, data[len(known.head) :]), True
            return self.response
        self.read_bytes += len(data)
        self.run_parser(data)
        if self.in_head and self.read_bytes > MAX_HEAD_BYTES:
            raise ConnectionLost(f"a response's head of over {MAX_HEAD_BYTES} bytes")
        if self.response is not None and self.read_bytes == len(data):
            self.learn(data, self.response)
        return self.response

    def run_parser(self, data: bytes) -> None:
        """Let the parser read on; raises ConnectionLost for what is no HTTP."""
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keeps_open = False
            if self.response is None:
                cause = error.__context__  # of a callback
                raise cause if isinstance(cause, ConnectionLost) else ConnectionLost(NO_HTTP) from None

    def learn(self, data: bytes, response: Response) -> None:
        """Remember the head of `data`, which was one whole response."""
        size = len(data) - len(response.content)
        is_plain = self.headers.get("content-length") == str(len(response.content)) and response.status == HTTP_OK
        if is_plain and self.keeps_open and data.endswith(END_OF_HEAD, 0, size):
            self.known = KnownHead(data[:size], self.headers, len(data))

    def finish(self) -> Response:
        """The response that ends with the connection; raises ConnectionLost where that cut it off."""
        if self.response is None:
            if self.in_head or self.has_framing:
                raise ConnectionLost("connection closed without a whole answer")
            self.complete(keeps_open=False)
        assert self.response is not None
        return self.response

    @property
    def has_framing(self) -> bool:
        """Whether the head says where the body ends."""
        if "transfer-encoding" in self.headers:
            return self.headers["transfer-encoding"].lower().rstrip().endswith("chunked")
        return "content-length" in self.headers

    def complete(self, *, keeps_open: bool) -> None:
        """Make the response of what came."""
        content = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        encoding = self.headers.get("content-encoding", IDENTITY)
        if encoding != IDENTITY:
            content = decompress(content, encoding)
        self.response = Response(self.parser.get_status_code(), self.headers, content)
        self.keeps_open = keeps_open

    def on_headers_complete(self) -> None:
        """The head came whole; headers behind it are trailers, which say nothing that counts.

        Raises ConnectionLost behind a whole response, since nobody asked for another.
        """
        if self.response is not None:
            raise ConnectionLost("a response that nobody asked for")
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.raw_headers.items()
        }
        self.in_head = False

    def on_message_complete(self) -> None:
        """Whole; an interim response is forgotten."""
        if self.parser.get_status_code() < FIRST_FINAL_STATUS:
            self.expect()
        else:
            self.complete(keeps_open=self.parser.should_keep_alive())


def decompress(content: bytes, encoding: str) -> bytes:
    """A body as it was before it was compressed, which we never ask for; raises ConnectionLost."""
    import zlib

    try:
        if encoding.strip().lower() in ("gzip", "x-gzip", "deflate"):
            return zlib.decompress(content, GZIP_OR_ZLIB_BITS)
    except zlib.error:
        pass
    raise ConnectionLost(f"a response of encoding '{encoding}', which was not asked for or is damaged")
