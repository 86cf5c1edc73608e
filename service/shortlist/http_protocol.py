"""uvicorn's HTTP, whose refusal of what is no HTTP is a sentence in JSON as every other failure."""

from __future__ import annotations

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MALFORMED = "the request is not HTTP/1.1: check its request line, headers and Content-Length"


class Protocol(HttpToolsProtocol):
    """One connection."""

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, and hang up. `msg` is uvicorn's own text for it."""
        del msg
        content = orjson.dumps({"error": MALFORMED})
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + content)
        self.transport.close()
