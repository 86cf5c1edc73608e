"""Clients of a running server: v2 protocol, binary on the wire, the same result type as in-process."""

from __future__ import annotations

import asyncio
import math
import time
from types import TracebackType
from typing import Any, TypeVar

import httpx

from . import exchange
from .errors import BadInput, Unreachable
from .exchange import Ask, Exchange, Told
from .result import FloatArray, TopK

T = TypeVar("T")

TIMEOUT = 30.0
MAX_ROWS = 4096
PORTS = 1 << 16


class Connection:
    """What both clients share: where the server is, and how much one request may hold.

    A server decides on dense by the rows of one request, so a split batch may be answered by another plan than a
    whole one.
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT, max_rows: int = MAX_ROWS) -> None:
        """url: as in http://127.0.0.1:8000. max_rows: context vectors a request. Raises BadInput.

        timeout: seconds a request, and for asking again where the server has too much to do.
        """
        check_url(url)
        if not 0 < timeout < math.inf:
            raise BadInput(f"timeout is {timeout}: give seconds, over 0")
        if max_rows < 1:
            raise BadInput(f"max_rows is {max_rows}: give 1 or more")
        self.url, self.timeout, self.max_rows = url.rstrip("/"), timeout, max_rows

    def unreachable(self, error: Exception) -> Unreachable:
        """A connection that failed or timed out, in one sentence."""
        if isinstance(error, httpx.TimeoutException):
            return Unreachable(f"{self.url} did not answer within {self.timeout:g} s: raise timeout or send fewer rows")
        return Unreachable(f"{self.url} cannot be reached ({error}): is the server running there?")


def check_url(url: str) -> None:
    """Raise BadInput where no server could be reached at `url`."""
    try:
        parts = httpx.URL(url)
        host = parts.raw_host.decode().encode("idna")  # as looking the host up does; refuses a..b
    except (httpx.InvalidURL, UnicodeError):
        host = b""
    if not host or parts.scheme not in ("http", "https") or not 0 < (parts.port or 1) < PORTS:
        raise BadInput(f"'{url}' is no address of a server: write it as http://host:port")


def told(response: httpx.Response) -> Told:
    """A response without its library."""
    return Told(response.status_code, response.headers, response.content)


class Client(Connection):
    """A blocking client with keep-alive; threads may share it. Use as a context manager, or `close` it."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, max_rows: int = MAX_ROWS) -> None:
        """See Connection."""
        super().__init__(url, timeout=timeout, max_rows=max_rows)
        self.http = httpx.Client(base_url=self.url, timeout=timeout, trust_env=False)

    def topk(
        self, model: str, contexts: Any, k: int, *, version: int | None = None,
        allow: Any = None, ban: Any = None, exact: bool = False,
    ) -> TopK:  # fmt: skip
        """As Head.topk, over HTTP; numpy, torch or lists, split into requests of `max_rows`.

        Raises BadInput, NotFound, TooLarge (one row over the server's limits), Overloaded (for all of `timeout`),
        TimedOut, NotReady, Unreachable, ServerError.
        """
        lists = {"allow": allow, "ban": ban}
        return self.run(exchange.topk(model, contexts, k, version, lists, exact, self.max_rows))

    def logprobs(
        self, model: str, contexts: Any, ids: Any, *, version: int | None = None, exact: bool = False
    ) -> FloatArray:
        """As Head.logprobs, over HTTP; ids [B, m], or [m] for all rows. Raises as `topk`."""
        return self.run(exchange.logprobs(model, contexts, ids, version, exact, self.max_rows))

    def models(self) -> list[dict[str, Any]]:
        """What the server serves."""
        return self.run(exchange.models())

    def ready(self) -> bool:
        """Whether every model is ready; False also where no server answers."""
        try:
            return self.run(exchange.ready())
        except Unreachable:
            return False

    def run(self, talk: Exchange[T]) -> T:
        """Carry an exchange through to its result."""
        try:
            ask = next(talk)
            while True:
                ask = talk.send(self.send(ask))
        except StopIteration as end:
            result: T = end.value
            return result

    def send(self, ask: Ask) -> Told:
        """The answer; while the server has too much to do, asks again when it says, for `timeout` seconds in all.

        Raises Unreachable.
        """
        until = time.monotonic() + self.timeout
        while True:
            answer = self.attempt(ask)
            seconds = exchange.pause(answer)
            if seconds is None or time.monotonic() + seconds > until:
                return answer
            time.sleep(seconds)

    def attempt(self, ask: Ask) -> Told:
        """One round trip; raises Unreachable. A connection that the server had closed is replaced once."""
        try:
            try:
                return told(self.request(ask))
            except httpx.RemoteProtocolError:
                return told(self.request(ask))
        except httpx.TransportError as error:
            raise self.unreachable(error) from error

    def request(self, ask: Ask) -> httpx.Response:
        """One attempt."""
        return self.http.request(ask.method, ask.path, content=ask.content, headers=ask.headers)

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(Connection):
    """The same for asyncio."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, max_rows: int = MAX_ROWS) -> None:
        """See Connection."""
        super().__init__(url, timeout=timeout, max_rows=max_rows)
        self.http = httpx.AsyncClient(base_url=self.url, timeout=timeout, trust_env=False)

    async def topk(
        self, model: str, contexts: Any, k: int, *, version: int | None = None,
        allow: Any = None, ban: Any = None, exact: bool = False,
    ) -> TopK:  # fmt: skip
        """See Client.topk."""
        lists = {"allow": allow, "ban": ban}
        return await self.run(exchange.topk(model, contexts, k, version, lists, exact, self.max_rows))

    async def logprobs(
        self, model: str, contexts: Any, ids: Any, *, version: int | None = None, exact: bool = False
    ) -> FloatArray:
        """See Client.logprobs."""
        return await self.run(exchange.logprobs(model, contexts, ids, version, exact, self.max_rows))

    async def models(self) -> list[dict[str, Any]]:
        """See Client.models."""
        return await self.run(exchange.models())

    async def ready(self) -> bool:
        """See Client.ready."""
        try:
            return await self.run(exchange.ready())
        except Unreachable:
            return False

    async def run(self, talk: Exchange[T]) -> T:
        """See Client.run."""
        try:
            ask = next(talk)
            while True:
                ask = talk.send(await self.send(ask))
        except StopIteration as end:
            result: T = end.value
            return result

    async def send(self, ask: Ask) -> Told:
        """See Client.send."""
        until = time.monotonic() + self.timeout
        while True:
            answer = await self.attempt(ask)
            seconds = exchange.pause(answer)
            if seconds is None or time.monotonic() + seconds > until:
                return answer
            await asyncio.sleep(seconds)

    async def attempt(self, ask: Ask) -> Told:
        """See Client.attempt."""
        try:
            try:
                return told(await self.request(ask))
            except httpx.RemoteProtocolError:
                return told(await self.request(ask))
        except httpx.TransportError as error:
            raise self.unreachable(error) from error

    async def request(self, ask: Ask) -> httpx.Response:
        """See Client.request."""
        return await self.http.request(ask.method, ask.path, content=ask.content, headers=ask.headers)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
