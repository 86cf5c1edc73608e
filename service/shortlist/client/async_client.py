"""The client for asyncio."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any

import httpx

from shortlist.core.results import FloatArray, TopK
from shortlist.errors import Unreachable

from . import exchange
from .client import T, to_response
from .exchange import Exchange, Request, Response
from .transport import MAX_REQUEST_ROWS, TIMEOUT_SECONDS, BaseClient


class AsyncClient(BaseClient):
    """The same for asyncio."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT_SECONDS, max_rows: int = MAX_REQUEST_ROWS) -> None:
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

    async def send(self, ask: Request) -> Response:
        """See Client.send."""
        until = time.monotonic() + self.timeout
        while True:
            answer = await self.attempt(ask)
            seconds = exchange.get_retry_after(answer)
            if seconds is None or time.monotonic() + seconds > until:
                return answer
            await asyncio.sleep(seconds)

    async def attempt(self, ask: Request) -> Response:
        """See Client.attempt."""
        try:
            try:
                return to_response(await self.request(ask))
            except httpx.RemoteProtocolError:
                return to_response(await self.request(ask))
        except httpx.TransportError as error:
            raise self.unreachable(error) from error

    async def request(self, ask: Request) -> httpx.Response:
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
