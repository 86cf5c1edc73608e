"""Answers of heads of every method against brute force in float64, on layers that rounding and equal rows make hard.

A case is one head over one random layer, made of the seed and its number alone, opened in several variants. Every call
goes to all of them; `checks` says what must hold. One answer is one row of one call.
"""

from __future__ import annotations

import multiprocessing
import re
import tempfile
import time
import traceback
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from shortlist.core.results import IdArray, TopK
from shortlist.errors import BadInput, ShortlistError
from shortlist.head import Head
from shortlist.plans.registry import AdaptivePlan, GroupedPlan, MixturePlan, ScreenPlan

from .calls import Call, choose_scored, make_call
from .checks import Answers, check_agreement, check_logprobs, check_topk
from .heads import FORMS, Case, make_case
from .layers import Generator, make_layer
from .references import Reference, make_reference

CALLS = 12  # to each variant of a case
OVERFLOWING_LOGIT = 1e30  # from here on a head may refuse a context


@dataclass
class Report:
    """Outcomes of some cases. failures: the first of each kind and form."""

    cases: int = 0
    answers: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, other: Report) -> None:
        """Add the report of another process."""
        self.cases += other.cases
        self.answers += other.answers
        for name in ("forms", "refusals", "failed"):
            getattr(self, name).update(getattr(other, name))
        self.failures = other.failures | self.failures


class Examination:
    """One case, and what is found of it."""

    def __init__(self, seed: int, index: int, report: Report) -> None:
        self.seed, self.index, self.report = seed, index, report
        self.random: Generator = np.random.default_rng([seed, index])
        self.form = list(FORMS)[index % len(FORMS)]

    def run(self) -> None:
        """Make the case, then call it."""
        layer = make_layer(self.random)
        self.what = f"{self.form} over {layer.kind}, V = {layer.dense.classes}, d = {layer.dense.dim}"
        torch.manual_seed(self.index)
        try:
            with tempfile.TemporaryDirectory() as folder:
                case = make_case(self.random, self.form, layer, Path(folder))
                reference = make_reference(case)
                for _ in range(CALLS):
                    self.examine(case, reference, make_call(self.random, case.base, reference))
        except BadInput as error:
            self.report.refusals[f"export: {error}"] += 1
        except Exception as error:
            self.note(f"{type(error).__name__}: {error}", traceback.format_exc(limit=-3))

    def examine(self, case: Case, reference: Reference, call: Call) -> None:
        """Give one call to every variant, and check what each answers."""
        scored = choose_scored(self.random, reference, call)
        tops = {name: self.ask(case, reference, call, name, head, scored) for name, head in case.heads.items()}
        self.compare_zeros(case, reference, call, tops)

    def ask(self, case: Case, reference: Reference, call: Call, name: str, head: Head, scored: IdArray) -> TopK | None:
        """Ask one variant for the best classes, for these once more, and for others; None where it refuses."""
        pool = case.layer.pool
        try:
            top = call.topk(head, pool)
            again = head.logprobs(pool[call.rows], top.ids, exact=call.exact)
            scores = head.logprobs(pool[call.rows], scored, exact=call.exact)
        except ShortlistError as error:
            self.refuse(reference, call, name, error)
            return None
        self.report.answers += 3 * len(call.rows)
        answers = Answers.of_topk(case, reference, call, top)
        settled = reference.settled[call.rows]
        faults = list(check_topk(answers))
        if not faults:
            faults += check_agreement(answers, again[settled], has_same_normalizer(head, call))
        for ids, logprobs in ((top.ids, again), (scored, scores)):
            faults += check_logprobs(Answers(**(vars(answers) | {"ids": ids[settled], "logprobs": logprobs[settled]})))
        for fault in faults:
            self.note(fault, f"{name}, {describe(call)}, {top.normalizer}")
        return top

    def refuse(self, reference: Reference, call: Call, name: str, error: ShortlistError) -> None:
        """Count a refusal; one without a reason is a failure."""
        reason = re.sub(r"\d+", "N", str(error))
        self.report.refusals[reason] += 1
        logits = reference.logits[call.rows]
        large = np.abs(logits[np.isfinite(logits)]).max(initial=0) > OVERFLOWING_LOGIT
        if not (large or "--no-dense" in reason):
            self.note(f"refused: {reason}", f"{name}, {describe(call)}")

    def compare_zeros(self, case: Case, reference: Reference, call: Call, tops: dict[str, TopK | None]) -> None:
        """Rows of zeros have no rounding but a soft-cap's: their classes are alike in every variant, the same alone."""
        zeros = np.flatnonzero(~case.layer.pool[call.rows].any(axis=1) & reference.settled[call.rows])
        first = tops[next(iter(tops))]
        if not zeros.size or first is None:
            return
        for name, top in tops.items():
            if top is None or opens_other_groups(case.base, case.heads[name]):
                continue
            if not are_alike(case, reference, call.rows[zeros], top.ids[zeros], first.ids[zeros]):
                self.note("a row of zeros has other ids in another variant", f"{name}, {describe(call)}")
        alone = call.take_row(int(zeros[0]))
        head = case.base
        if head.choose_plan(len(call.rows), call.k, call.exact)[0] is head.choose_plan(1, call.k, call.exact)[0]:
            ids = alone.topk(head, case.layer.pool).ids[0]
            if (ids != first.ids[zeros[0]]).any():
                self.note("a row of zeros has other ids alone", f"{ids[:6]} {first.ids[zeros[0], :6]} {describe(call)}")

    def note(self, fault: str, where: str) -> None:
        """Record a failure; the first of each kind and form is kept."""
        kind = f"{self.form}: {fault.split(':')[0]}"
        kind = re.sub(r"\d[\d.e+-]*", "N", kind)
        self.report.failed[kind] += 1
        command = f"python -m tools.fuzz answers --seed {self.seed} --first {self.index} --answers 1"
        self.report.failures.setdefault(kind, f"{self.what}: {fault} ({where}); {command}")


