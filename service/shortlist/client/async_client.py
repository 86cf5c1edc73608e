"""The client of a running server for asyncio; its methods are those of the blocking client."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

import httpx

from shortlist.core.bias import BiasLike
from shortlist.core.queries import BeamStep
from shortlist.core.results import FloatArray, TopK
from shortlist.core.row_lists import RowLists
from shortlist.errors import Unreachable

from . import beams, exchange
from .exchange import Exchange, Request, Response, T, Wait
from .transport import BaseClient, to_response


class AsyncClient(BaseClient):
    """The methods of `Client` as coroutines, with the same arguments, results and errors."""

    http: httpx.AsyncClient

    def _open(self, **options: Any) -> None:
        self.http = httpx.AsyncClient(**options)

    async def topk(
        self, model: str, contexts: Any, k: int, *, version: int | None = None,
        allow: Any = None, ban: Any = None, bias: BiasLike = None, exact: bool = False, labels: bool = False,
        risk: bool = False,
    ) -> TopK:  # fmt: skip
        lists, more = {"allow": allow, "ban": ban}, exchange.name_outputs(labels, risk)
        return await self.run(exchange.topk(model, contexts, k, version, lists, bias, exact, more, self.max_rows))

    async def logprobs(
        self, model: str, contexts: Any, ids: Any, *, version: int | None = None, exact: bool = False
    ) -> FloatArray:
        return await self.run(exchange.logprobs(model, contexts, ids, version, exact, self.max_rows))

    async def beam_step(
        self,
        model: str,
        contexts: Any,
        scores: Any,
        finished: Any = None,
        *,
        version: int | None = None,
        **options: Any,
    ) -> BeamStep:
        return await self.run(beams.beam_step(model, version, contexts, scores, finished, options, self.max_rows))

    async def register_lists(self, name: str, lists: RowLists | list[Any]) -> None:
        await self.run(beams.register_lists(name, lists))

    async def delete_lists(self, name: str) -> None:
        await self.run(beams.delete_lists(name))

    async def models(self) -> list[dict[str, Any]]:
        return await self.run(exchange.models())

    async def ready(self) -> bool:
        try:
            return await self.run(exchange.ready())
        except Unreachable:
            return False

    async def run(self, requests: Exchange[T]) -> T:
        steps = exchange.retry_on_overload(requests, self.timeout)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                    step = next(steps)
                else:
                    step = steps.send(await self.send(step))
        except StopIteration as end:
            result: T = end.value
            return result

    async def send(self, request: Request) -> Response:
        message = self.http.build_request(
            request.method, request.path, content=request.content, headers=request.headers
        )
        with self.named_errors():
            try:
                return to_response(await self.http.send(message))
            except httpx.RemoteProtocolError:
                return to_response(await self.http.send(message))

    async def close(self) -> None:
        await self.http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
