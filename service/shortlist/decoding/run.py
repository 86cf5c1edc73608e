"""Beam search over a head in this process, or over a client of a server: blocking, and for asyncio."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from shortlist.core.checks import show
from shortlist.core.filters import check_id_range
from shortlist.core.queries import BeamStep
from shortlist.core.results import FloatArray
from shortlist.errors import BadInput
from shortlist.head import Head

from .hypotheses import Hypothesis
from .options import SearchOptions, make_options
from .search import ContinueCall, ScoreCall, StepCall, search
from .step import beam_step

Decode = Callable[[Any, Any, Any], Any]  # state, tokens [R], parents [R] -> contexts [R, d], state


class BeamClient(Protocol):
    """A client of a server; the methods of one for asyncio are coroutines."""

    def beam_step(self, model: str, contexts: Any, scores: Any, finished: Any = None, **options: Any) -> Any:
        """A beam step of the model."""

    def logprobs(self, model: str, contexts: Any, ids: Any, *, version: int | None = None, exact: bool = False) -> Any:
        """Log-probabilities of given ids."""


def beam_search(
    step: Decode,
    head: Head | BeamClient,
    state: Any,
    starts: Any,
    *,
    model: str | None = None,
    version: int | None = None,
    origins: Any = None,
    **options: Any,
) -> list[list[Hypothesis]]:
    """The best sequences of each sentence, best first; all sentences are searched together.

    step: the decoder, (state, tokens [R], parents [R]) -> (contexts [R, d], state). Row i of its answer follows
    tokens[i], which continues row parents[i] of the call before; a decoder with a cache takes those rows of it. The
    first call has one row a sentence. head: a head, or a client with the `model` that it is to ask, and its `version`.
    state: handed to the first call. starts: [S] ids that the sentences begin with. origins: [S] the row of `state` that
    each begins with, by default 0 to S - 1. options: as of `SearchOptions`. Raises BadInput, and what the client does.
    """
    source, chosen = choose_source(head, model, version), make_options(options)
    if isinstance(head, Head):
        check_suppressed(head, chosen)
    calls = search(state, starts, chosen, origins)
    try:
        call = next(calls)
        while True:
            if isinstance(call, StepCall):
                call = calls.send(step(call.state, call.tokens, call.parents))
            else:
                call = calls.send(source.ask(call))
    except StopIteration as end:
        result: list[list[Hypothesis]] = end.value
        return result


async def beam_search_async(
    step: Decode,
    client: BeamClient,
    state: Any,
    starts: Any,
    *,
    model: str,
    version: int | None = None,
    origins: Any = None,
    **options: Any,
) -> list[list[Hypothesis]]:
    """`beam_search` over an `AsyncClient`; `step` may be a coroutine function."""
    if isinstance(client, Head) or not hasattr(client, "beam_step"):
        raise BadInput(
            f"beam_search_async asks an AsyncClient, no {type(client).__name__}: search a head by beam_search"
        )
    source = ClientSource(client, model, version)
    calls = search(state, starts, make_options(options), origins)
    try:
        call = next(calls)
        while True:
            answer = step(call.state, call.tokens, call.parents) if isinstance(call, StepCall) else source.ask(call)
            call = calls.send(await answer if inspect.isawaitable(answer) else answer)
    except StopIteration as end:
        result: list[list[Hypothesis]] = end.value
        return result


class HeadSource:
    """Answers calls by a head in this process."""

    def __init__(self, head: Head) -> None:
        self.head = head

    def ask(self, call: ContinueCall | ScoreCall) -> BeamStep | FloatArray:
        """The answer to a call."""
        if isinstance(call, ScoreCall):
            return self.head.logprobs(call.contexts, call.ids, exact=call.exact)
        return beam_step(self.head, call.contexts, call.scores, **call.options)


class ClientSource:
    """Answers calls by a client; by a coroutine where the client is for asyncio."""

    def __init__(self, client: BeamClient, model: str, version: int | None) -> None:
        self.client, self.model, self.version = client, model, version

    def ask(self, call: ContinueCall | ScoreCall) -> Any:
        """The answer to a call, or what to await for it."""
        if isinstance(call, ScoreCall):
            return self.client.logprobs(self.model, call.contexts, call.ids, version=self.version, exact=call.exact)
        return self.client.beam_step(self.model, call.contexts, call.scores, version=self.version, **call.options)


def check_suppressed(head: Head, options: SearchOptions) -> None:
    """Raise BadInput where a suppressed sequence holds an id that is no class; a step would name it as one of `ban`."""
    ids = [id for sequence in options.suppressed for id in sequence]
    check_id_range("suppressed", np.array(ids, np.int64), head.classes)


def choose_source(head: Head | BeamClient, model: str | None, version: int | None) -> HeadSource | ClientSource:
    """What answers the calls; raises BadInput where a client is not told which model to ask."""
    if isinstance(head, Head):
        return HeadSource(head)
    if not hasattr(head, "beam_step"):
        raise BadInput(f"head is {show(head)}: give what shortlist.load returns, or a Client")
    if inspect.iscoroutinefunction(head.beam_step):
        raise BadInput("an AsyncClient's answers are to be awaited: search by beam_search_async, or over a Client")
    if model is None:
        raise BadInput("a client needs the name of the model to ask: give model")
    return ClientSource(head, model, version)
