"""What is asked of a head, and its answer: arrays only, no HTTP."""

from __future__ import annotations

from dataclasses import dataclass

from .results import FloatArray, IdArray, TopK


@dataclass(slots=True)  # not frozen: that costs a microsecond
class TopKQuery:
    """The k best classes of contexts [B, d]; see `Head.topk`."""

    contexts: FloatArray
    k: int
    allow: IdArray | None = None
    ban: IdArray | None = None
    exact: bool = False

    @property
    def result_size(self) -> int:
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

    @property
    def result_size(self) -> int:
        """Ids in the answer."""
        return len(self.contexts) * int(self.ids.shape[-1])


Query = TopKQuery | ScoreQuery
Result = TopK | Scores
