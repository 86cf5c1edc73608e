"""Requests by httpx, which knows TLS, proxies and credentials in URLs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from shortlist.errors import BadInput

from ..messages import Request, Response
from .address import hide_password
from .failures import MAX_ATTEMPTS, choose_pause, make_connection_error, make_timeout_error
from .request_heads import Headers
from .whole_timeout import Deadline, open_transport

LOSSES = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)  # a connection that ended too early


class HttpxBase:
    """What the blocking and the asyncio transport by httpx share."""

    def __init__(self, url: str, timeout: float, headers: Headers, options: dict[str, Any]) -> None:
        """url: of the server, without a slash at its end. options: `verify` and `proxy` of httpx. Raises BadInput."""
        self.shown_url, self.timeout, self.options = hide_password(url), timeout, options
        self.shared: dict[str, Any] = {
            "base_url": url,
            "timeout": timeout,
            "headers": dict(headers),
            "trust_env": False,
        }

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn a connection that fails or times out into Unreachable, in one sentence."""
        try:
            yield
        except (httpx.TimeoutException, TimeoutError) as error:
            raise make_timeout_error(self.shown_url, self.timeout) from error
        except httpx.HTTPError as error:
            raise make_connection_error(self.shown_url, error) from error


class HttpxTransport(HttpxBase):
    """Sends requests to one server, blocking; threads and forked processes may share it."""

    def __init__(self, url: str, timeout: float, headers: Headers, options: dict[str, Any]) -> None:
        super().__init__(url, timeout, headers, options)
        self.deadline = Deadline()
        with explain_options():
            self.http = self.open_client()
        self.process_id = os.getpid()

    def open_client(self) -> httpx.Client:
        """A client without connections."""
        return httpx.Client(**self.shared, transport=open_transport(self.deadline, **self.options))

    def send(self, request: Request) -> Response:
        """The response to a request, which is sent again where the connection ended; raises Unreachable.

        The pause comes before every repeat, since httpx does not say whether the connection was a kept one.
        """
        http, deadline = self.choose_http(), time.monotonic() + self.timeout
        with self.explain_errors(), self.deadline.hold(deadline):
            for _ in range(count_repeats(request)):
                with contextlib.suppress(*LOSSES):
                    return receive(http, build_message(http, request, deadline), deadline)
                time.sleep(choose_pause())
            return receive(http, build_message(http, request, deadline), deadline)

    def choose_http(self) -> httpx.Client:
        """What has the connections of this process: in a forked one those that were open are its parent's."""
        if self.process_id != os.getpid():
            if not self.http.is_closed:
                self.http = self.open_client()
            self.process_id = os.getpid()
        return self.http

    def close(self) -> None:
        self.choose_http().close()


class AsyncHttpxTransport(HttpxBase):
    """Sends requests to one server, in one event loop at a time."""

    loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, url: str, timeout: float, headers: Headers, options: dict[str, Any]) -> None:
        super().__init__(url, timeout, headers, options)
        with explain_options():
            self.http = httpx.AsyncClient(**self.shared, **self.options)

    async def send(self, request: Request) -> Response:
        """The response to a request, as of the blocking transport."""
        http, deadline = self.choose_http(), time.monotonic() + self.timeout
        with self.explain_errors():
            async with asyncio.timeout(self.timeout):  # httpx's own is for each read
                for _ in range(count_repeats(request)):
                    with contextlib.suppress(*LOSSES):
                        return convert_response(await http.send(build_message(http, request, deadline)))
                    await asyncio.sleep(choose_pause())
                return convert_response(await http.send(build_message(http, request, deadline)))

    def choose_http(self) -> httpx.AsyncClient:
        """What has the connections of this event loop: those of another cannot be used, nor closed, here."""
        loop = asyncio.get_running_loop()
        if self.loop is not loop:
            if self.loop is not None and not self.http.is_closed:
                self.http = httpx.AsyncClient(**self.shared, **self.options)
            self.loop = loop
        return self.http

    async def close(self) -> None:
        await self.choose_http().aclose()


@contextmanager
def explain_options() -> Iterator[None]:
    """Turn a proxy that httpx cannot use into BadInput."""
    try:
        yield
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise BadInput(f"proxy cannot be used ({error}): write it as http://host:port") from None


def count_repeats(request: Request) -> int:
    """How often a request may be sent again."""
    return MAX_ATTEMPTS - 1 if request.is_safe else 0


def build_message(http: httpx.Client | httpx.AsyncClient, request: Request, deadline: float) -> httpx.Request:
    """The request as httpx sends it, each step of which may take the time that is left; raises ReadTimeout after it."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise httpx.ReadTimeout("no time is left for another attempt")
    return http.build_request(
        request.method, request.path, content=request.content or None, headers=dict(request.headers), timeout=seconds
    )


def receive(http: httpx.Client, message: httpx.Request, deadline: float) -> Response:
    """Send a request and read the response, piece by piece until the deadline: httpx's timeout is for each read."""
    pieces = []
    with contextlib.closing(http.send(message, stream=True)) as response:
        for piece in response.iter_bytes():
            pieces.append(piece)
            if time.monotonic() > deadline:
                raise httpx.ReadTimeout("the whole response took too long", request=message)
    return Response(response.status_code, response.headers, b"".join(pieces))


def convert_response(response: httpx.Response) -> Response:
    """Convert httpx's response to the type that exchanges take."""
    return Response(response.status_code, response.headers, response.content)
