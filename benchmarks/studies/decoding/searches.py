"""Sentences translated by a head in this process or by a server, with what that took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import shortlist
from shortlist.client.messages import Request, Response
from shortlist.core.queries import BeamStep
from shortlist.core.results import FloatArray, IdArray
from shortlist.decoding.finish import CTranslate2
from shortlist.decoding.hypotheses import Hypothesis
from shortlist.decoding.run import BeamClient
from shortlist.decoding.step import beam_step
from shortlist.head import Head

from examples.translate.corpus import END
from examples.translate.decode import Decoder

MAX_LENGTH = 64  # tokens of a translation
BATCH = 500  # sentences that are translated together
MODEL_NAME = "lm"


class HeadClient:
    """A head in this process, asked as a client asks a server."""

    def __init__(self, head: Head) -> None:
        self.head = head

    def beam_step(self, model: str, contexts: Any, scores: Any, finished: Any = None, **options: Any) -> BeamStep:
        """A beam step of the head."""
        del model
        options.pop("version", None)
        return beam_step(self.head, contexts, scores, finished, **options)

    def logprobs(
        self, model: str, contexts: Any, ids: Any, *, version: int | None = None, exact: bool = False
    ) -> FloatArray:
        """Log-probabilities of given ids."""
        del model, version
        return self.head.logprobs(contexts, ids, exact=exact)


class CountingClient(shortlist.Client):
    """A client that counts the bytes of its requests' and responses' bodies."""

    body_bytes = 0

    def send(self, request: Request) -> Response:
        """Send, and count."""
        response = super().send(request)
        self.body_bytes += request.size + len(response.content)
        return response


@dataclass
class Meter:
    """A client that measures: seconds and calls of its beam steps, their rows, and, if asked, all contexts.

    body_bytes: of requests and responses of steps, where the client counts them.
    """

    client: BeamClient
    keep: bool = False
    seconds: float = 0.0
    calls: int = 0
    rows: int = 0
    body_bytes: int = 0
    contexts: list[FloatArray] = field(default_factory=list)

    def beam_step(self, model: str, contexts: Any, scores: Any, finished: Any = None, **options: Any) -> Any:
        """A beam step of the client."""
        if self.keep:
            self.contexts.append(contexts[np.asarray(scores) > -np.inf])
        self.rows += len(contexts)
        start, body_bytes = time.perf_counter(), getattr(self.client, "body_bytes", 0)
        answer = self.client.beam_step(model, contexts, scores, finished, **options)
        self.seconds += time.perf_counter() - start
        self.body_bytes += getattr(self.client, "body_bytes", 0) - body_bytes
        self.calls += 1
        return answer

    def logprobs(self, model: str, contexts: Any, ids: Any, *, version: int | None = None, exact: bool = False) -> Any:
        """Log-probabilities of given ids."""
        return self.client.logprobs(model, contexts, ids, version=version, exact=exact)


@dataclass(frozen=True)
class Translations:
    """The best hypothesis of each sentence. seconds: of everything; the meter has those of the output layer."""

    best: list[Hypothesis]
    seconds: float
    meter: Meter

    @property
    def tokens(self) -> list[list[int]]:
        """The words of each."""
        return [each.tokens for each in self.best]


def translate(
    decoder: Decoder, client: BeamClient, sources: Sequence[list[int]], beam: int, *, keep: bool = False
) -> Translations:
    """Search all sentences by CTranslate2's rule, `BATCH` together. keep: that the meter holds all contexts."""
    meter, best = Meter(client, keep), []
    start = time.perf_counter()
    for first in range(0, len(sources), BATCH):
        part = list(sources[first : first + BATCH])
        found = shortlist.beam_search(
            decoder.step,
            meter,
            decoder.start(part),
            [END] * len(part),
            model=MODEL_NAME,
            beam=beam,
            eos=[END],
            max_length=MAX_LENGTH,
            finish=CTranslate2(),
        )
        best += [hypotheses[0] for hypotheses in found]
    return Translations(best, time.perf_counter() - start, meter)


def count_changed(first: Sequence[list[int]], second: Sequence[list[int]]) -> int:
    """How many sentences have other words."""
    return sum(one != other for one, other in zip(first, second, strict=True))


def take_rows(contexts: list[FloatArray], rows: int, seed: int) -> FloatArray:
    """At most so many random rows of all contexts, in their order."""
    whole = np.concatenate(contexts)
    places: IdArray = np.sort(np.random.default_rng(seed).permutation(len(whole))[:rows])
    kept: FloatArray = whole[places]
    return kept
