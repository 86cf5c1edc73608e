"""Queries to a head and their results, as arrays: neither HTTP nor bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .bias import Bias
from .draws.sampling import Sampling
from .results import BoolArray, DoubleArray, FloatArray, IdArray, IntArray, TopK, find_weakest_normalizer
from .row_lists import Lists


@dataclass(slots=True)  # not frozen: that costs a microsecond for each
class TopKQuery:
    """Arguments of `Head.topk`: contexts [B, d] float32, k, allow and ban lists, biases.

    partial: whether lost shards of a head may be left out. within, without: names of sets of classes.
    """

    contexts: FloatArray
    k: int
    allow: Lists | None = None
    ban: Lists | None = None
    exact: bool = False
    bias: Bias | None = None
    partial: bool = False
    within: tuple[str, ...] | None = None
    without: tuple[str, ...] | None = None

    @property
    def result_size(self) -> int:
        """How many classes are ranked for the result: in each row k, and those with a bias."""
        return len(self.contexts) * (self.k + count_biased(self.bias))


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


@dataclass(slots=True)
class SampleQuery:
    """Arguments of `Head.sample`: contexts [B, d] float32, what is drawn of each row, lists, biases."""

    contexts: FloatArray
    sampling: Sampling
    allow: Lists | None = None
    ban: Lists | None = None
    bias: Bias | None = None
    exact: bool = True

    @property
    def result_size(self) -> int:
        """How many classes are drawn or ranked for the result: in each row draws and k, and those with a bias."""
        each = self.sampling.draws + (self.sampling.top_k or 0) + count_biased(self.bias)
        return len(self.contexts) * each


@dataclass(slots=True)
class BeamQuery:
    """Arguments of a beam step over G groups of `beam` rows.

    contexts: [G * beam, d] float32. scores: [G * beam] float64, -inf for a beam that is not there. finished: [G *
    beam]. n: continuations wanted for each group. eos: [e] ids that end a sequence. forced: [G * beam] the one id that
    may follow, -1 for a row that is free. lengths: [1 or G * beam] tokens that each row has; with fewer than
    `min_length`, none of `eos` may follow. temperature: [1 or G * beam] float64.
    """

    contexts: FloatArray
    scores: DoubleArray
    finished: BoolArray
    beam: int
    n: int
    eos: IdArray
    temperature: DoubleArray
    allow: Lists | None = None
    ban: Lists | None = None
    bias: Bias | None = None
    forced: IdArray | None = None
    min_length: int = 0
    lengths: IdArray | None = None
    exact: bool = False

    @property
    def result_size(self) -> int:
        """How many classes are ranked for the result: in each row n, and those with a bias."""
        return len(self.contexts) * (self.n + count_biased(self.bias))


@dataclass(slots=True)
class BeamStep:
    """The n best continuations of each of G groups, best first; equal scores by lower parent, then by lower id.

    parents: [G, n] int32, the beam within its group that is continued; -1 where a group has fewer than n continuations.
    ids: [G, n] int64, -1 for a finished beam that is passed on, and where there is no continuation. scores: [G, n]
    float64, of the whole sequence. logprobs: [G, n] float32, of the id alone, without bias and temperature; 0 for a
    finished beam, -inf where there is no continuation. normalizer: as in `TopK`.
    """

    parents: IntArray
    ids: IdArray
    scores: DoubleArray
    logprobs: FloatArray
    normalizer: str

    @classmethod
    def concat(cls, parts: list[BeamStep]) -> BeamStep:
        """The groups of one or more results of the same n; the weakest normalizer holds for all of them."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.parents for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.logprobs for part in parts]),
            find_weakest_normalizer([part.normalizer for part in parts]),
        )


def count_biased(bias: Bias | None) -> int:
    """The most classes with a bias that a row has."""
    return 0 if bias is None else bias.ids.shape[1]


Query = TopKQuery | ScoreQuery | BeamQuery | SampleQuery
Result = TopK | Scores | BeamStep
