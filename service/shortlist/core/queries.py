"""Queries to a head and their results, as arrays: neither HTTP nor bytes."""

from __future__ import annotations

from dataclasses import dataclass

from .results import FloatArray, IdArray, TopK


@dataclass(slots=True)  # not frozen: that costs a microsecond for each
class TopKQuery:
    """Arguments of `Head.topk`: contexts [B, d] float32, k, allow and ban lists [1 or B, m] int64."""

    contexts: FloatArray
    k: int
    allow: IdArray | None = None
    ban: IdArray | None = None
    exact: bool = False

    @property
    def result_size(self) -> int:
        """How many ids the result holds: the number of rows times k."""
        return len(self.contexts) * self.k


@dataclass(frozen=True, slots=True)
class Scores:
    """Result of a ScoreQuery: log-probabilities [B, m] float32 of its ids, and what they are normalised over."""

    ids: IdArray
    logprobs: FloatArray
    normalizer: str


@dataclass(frozen=True, slots=True)
class ScoreQuery:
    """Arguments of `Head.logprobs`: contexts [B, d] float32, ids [m] or [1, m] (for all rows) or [B, m] int64."""

    contexts: FloatArray
    ids: IdArray
    exact: bool = False

    @property
    def result_size(self) -> int:
        """How many log-probabilities the result holds: the number of rows times m."""
        return len(self.contexts) * int(self.ids.shape[-1])


Query = TopKQuery | ScoreQuery
Result = TopK | Scores
