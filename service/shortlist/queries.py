"""What is asked of a head, and its answer: arrays only, no HTTP."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .head import Head
from .result import FloatArray, IdArray, TopK


@dataclass(slots=True)  # not frozen: that costs a microsecond
class TopKQuery:
    """The k best classes of contexts [B, d]; see `Head.topk`."""

    contexts: FloatArray
    k: int
    allow: IdArray | None = None
    ban: IdArray | None = None
    exact: bool = False

    def answer(self, head: Head) -> TopK:
        """Ask the head."""
        return head.topk(self.contexts, self.k, allow=self.allow, ban=self.ban, exact=self.exact)

    @property
    def cells(self) -> int:
        """Ids in the answer."""
        return len(self.contexts) * self.k


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities [B, m] float32 of given ids, and what they are normalised over."""

    ids: IdArray
    logprobs: FloatArray
    normalizer: str


@dataclass(frozen=True, slots=True)
class ScoreQuery:
    """Log-probabilities of ids [m] or [1, m] (for all rows) or [B, m]; see `Head.logprobs`."""

    contexts: FloatArray
    ids: IdArray
    exact: bool = False

    def answer(self, head: Head) -> Scores:
        """Ask the head."""
        ids = np.atleast_2d(self.ids)
        if len(ids) == 1:
            ids = ids.repeat(len(self.contexts), axis=0)
        logprobs = head.logprobs(self.contexts, ids, exact=self.exact)
        return Scores(ids, logprobs, head.choose_scorer(len(self.contexts), self.exact)[1])

    @property
    def cells(self) -> int:
        """Ids in the answer."""
        return len(self.contexts) * int(self.ids.shape[-1])


Query = TopKQuery | ScoreQuery
Result = TopK | Scores
