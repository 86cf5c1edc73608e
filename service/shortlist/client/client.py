"""Clients of a running server: v2 protocol, binary on the wire, the same result type as in-process."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, TypeVar

import httpx

from shortlist.core.results import FloatArray, TopK
from shortlist.errors import Unreachable

from . import exchange
from .exchange import Exchange, Request, Response
from .transport import MAX_REQUEST_ROWS, TIMEOUT_SECONDS, BaseClient

T = TypeVar("T")


def to_response(response: httpx.Response) -> Response:
    """A response without its library."""
    return Response(response.status_code, response.headers, response.content)


class Client(BaseClient):
    """A blocking client with keep-alive; threads may share it. Use as a context manager, or `close` it."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT_SECONDS, max_rows: int = MAX_REQUEST_ROWS) -> None:
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

    def send(self, ask: Request) -> Response:
        """The answer; while the server has too much to do, asks again when it says, for `timeout` seconds in all.

        Raises Unreachable.
        """
        until = time.monotonic() + self.timeout
        while True:
            answer = self.attempt(ask)
            seconds = exchange.get_retry_after(answer)
            if seconds is None or time.monotonic() + seconds > until:
                return answer
            time.sleep(seconds)

    def attempt(self, ask: Request) -> Response:
        """One round trip; raises Unreachable. A connection that the server had closed is replaced once."""
        try:
            try:
                return to_response(self.request(ask))
            except httpx.RemoteProtocolError:
                return to_response(self.request(ask))
        except httpx.TransportError as error:
            raise self.unreachable(error) from error

    def request(self, ask: Request) -> httpx.Response:
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
