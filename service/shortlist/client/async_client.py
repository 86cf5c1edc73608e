"""The client of a running server for asyncio; its methods are those of the blocking client."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shortlist.core.bias import BiasLike
from shortlist.core.results import FloatArray, TopK
from shortlist.core.row_lists import RowLists
from shortlist.errors import Overloaded, Unreachable
from shortlist.wire.open_inference import LABELS, NAMES, RISK, SCORES

from . import exchange
from .base_client import BaseClient
from .messages import Exchange, Request, Response, T
from .responses import choose_pause
from .transport.address import Address
from .transport.asynchronous import AsyncTransport
from .transport.request_heads import Headers

if TYPE_CHECKING:
    from shortlist.core.queries import BeamStep

    from .transport.through_httpx import AsyncHttpxTransport


class AsyncClient(BaseClient):
    """The methods of `Client` as coroutines, with the same arguments, results and errors."""

    transport: AsyncTransport | AsyncHttpxTransport

    def open_sockets(self, address: Address, headers: Headers) -> None:
        self.transport = AsyncTransport(self.url, address, self.timeout, headers)

    def open_httpx(self, headers: Headers, options: dict[str, Any]) -> None:
        from .transport.through_httpx import AsyncHttpxTransport  # httpx takes a tenth of a second to import

        self.transport = AsyncHttpxTransport(self.url, self.timeout, headers, options)

    async def topk(
        self, model: str, contexts: Any, k: int, *, version: int | None = None,
        allow: Any = None, ban: Any = None, bias: BiasLike = None, exact: bool = False, labels: bool = False,
        risk: bool = False, scores: bool = False, names: bool = False, within: Any = None, without: Any = None,
    ) -> TopK:  # fmt: skip
        lists, more = {"allow": allow, "ban": ban}, {LABELS: labels, RISK: risk, SCORES: scores, NAMES: names}
        outputs = exchange.name_outputs(more)
        sets = {"within": within, "without": without}
        return await self.run(
            exchange.topk(model, contexts, k, version, lists, bias, exact, outputs, self.limits, sets)
        )

    async def sample(
        self, model: str, contexts: Any, seed: Any, position: Any = 0, temperature: Any = 1.0, draws: int = 1,
        *, version: int | None = None, top_k: int | None = None, top_p: float | None = None,
        allow: Any = None, ban: Any = None, bias: BiasLike = None,
    ) -> TopK:  # fmt: skip
        """Draws from the softmax of `contexts` [B, d], as `Head.sample` gives them; raises the errors of `topk`."""
        lists, parameters = {"allow": allow, "ban": ban}, {"draws": draws, "k": top_k, "top_p": top_p}
        numbers = seed, position, temperature
        return await self.run(exchange.sample(model, contexts, *numbers, parameters, version, lists, bias, self.limits))

    async def logprobs(
        self, model: str, contexts: Any, ids: Any, *, version: int | None = None, exact: bool = False
    ) -> FloatArray:
        return await self.run(exchange.logprobs(model, contexts, ids, version, exact, self.limits))

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
        from . import beams

        return await self.run(beams.beam_step(model, version, contexts, scores, finished, options, self.limits))

    async def register_lists(self, name: str, lists: RowLists | list[Any]) -> None:
        from . import beams

        await self.run(beams.register_lists(name, lists))

    async def delete_lists(self, name: str) -> None:
        from . import beams

        await self.run(beams.delete_lists(name))

    async def put_items(
        self, model: str, put: Any = (), vectors: Any = (), remove: Any = (), *,
        biases: Any = None, source: str = "", sequence: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        from . import items

        return await self.run(items.put_items(model, put, vectors, remove, biases, source, sequence))

    async def items(self, model: str) -> dict[str, Any]:
        from . import items

        return await self.run(items.get_items(model))

    async def put_set(self, model: str, name: str, ids: Any) -> None:
        from . import sets

        await self.run(sets.put_set(model, name, ids))

    async def delete_set(self, model: str, name: str) -> None:
        from . import sets

        await self.run(sets.delete_set(model, name))

    async def sets(self, model: str) -> list[dict[str, Any]]:
        from . import sets

        return await self.run(sets.list_sets(model))

    async def recall(self, model: str, contexts: Any, *, version: int | None = None) -> dict[str, Any]:
        return await self.run(exchange.recall(model, contexts, version))

    async def models(self) -> list[dict[str, Any]]:
        return await self.run(exchange.models())

    async def ready(self) -> bool:
        try:
            return await self.run(exchange.ready())
        except Unreachable:
            return False

    async def run(self, requests: Exchange[T]) -> T:
        try:
            request = next(requests)
            while True:
                response = await self.transport.send(request)
                if response.status == Overloaded.status:
                    response = await self.repeat(request, response)
                request = requests.send(response)
        except StopIteration as end:
            result: T = end.value
            return result

    async def repeat(self, request: Request, response: Response) -> Response:
        deadline = time.monotonic() + self.timeout
        while (seconds := choose_pause(response, deadline)) is not None:
            await asyncio.sleep(seconds)
            response = await self.transport.send(request)
        return response

    async def close(self) -> None:
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