def are_alike(case: Case, reference: Reference, rows: IdArray, ids: IdArray, others: IdArray) -> bool:
    """Whether the ids [b, k] of pool rows [b] are the others; a soft-cap's rounding may swap some of equal logits."""
    same = ids == others
    if case.layer.dense.soft_cap is not None:
        logits, other_logits, slack, other_slack = (
            np.take_along_axis(values[rows], np.maximum(some, 0), axis=1)
            for values in (reference.logits, reference.slack)
            for some in (ids, others)
        )
        same |= (ids >= 0) & (others >= 0) & (np.abs(logits - other_logits) <= slack + other_slack)
    return bool(same.all())


def has_same_normalizer(head: Head, call: Call) -> bool:
    """Whether `topk` and `logprobs` of its ids score the same classes exactly, and so normalise alike."""
    if call.exact:
        return True
    rows, plan = len(call.rows), head.plan
    chosen = head.choose_plan(rows, call.k, False)[0]
    if chosen is not head.choose_score_plan(rows, call.k, False)[0]:
        return False
    if chosen is not plan:
        return True
    own = (isinstance(plan, (ScreenPlan, AdaptivePlan)) or head.is_own_reference) and plan.has_previews
    is_wide = isinstance(plan, GroupedPlan) and plan.compiled is None and plan.is_wide(call.k)  # that scores more
    return not call.listed and not own and not is_wide and plan.width(call.k) == plan.width(1)


def opens_other_groups(head: Head, other: Head) -> bool:
    """Whether one of two heads that search groups has loops, which look at up to a 32nd more classes than graphs."""
    searches = [each.plan.rare if isinstance(each.plan, MixturePlan) else each.plan for each in (head, other)]
    return len({search.compiled is None for search in searches if isinstance(search, GroupedPlan)}) > 1


def describe(call: Call) -> str:
    """A call in some words."""
    lists = [f"{name} {list(ids.shape)}" for name, ids in (("allow", call.allow), ("ban", call.ban)) if ids is not None]
    exact = ["exact"] if call.exact else []
    return ", ".join([f"{len(call.rows)} rows from {call.rows[0]}", f"k = {call.k}", *exact, *lists])


def run_part(seed: int, first: int, step: int, count: int) -> Report:
    """Examine cases `first`, `first` + `step`, ... until there are `count` answers."""
    report, index = Report(), first
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    while report.answers < count or not report.cases:
        examination = Examination(seed, index, report)
        examination.run()
        report.cases += 1
        report.forms[examination.form] += 1
        index += step
    return report


def run(count: int, seed: int = 0, first: int = 0, workers: int = 1) -> Report:
    """Examine at least `count` answers in `workers` processes."""
    started, whole = time.monotonic(), Report()
    if workers == 1:
        whole = run_part(seed, first, 1, count)
    else:
        share = -(-count // workers)
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            for future in [pool.submit(run_part, seed, first + i, workers, share) for i in range(workers)]:
                whole.add(future.result())
    whole.seconds = time.monotonic() - started
    return whole


def show(report: Report) -> None:
    """Print the figures, then the failures."""
    print(f"answers: {report.answers} of {report.cases} heads in {report.seconds:.0f} s")
    print("  heads: " + ", ".join(f"{name} {count}" for name, count in report.forms.most_common()))
    for reason, count in report.refusals.most_common():
        print(f"  refused {count}: {reason}")
    for kind, line in report.failures.items():
        print(f"  WRONG {report.failed[kind]} times: {line}")
