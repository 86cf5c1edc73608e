"""The search of plan `grouped` by ONNX graphs, where compiled loops do not run: on other devices, or without a library.

Graphs preview all classes, and take one look at every row: with a promise a further one than loops begin with.
"""

from __future__ import annotations

from copy import copy
from typing import Self

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import GroupedSettings
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.kernels.grouped.effort import GROUPED_CANDIDATES_PER_K, count_second_candidates, list_looks
from shortlist.kernels.grouped.planning import count_tail_candidates
from shortlist.kernels.primitives.arrays import Arrays
from shortlist.plans.common.base import count_scored, write_best
from shortlist.plans.common.normalizer import limit_by_mean, limit_rest, log_sum_exp
from shortlist.plans.common.selection import Indices, find_largest, find_nth_largest, mark_best
from shortlist.runtime.lazy import Lazy
from shortlist.runtime.session import Graph

FEW_CLASSES = 1 << 12  # their int8 rows take graphs less time than previews do

Outputs = list[FloatArray]  # of fused.onnx: scores of groups, guesses of the tail, coarse and whole previews


class Sessions:
    """fused.onnx, which previews all classes, and rescore.onnx, opened when they are first asked for."""

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Previews are small, so their weights are prepacked. Opening either raises BundleError."""
        self.preview = Lazy(lambda: Graph(bundle.late_graph("fused"), device, threads, prepack=True))
        self.rescore = Lazy(lambda: Graph(bundle.late_graph("rescore"), device, threads))


class GroupedGraphs:
    """Searches contexts by graphs, as the settings say."""

    def __init__(self, sessions: Sessions, arrays: Arrays, settings: GroupedSettings, classes: int) -> None:
        """arrays: of index.safetensors. classes: of the whole layer."""
        self.sessions, self.settings, self.classes = sessions, settings, classes
        self.starts: IdArray = arrays["block_starts"]
        self.sizes, self.block_sizes = np.diff(arrays["starts"]), np.diff(self.starts)
        self.blocks: IdArray = np.diff(np.searchsorted(self.starts, arrays["starts"]))  # of each group
        self.size = int(self.starts[-1])

    def with_settings(self, settings: GroupedSettings) -> Self:
        """The same sessions, searched by other settings."""
        other = copy(self)
        other.settings = settings
        return other

    def open(self) -> None:
        """Open both graphs; raises BundleError."""
        self.sessions.preview()
        self.sessions.rescore()

    def preview(self, contexts: FloatArray) -> Outputs:
        """What `rescore` reads of `contexts` [B, d]."""
        return self.sessions.preview()(context=contexts)

    def rescore(self, contexts: FloatArray, outputs: Outputs, k: int, full_view: int) -> PlanResult:
        """The k best of each row's candidates; ids -1 where fewer than k are scored exactly.

        full_view: how many of the candidates are scored exactly, if there are so many.
        """
        result, rescore = empty_result(len(contexts), k), self.sessions.rescore()
        scores, tail, coarse, previews = outputs
        for row, positions in enumerate(map(self.choose_candidates, scores, coarse, previews)):
            count = np.array([min(full_view, positions.size)])
            inputs = {"context": contexts[row : row + 1], "full_view": count}
            ids, logits, whole = rescore(**inputs, positions=positions)
            rescore.check_ids(ids, self.classes)
            fitted = self.choose_fitted(positions, previews[row])
            inside = whole if fitted is positions else rescore(**inputs, positions=fitted)[2]
            estimate = self.estimate_normalizer(logits, inside[0], fitted.size, tail[row])
            if fitted is not positions:
                estimate = self.limit_normalizer(estimate, inside[0], fitted.size, whole[0], positions.size)
            result.log_normalizer[row] = estimate
            result.scored[row] = count_scored(positions.size, full_view, self.classes)
            write_best(result, row, ids, logits)
        return result

    def choose_candidates(self, scores: FloatArray, coarse: FloatArray, preview: FloatArray) -> Indices:
        """Ascending positions of one row's candidates, by scores of groups [G], coarse and whole previews [m]."""
        settings = self.settings
        if settings.promise is not None:
            return find_largest(preview, self.count_candidates())
        opened = np.repeat(mark_best(scores, self.sizes, settings.classes_opened), self.blocks).nonzero()[0]
        peaks = np.maximum.reduceat(coarse, self.starts[:-1])[opened]
        best = opened[mark_best(peaks, self.block_sizes[opened], settings.classes_previewed)]
        is_previewed = np.zeros(self.block_sizes.size, bool)
        is_previewed[best] = True
        positions = np.repeat(is_previewed, self.block_sizes).nonzero()[0]
        scores = preview[positions]
        candidates: Indices = positions[scores >= find_nth_largest(scores, min(settings.candidates, scores.size))]
        return candidates

    def count_candidates(self) -> int:
        """How many candidates a row has: with a promise, as many as the loops' second look has, or all of few."""
        if self.settings.promise is None:
            return self.settings.candidates
        return self.size if self.size <= FEW_CLASSES else count_second_candidates(self.settings)

    def count_wide(self, k: int, restricts: bool) -> int:
        """How many classes a search for many, or with lists, scores exactly: to keep a promise, as many as loops do."""
        count = max(self.count_candidates(), GROUPED_CANDIDATES_PER_K * k)
        if restricts and self.settings.promise is not None:
            count = max(count, list_looks(self.settings, k, self.size)[-1].candidates)
        return count

    def choose_fitted(self, positions: Indices, preview: FloatArray) -> Indices:
        """Of a row's candidates, the best by their previews [m], as many as the tail was fitted beside.

        All of them where there is no tail, or where the best by their exact scores are meant (`estimate_normalizer`).
        """
        count = count_tail_candidates(self.settings)
        if self.settings.tail_beside or positions.size <= count or positions.size == self.size:
            return positions
        fitted: Indices = positions[find_largest(preview[positions], count)]
        return fitted

    def limit_normalizer(
        self, estimate: np.float32, inside: np.float32, fitted: int, whole: np.float32, count: int
    ) -> np.float32:
        """The estimate beside `fitted` candidates, as `count` of them limit it. inside, whole: log-sums of both.

        It is no less than the log-sum of all, and each other class has at most the mean of those that are not fitted.
        """
        most = limit_by_mean(np.exp(inside - whole), fitted, whole, count, self.size)
        return max(min(estimate, np.logaddexp(whole, most)), whole)

    def estimate_normalizer(self, logits: FloatArray, whole: np.float32, count: int, guess: np.float32) -> np.float32:
        """The log-normaliser of `count` candidates and a guess of the rest. logits: exact ones; whole: of all."""
        if count == self.size:
            return whole
        best, inside, limit = logits, whole, np.float32(self.settings.tail_limit)
        if self.settings.tail_beside:
            best = -np.sort(-logits)[: count_tail_candidates(self.settings)]
            inside, count = log_sum_exp(best.copy()), best.size
        rest = min(guess, inside + limit, limit_rest(best, inside, count, self.size))
        return max(np.logaddexp(inside, rest), whole)
