"""The tune and the test split with their exact answers, and heads measured on them; all of it kept in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from shortlist.evaluation.timing import time_calls
from shortlist.evaluation.truth import Truth, compute_truth
from shortlist.head import Head
from shortlist.runtime.processor import read_processor_name
from shortlist_models import FullSoftmax

from shortlist_exporter.core.torch_scores import rank_by_module
from shortlist_exporter.core.types import Cost, FloatArray, Progress, count_rows, quiet
from shortlist_exporter.records.tuning import Promise, SplitFigures
from shortlist_exporter.verify.quality import TRUE_CLASSES

from .cache import Cache
from .fits import Fit, Fits
from .measure import DENSE_CALLS, Answers, compare_times, measure_head
from .promises import choose_timed_k
from .space import DENSE_METHOD, Build, Setting, find_space

COUNTED_ROWS = 64  # by which the classes that a fit scores are counted
RACE_ROWS = 2048  # that finalists are timed on, at least
RACE_CALLS = 64  # of each finalist, at least


@dataclass
class Bench:
    """Where heads of one layer are held against a promise. `rows`: split -> distinct contexts [n, d]."""

    cache: Cache
    fits: Fits
    promise: Promise
    dense: FullSoftmax
    rows: dict[str, FloatArray]
    truths: dict[str, Truth] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    open_heads: dict[str, Head] = field(default_factory=dict)

    def compute_truths(self, classes: int, depths: Iterable[int], progress: Progress) -> None:
        """Exact answers of both splits, for a layer of so many classes. depths: each k whose P@k is measured."""
        depth = min(max({TRUE_CLASSES, *depths}), classes)
        for split, rows in self.rows.items():
            self.keys[split] = self.cache.key(
                "truth", self.fits.data, hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest(), depth
            )
            entry = self.cache.tensors(self.keys[split])
            if entry is None:
                count = count_rows(progress, f"exact answers of the {split} split", rows)
                truth = compute_truth(rank_by_module(self.dense, rows), rows, depth, progress=count)
                entry = truth.to_tensors()
                self.cache.keep_tensors(self.keys[split], entry)
            self.truths[split] = Truth.from_tensors(rows, entry)

    def open_head(self, fit: Fit) -> Head:
        """The opened head; besides dense, one at a time."""
        name = DENSE_METHOD if fit.build.method == DENSE_METHOD else "head"
        if name not in self.open_heads or self.open_heads[name].folder != fit.folder:
            self.open_heads.pop(name, None)
            dense = None if name == DENSE_METHOD else self.open_head(self.dense_fit).dense  # one copy is enough
            self.open_heads[name] = fit.open(self.promise, dense)
        return self.open_heads[name]

    def measure(self, fit: Fit, setting: Setting, split: str, rows: int) -> SplitFigures:
        """A fit at one setting of its swept option on the first `rows` rows of a split; from the cache where it was."""
        promise = self.promise.model_dump(exclude={"precision", "logprob_error", "memory"}, mode="json")
        about = [self.keys[split], min(rows, len(self.rows[split])), promise, sorted(self.promise.precision)]
        key = self.cache.key("measured", fit.folder.name, setting, about, read_processor_name())
        entry = self.cache.value(key)
        if entry is not None:
            return SplitFigures.model_validate(entry)
        figures = self.measure_now(fit, setting, self.truths[split].first_rows(rows))
        self.cache.keep_value(key, figures.model_dump(mode="json"))
        return figures

    def estimate_cost(self, fit: Fit, setting: Setting, figures: SplitFigures) -> Cost:
        """The fit's cost, moved by the classes that the setting scores more or fewer than the fit as it is."""
        if not setting:
            return fit.cost
        by_options = find_space(fit.build.method).cost
        if by_options is not None:
            manifest = self.open_head(fit).manifest
            return by_options(manifest.fit | manifest.settings.model_dump() | setting, self.fits.dense)
        more = (figures.scored - self.count_candidates(fit)) / len(self.dense.weight)
        return Cost(macs=fit.cost.macs + more, bytes=fit.cost.bytes + more)

    def count_candidates(self, fit: Fit) -> float:
        """Mean of the classes that the fit as it is scores for a row."""
        key = self.cache.key("scored", fit.folder.name, self.keys["tune"], choose_timed_k(self.promise))
        mean = self.cache.value(key)
        if mean is None:
            top = self.open_head(fit).topk(self.rows["tune"][:COUNTED_ROWS], choose_timed_k(self.promise))
            mean = float(top.scored.mean())
            self.cache.keep_value(key, mean)
        return float(mean)

    def measure_now(self, fit: Fit, setting: Setting, truth: Truth) -> SplitFigures:
        """Measure a fit at a setting, without the cache."""
        answers, dense = self.make_answers(fit, setting), self.make_answers(self.dense_fit)
        return measure_head(answers, dense, self.dense, truth, self.promise)

    def make_answers(self, fit: Fit, setting: Setting | None = None) -> Answers:
        """Calls of a fit's head, opened where it is not."""
        return Answers(self.open_head(fit).with_settings(**(setting or {})), choose_timed_k(self.promise))

    def race(self, heads: list[tuple[Fit, Setting]]) -> list[dict[str, float]]:
        """Times of several heads, and of dense, in the same blocks: fields of `SplitFigures`."""
        batch = self.promise.batch
        calls = {str(i): self.answer_beside(fit, setting) for i, (fit, setting) in enumerate(heads)}
        rows = self.rows["tune"][: max(RACE_ROWS, RACE_CALLS * batch)]
        dense = self.make_answers(self.dense_fit)
        every = {DENSE_METHOD: max(1, len(rows) // batch // DENSE_CALLS)}
        times = time_calls({**calls, DENSE_METHOD: dense}, rows, batch, every=every)
        return [compare_times(times[name], times[DENSE_METHOD]) for name in calls]

    def answer_beside(self, fit: Fit, setting: Setting) -> Answers:
        """Calls of a fit's head as `make_answers` gives them; the head stays open beside others."""
        self.open_heads.pop("head", None)
        return self.make_answers(fit, setting)

    @property
    def dense_fit(self) -> Fit:
        """The dense head of the same runtime."""
        return self.fits.fit(Build(DENSE_METHOD), 1, quiet)
