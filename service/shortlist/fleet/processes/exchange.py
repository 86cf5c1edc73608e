"""Requests and responses as they go between processes, and the call of a process's own app with one."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Scope

from shortlist.server.messages.headers import ACCEPT_ENCODING, CONTENT_LENGTH, Headers, make_length_header
from shortlist.server.routes.dependencies import PERMITTED

SUCCESS_STATUS = range(200, 300)


class Request(NamedTuple):
    """A request with its whole body. client: address and port."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes
    client: tuple[str, int]

    @classmethod
    def from_scope(cls, scope: Scope, body: bytes) -> Request:
        """The request of an ASGI scope."""
        address, port = scope.get("client") or ("", 0)
        return cls(scope["method"], scope["path"], scope["query_string"], list(scope["headers"]), body, (address, port))

    def to_json(self) -> list[Any]:
        """As it is sent to another process."""
        texts = encode_headers(self.headers)
        return [self.method, self.path, self.query.decode("latin-1"), texts, encode_bytes(self.body), self.client]

    @classmethod
    def from_json(cls, fields: list[Any]) -> Request:
        """The reverse of `to_json`."""
        method, path, query, headers, body, (address, port) = fields
        pairs = decode_headers(headers)
        return cls(method, path, query.encode("latin-1"), pairs, base64.b64decode(body), (address, port))


class Response(NamedTuple):
    """A whole response."""

    status: int
    headers: Headers
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the request did what it asked for."""
        return self.status in SUCCESS_STATUS

    def to_json(self) -> list[Any]:
        """As it is sent to another process."""
        return [self.status, encode_headers(self.headers), encode_bytes(self.body)]

    @classmethod
    def from_json(cls, fields: list[Any]) -> Response:
        """The reverse of `to_json`."""
        return cls(fields[0], decode_headers(fields[1]), base64.b64decode(fields[2]))


def replace_body(response: Response, body: bytes) -> Response:
    """The same response with another body."""
    headers = [header for header in response.headers if header[0] != CONTENT_LENGTH]
    return Response(response.status, [*headers, make_length_header(body)], body)


def encode_bytes(content: bytes) -> str:
    """Bytes as ASCII text."""
    return base64.b64encode(content).decode("ascii")


def encode_headers(headers: Headers) -> list[tuple[str, str]]:
    """Headers as texts."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def decode_headers(texts: list[list[str]]) -> Headers:
    """The reverse of `encode_headers`."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in texts]


async def call_app(app: ASGIApp, request: Request, *, is_permitted: bool = False) -> Response:
    """The response of an ASGI app; the client seems to stay until it has come, and to take it as it is.

    is_permitted: whether the request was let through before, be its key known no more.
    """
    messages: list[Message] = []
    bodies = iter([{"type": "http.request", "body": request.body}])

    async def receive() -> Message:
        return next(bodies, None) or await wait_for_ever()

    async def send(message: Message) -> None:
        messages.append(message)

    try:
        await app({**make_scope(request), PERMITTED: is_permitted}, receive, send)
    except Exception:
        if not messages:  # else it is an unforeseen error that the app has answered, and raises for its server's log
            raise
    body = b"".join(message.get("body", b"") for message in messages)
    return Response(messages[0]["status"], list(messages[0].get("headers", [])), body)


async def wait_for_ever() -> Message:
    """Wait until the task is cancelled."""
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


def make_scope(request: Request) -> Scope:
    """The ASGI scope of a request, which asks for no compression."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": request.method,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": "",
        "query_string": request.query,
        "headers": [header for header in request.headers if header[0] != ACCEPT_ENCODING],
        "client": request.client,
        "server": None,
        "state": {},
    }
