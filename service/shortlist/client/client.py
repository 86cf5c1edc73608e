"""The blocking client of a running server: protocol v2 with binary tensors, the result types of an in-process head."""

from __future__ import annotations

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
from .transport.blocking import BlockingTransport
from .transport.request_heads import Headers

if TYPE_CHECKING:
    from shortlist.core.queries import BeamStep

    from .transport.through_httpx import HttpxTransport


class Client(BaseClient):
    """A blocking client with keep-alive; threads and forked processes may share it. `close` it, or use it in `with`."""

    transport: BlockingTransport | HttpxTransport

    def open_sockets(self, address: Address, headers: Headers) -> None:
        self.transport = BlockingTransport(self.url, address, self.timeout, headers)

    def open_httpx(self, headers: Headers, options: dict[str, Any]) -> None:
        from .transport.through_httpx import HttpxTransport  # httpx takes a tenth of a second to import

        self.transport = HttpxTransport(self.url, self.timeout, headers, options)

    def topk(
        self, model: str, contexts: Any, k: int, *, version: int | None = None,
        allow: Any = None, ban: Any = None, bias: BiasLike = None, exact: bool = False, labels: bool = False,
        risk: bool = False, scores: bool = False, names: bool = False, within: Any = None, without: Any = None,
    ) -> TopK:  # fmt: skip
        """Return the k best classes of `contexts` [B, d], as `Head.topk` does, in requests of `max_rows` rows at most.

        contexts, allow, ban: numpy arrays, torch tensors or lists. within, without: a name or a list of names of sets
        on the server, for all rows: only classes in all of them, and in none of them. A request of the model's
        `dense_crossover` rows or more is answered by the dense layer. Raises BadInput, Unauthorized, Forbidden,
        NotFound, TooLarge (one row is over the server's limits), Overloaded (for all of `timeout`), TimedOut,
        NotReady, Unreachable, ServerError.
        """
        lists, more = {"allow": allow, "ban": ban}, {LABELS: labels, RISK: risk, SCORES: scores, NAMES: names}
        outputs = exchange.name_outputs(more)
        sets = {"within": within, "without": without}
        return self.run(exchange.topk(model, contexts, k, version, lists, bias, exact, outputs, self.limits, sets))

    def sample(
        self, model: str, contexts: Any, seed: Any, position: Any = 0, temperature: Any = 1.0, draws: int = 1,
        *, version: int | None = None, top_k: int | None = None, top_p: float | None = None,
        allow: Any = None, ban: Any = None, bias: BiasLike = None,
    ) -> TopK:  # fmt: skip
        """Draws from the softmax of `contexts` [B, d], as `Head.sample` gives them; raises the errors of `topk`."""
        lists, parameters = {"allow": allow, "ban": ban}, {"draws": draws, "k": top_k, "top_p": top_p}
        numbers = seed, position, temperature
        return self.run(exchange.sample(model, contexts, *numbers, parameters, version, lists, bias, self.limits))

    def logprobs(
        self, model: str, contexts: Any, ids: Any, *, version: int | None = None, exact: bool = False
    ) -> FloatArray:
        """Return log-probabilities [B, m] float32 of `ids`, as `Head.logprobs` does.

        Raises the errors of `topk`.
        """
        return self.run(exchange.logprobs(model, contexts, ids, version, exact, self.limits))

    def beam_step(
        self,
        model: str,
        contexts: Any,
        scores: Any,
        finished: Any = None,
        *,
        version: int | None = None,
        **options: Any,
    ) -> BeamStep:
        """The n best continuations of each group of `beam` rows, as `shortlist.decoding.step.beam_step` gives them.

        contexts: [G * beam, d]. scores: [G * beam]. finished: [G * beam] of bool. options: as of that function; `allow`
        and `ban` may also be `NamedLists` that were registered. Requests hold whole groups, and `max_rows` rows at
        most. Raises the errors of `topk`; NotFound also where lists are not registered any more.
        """
        from . import beams

        return self.run(beams.beam_step(model, version, contexts, scores, finished, options, self.limits))

    def register_lists(self, name: str, lists: RowLists | list[Any]) -> None:
        """Let the server know `lists` by a name, for `NamedLists`; raises the errors of `topk`."""
        from . import beams

        self.run(beams.register_lists(name, lists))

    def delete_lists(self, name: str) -> None:
        """Let the server forget the lists of that name; raises NotFound."""
        from . import beams

        self.run(beams.delete_lists(name))

    def put_items(
        self, model: str, put: Any = (), vectors: Any = (), remove: Any = (), *,
        biases: Any = None, source: str = "", sequence: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Add items or replace their `vectors` [n, d], and remove others, all at once: `PUT /v1/models/{name}/items`.

        put, remove: names of items, or ids where the model has no names. biases: [n]. sequence: a number that ascends;
        of each `source` a batch is applied once. Without one, a request whose connection ends before the answer is not
        sent again, since it may have been applied. Returns the answer, of changes that are on the server's disk and in
        every answer after it. Raises the errors of `topk`, and StorageFull.
        """
        from . import items

        return self.run(items.put_items(model, put, vectors, remove, biases, source, sequence))

    def items(self, model: str) -> dict[str, Any]:
        """How many items of a model are changed: the answer of `GET /v1/models/{name}/items`."""
        from . import items

        return self.run(items.get_items(model))

    def put_set(self, model: str, name: str, ids: Any) -> None:
        """Let the server know a set of a model's classes by a name: ids or names [m]; raises the errors of `topk`."""
        from . import sets

        self.run(sets.put_set(model, name, ids))

    def delete_set(self, model: str, name: str) -> None:
        """Let the server forget a set that was put; raises NotFound."""
        from . import sets

        self.run(sets.delete_set(model, name))

    def sets(self, model: str) -> list[dict[str, Any]]:
        """Return what GET /v1/models/{name}/sets lists: an object for each set that was put."""
        from . import sets

        return self.run(sets.list_sets(model))

    def recall(self, model: str, contexts: Any, *, version: int | None = None) -> dict[str, Any]:
        """How precise a model is on `contexts` [n, d]: the answer of `POST /v1/models/{name}/recall`.

        All rows go in one request. Raises the errors of `topk`.
        """
        return self.run(exchange.recall(model, contexts, version))

    def models(self) -> list[dict[str, Any]]:
        """Return what GET /v1/models lists: an object for each model that the server has."""
        return self.run(exchange.models())

    def ready(self) -> bool:
        """Return True if every model is ready, False also where no server answers."""
        try:
            return self.run(exchange.ready())
        except Unreachable:
            return False

    def run(self, requests: Exchange[T]) -> T:
        """Send an exchange's requests and return its result."""
        try:
            request = next(requests)
            while True:
                response = self.send(request)
                if response.status == Overloaded.status:
                    response = self.repeat(request, response)
                request = requests.send(response)
        except StopIteration as end:
            result: T = end.value
            return result

    def repeat(self, request: Request, response: Response) -> Response:
        """The response to a request that was refused for load, and is sent again for `timeout` seconds."""
        deadline = time.monotonic() + self.timeout
        while (seconds := choose_pause(response, deadline)) is not None:
            time.sleep(seconds)
            response = self.send(request)
        return response

    def send(self, request: Request) -> Response:
        """The response to a request that is sent once; raises Unreachable."""
        return self.transport.send(request)

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
