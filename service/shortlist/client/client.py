"""The blocking client of a running server: protocol v2 with binary tensors, the result types of an in-process head."""

from __future__ import annotations

import time
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


class Client(BaseClient):
    """A blocking client with keep-alive; threads may share it. Use it as a context manager, or `close` it."""

    http: httpx.Client

    def _open(self, **options: Any) -> None:
        self.http = httpx.Client(**options)

    def topk(
        self, model: str, contexts: Any, k: int, *, version: int | None = None,
        allow: Any = None, ban: Any = None, bias: BiasLike = None, exact: bool = False, labels: bool = False,
        risk: bool = False,
    ) -> TopK:  # fmt: skip
        """Return the k best classes of `contexts` [B, d], as `Head.topk` does, in requests of `max_rows` rows at most.

        contexts, allow, ban: numpy arrays, torch tensors or lists. Raises BadInput, Unauthorized, Forbidden, NotFound,
        TooLarge (one row is over the server's limits), Overloaded (for all of `timeout`), TimedOut, NotReady,
        Unreachable, ServerError.
        """
        lists, more = {"allow": allow, "ban": ban}, exchange.name_outputs(labels, risk)
        return self.run(exchange.topk(model, contexts, k, version, lists, bias, exact, more, self.max_rows))

    def logprobs(
        self, model: str, contexts: Any, ids: Any, *, version: int | None = None, exact: bool = False
    ) -> FloatArray:
        """Return log-probabilities [B, m] float32 of `ids`, as `Head.logprobs` does.

        Raises the errors of `topk`.
        """
        return self.run(exchange.logprobs(model, contexts, ids, version, exact, self.max_rows))

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
        """The n best continuations of each group of `beam` rows, as `shortlist.decoding.beam_step` gives them.

        contexts: [G * beam, d]. scores: [G * beam]. finished: [G * beam] of bool. options: as of that function; `allow`
        and `ban` may also be `NamedLists` that were registered. Requests hold whole groups, and `max_rows` rows at
        most. Raises the errors of `topk`; NotFound also where lists are not registered any more.
        """
        return self.run(beams.beam_step(model, version, contexts, scores, finished, options, self.max_rows))

    def register_lists(self, name: str, lists: RowLists | list[Any]) -> None:
        """Let the server know `lists` by a name, for `NamedLists`; raises the errors of `topk`."""
        self.run(beams.register_lists(name, lists))

    def delete_lists(self, name: str) -> None:
        """Let the server forget the lists of that name; raises NotFound."""
        self.run(beams.delete_lists(name))

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
        """Send an exchange's requests and return its result, waiting where the server is overloaded."""
        steps = exchange.retry_on_overload(requests, self.timeout)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Wait):
                    time.sleep(step.seconds)
                    step = next(steps)
                else:
                    step = steps.send(self.send(step))
        except StopIteration as end:
            result: T = end.value
            return result

    def send(self, request: Request) -> Response:
        """Send one request, on a new connection if the server had closed the old one; raises Unreachable."""
        message = self.http.build_request(
            request.method, request.path, content=request.content, headers=request.headers
        )
        with self.named_errors():
            try:
                return to_response(self.http.send(message))
            except httpx.RemoteProtocolError:
                return to_response(self.http.send(message))

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
