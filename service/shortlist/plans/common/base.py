"""What every plan offers, and the arithmetic that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from shortlist.bundle.settings import FullSettings, PlanSettings
from shortlist.core.bias import Bias
from shortlist.core.draws.sampling import Sampling
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import (
    NO_CLASS,
    FloatArray,
    IdArray,
    PlanResult,
)
from shortlist.kernels.lists import MOST_LISTED
from shortlist.kernels.row_answers import Answer, RowAnswers, answer_rows

from .sampling import draw_from_distribution
from .selection import rank_best
from .tally import Tally

Chunk = TypeVar("Chunk")

MAX_CALL_ROWS = 256  # given to a plan in one call
MAX_SETS_K = 64  # k up to which compiled loops search clusters and experts: they keep the best in order one by one
LOGITS_CHUNK_BYTES = 4 << 20  # logits of one chunk of rows: stays in the last-level cache
DENSE_DIVISOR = 4  # dense is preferred to scoring more than V / 4 candidates
RESCORED_PER_K = 4  # a request for k classes scores at least 4 k of the best previews exactly


RunPlan = Callable[[FloatArray, ClassFilter], PlanResult]  # rows [b, d] of a call and their lists


class Plan(ABC):
    """How a head finds the best classes: choose where to look, run sessions, merge. Threads may share it.

    settings: how widely to search; they never change, `with_settings` gives another plan.
    fallback: the bundle's dense head, for rows that the plan is not sure of; None where it was left out, or where the
    head is its own reference. prover: what proves the same answers in less time; None where the bundle has no bounds.
    tally: how many tails rows opened, of plans that have tails. most_listed: classes of an allow list that is short, so
    that the search answers it in the best way itself.
    """

    settings: PlanSettings = FullSettings()
    fallback: Plan | None = None
    prover: Plan | None = None
    tally: Tally | None = None
    most_listed: int = MOST_LISTED

    @property
    def has_previews(self) -> bool:
        """Whether the bundle has what the settings `of_previews` are for."""
        return True

    def find_exact(self, k: int) -> Plan | None:
        """What answers exactly for k, by proof or else by the dense layer; None where the bundle has neither."""
        return self.fallback if self.prover is None or self.prover.prefers_dense(k) else self.prover

    def search_exactly(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult | None:
        """`topk` by `find_exact`, at a risk of 0; None without it."""
        exact = self.find_exact(k)
        if exact is None:
            return None
        result = exact.topk(contexts, k, class_filter)
        result.risk = np.zeros(len(contexts), np.float32)
        return result

    @cached_property
    def exact_answers(self) -> RowAnswers | None:
        """What answers single rows as the dense layer does, in less time; None where that is not what is exact."""
        return None if self.fallback is None or self.prover is not None else self.fallback.open_row_answers()

    def answer_exactly(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> Answer | None:
        """Ids and log-probabilities [B, k], and how many classes were scored [B], by `find_exact`.

        None without it, and where scores overflow, which the long way tells.
        """
        if self.exact_answers is not None and class_filter.is_plain:
            answer = answer_rows(self.exact_answers, contexts, k, class_filter.allow, class_filter.ban, None)
            if answer is not None:
                return answer
        result = self.search_exactly(contexts, k, class_filter)
        if result is None or not np.isfinite(result.log_normalizer).all():
            return None
        top = result.topk("exact")
        return top.ids, top.logprobs, top.scored

    # what each plan must do

    @abstractmethod
    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best permitted classes of `contexts` [B, d] float32; -1 and -inf where fewer are permitted."""

    def score_lists(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult | None:
        """As `topk`, of rows with allow lists, by scores of all their classes; None without a way to do it."""
        del contexts, k, class_filter
        return None

    def searches_marks(self, k: int, permitted: int) -> bool:
        """Whether `topk` finds k of so many permitted classes fastest by the filter's marks (`count_marked`)."""
        del k, permitted
        return False

    def estimates_misses(self, k: int) -> bool:
        """Whether `topk` says of rows for k how likely they miss something, where they may."""
        del k
        return False

    @abstractmethod
    def max_rows(self) -> int:
        """How many rows to give in one call, so that intermediate arrays stay in the cache."""

    # the distribution that its log-probabilities are of

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        """[B] float32: log of the sum of exp(logit), as `topk` normalises a call that scores `ids` exactly, too.

        contexts: [B, d]. ids: [B, m] int64, -1 pads. logits: [B, m] float32, theirs.
        """
        del ids, logits  # a normaliser over all of the plan's distribution holds them
        return self.topk(contexts, 1, UNRESTRICTED).log_normalizer

    def compute_distribution(self, contexts: FloatArray) -> FloatArray | None:
        """[B, d] -> logits [B, V] float32 whose softmax is the plan's own full distribution, -inf for padding.

        None where the plan has no logits for unscored classes.
        """
        del contexts
        return None

    def sample(
        self, contexts: FloatArray, sampling: Sampling, class_filter: ClassFilter, bias: Bias | None = None
    ) -> PlanResult:
        """Draws [B, draws] from the plan's whole distribution, which it must have; the nucleus alone where asked."""
        logits = self.compute_distribution(contexts)
        assert logits is not None, "draws are of exact plans"
        return draw_from_distribution(logits, sampling, class_filter, bias)

    def make_exact_plan(self) -> Plan:
        """For a head that is its own reference: the same plan without approximations, which gives the exact answers."""
        return self

    def open_row_answers(self) -> RowAnswers | None:
        """What answers few rows without lists as `topk` does, in less time; None where there is nothing."""
        return None

    def open_answers(self, crossover: int | None) -> RowAnswers | None:
        """What `open_row_answers` gives, without calls of `crossover` rows and more, which dense answers."""
        answers = self.open_row_answers()
        if answers is not None:
            answers.limit_rows(crossover)
        return answers

    # how the requests for it are put together

    def prefers_dense(self, k: int) -> bool:
        """Whether k is so large that the exact head is faster, where the bundle has it."""
        return False

    def width(self, k: int) -> int:
        """How widely a request for k classes is searched: rows of equal width may share a call for their largest k.

        The first k of such an answer are those that k alone would have given.
        """
        return k

    def tolerate_loss(self) -> Plan:
        """The same plan, answering by the classes that it reaches where it has lost some; itself where it cannot."""
        return self

    def with_settings(self, settings: PlanSettings) -> Self:
        """A plan over the same sessions, arrays and loops that searches by other settings; this one stays as it is."""
        other = copy(self)
        other.settings = settings
        return other


@runtime_checkable
class Routed(Protocol):
    """A plan of parts, clusters or experts, of which each row opens some."""

    def list_parts(self) -> list[IdArray]:
        """Class ids [n] of each part."""

    def choose_routes(self, contexts: FloatArray) -> list[tuple[int, ...]]:
        """The parts that each row of `contexts` [B, d] opens, best first; none for a row that dense answers."""


def chunk_rows(classes: int, budget: int = LOGITS_CHUNK_BYTES) -> int:
    """Rows whose float32 logits [rows, classes] fit `budget` bytes, from 1 to `MAX_CALL_ROWS`."""
    return max(1, min(MAX_CALL_ROWS, budget // (4 * classes)))


def run_by_chunks(call: RunPlan, contexts: FloatArray, class_filter: ClassFilter, step: int) -> PlanResult:
    """`call` with `step` rows of `contexts` [B, d] at a time and their lists; once where there are none."""

    def run_chunk(rows: FloatArray, start: int) -> PlanResult:
        return call(rows, class_filter.slice_rows(start, start + len(rows)))

    return PlanResult.concat(map_chunks(step, contexts, run_chunk))


def sample_by_chunks(
    plan: Plan, contexts: FloatArray, sampling: Sampling, class_filter: ClassFilter, bias: Bias | None
) -> PlanResult:
    """`plan.sample` with so few rows of `contexts` [B, d] at a time as the plan takes."""
    if 0 < len(contexts) <= plan.max_rows():
        return plan.sample(contexts, sampling, class_filter, bias)

    def sample_chunk(rows: FloatArray, start: int) -> PlanResult:
        stop = start + len(rows)
        weights = None if bias is None else bias[start:stop]
        return plan.sample(rows, sampling.slice_rows(start, stop), class_filter.slice_rows(start, stop), weights)

    return PlanResult.concat(map_chunks(plan.max_rows(), contexts, sample_chunk))


def take_best(logits: FloatArray, ids: IdArray | None, k: int) -> tuple[IdArray, FloatArray]:
    """The k best of one row: ids [k] int64 and logits [k] float32, with -1 beside -inf.

    `logits` [m] belong to the ascending `ids` [m], or to 0..m-1.
    """
    best = rank_best(logits, k)
    if best.size == k and logits[best[-1]] != -np.inf:
        return best if ids is None else ids[best], logits[best]
    scores = np.full(k, -np.inf, np.float32)
    scores[: best.size] = logits[best]
    classes = np.full(k, NO_CLASS, np.int64)
    classes[: best.size] = best if ids is None else ids[best]
    classes[scores == -np.inf] = NO_CLASS
    return classes, scores


def write_best(result: PlanResult, row: int, ids: IdArray, logits: FloatArray) -> None:
    """Write the k best of `ids` [n] with `logits` [n] to one row of `result`; -1 and -inf where n is under k."""
    k = result.ids.shape[1]
    if ids.size < k:
        result.ids[row], result.logits[row] = NO_CLASS, np.float32(-np.inf)
        return
    best = np.lexsort((ids, -logits))[:k]
    result.ids[row], result.logits[row] = ids[best], logits[best]


def count_scored(candidates: int, exact: int, classes: int) -> int:
    """`scored` of a row with so many `candidates`, of which `exact` are scored exactly: V says that all V were."""
    return candidates if exact >= classes else min(candidates, classes - 1)


def find_short_rows(result: PlanResult) -> list[int]:
    """The rows of `result` for which `write_best` had fewer than k classes."""
    short: list[int] = (result.ids[:, 0] == NO_CLASS).nonzero()[0].tolist()
    return short


def map_chunks(step: int, contexts: FloatArray, call: Callable[[FloatArray, int], Chunk]) -> list[Chunk]:
    """`call(rows, start)` for every `step` rows of `contexts` [B, d]; once, with no rows, where there are none."""
    return [call(contexts[start : start + step], start) for start in range(0, max(len(contexts), 1), step)]


def score_chunks(
    score: Callable[[FloatArray, IdArray], FloatArray], plan: Plan, contexts: FloatArray, ids: IdArray
) -> FloatArray:
    """Logits [B, m] of `ids` [B, m] by `score`, with so few rows at a time as the plan takes."""

    def score_chunk(rows: FloatArray, start: int) -> FloatArray:
        return score(rows, ids[start : start + len(rows)])

    return np.concatenate(map_chunks(plan.max_rows(), contexts, score_chunk))


def score_by_distribution(plan: Plan, contexts: FloatArray, ids: IdArray) -> FloatArray:
    """Logits [b, m] of `ids` [b, m] in the plan's whole distribution."""
    logits = plan.compute_distribution(contexts)
    assert logits is not None, "a head that is its own reference has a distribution"
    return np.take_along_axis(logits, ids, axis=1)
