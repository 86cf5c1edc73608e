"""The same bundle with other query-time options: what a little more or less care would cost and bring."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from shortlist.evaluation.statistics import PRECISION_DEPTHS
from shortlist.head import Head
from shortlist.plans.grouped import WIDEN
from shortlist.plans.registry import Plan, ScreenPlan

from shortlist_exporter.core.types import FloatArray

Options = dict[str, Any]
Kind = Callable[[Head, FloatArray], dict[str, Options]]

FACTORS = (0.25, 0.5, 2, 4)  # of how many classes go on
PROBES = (2, 3)  # clusters opened
SECOND_PROBES = (0.1, 0.3)  # shares of rows that open one cluster more


def make_variants(head: Head, contexts: FloatArray) -> dict[str, Plan]:
    """Label -> plan, by the kind of plan; none where a plan has no options at query time."""
    kind = VARIANTS.get(head.manifest.plan)
    options = {} if kind is None else kind(head, contexts)
    return {label: changed(head.plan, values) for label, values in options.items()}


def changed(plan: Plan, options: Options) -> Plan:
    """The plan with some options changed, over the same sessions."""
    other = copy.copy(plan)
    for name, value in options.items():
        assert hasattr(plan, name), "an option at query time is an attribute of its plan"
        setattr(other, name, value)
    return other


def scaled(option: str, label: str, least: int = 1) -> Kind:
    """Less and more of an option that says how many classes go on, but not less than `least`."""

    def of(head: Head, contexts: FloatArray) -> dict[str, Options]:
        del contexts
        own = int(head.manifest.options[option])
        sizes = {min(head.manifest.classes, max(least, round(own * factor))) for factor in FACTORS} - {own}
        return {label.format(size): {option: size} for size in sorted(sizes)}

    return of


def probes(head: Head, contexts: FloatArray) -> dict[str, Options]:
    """More clusters, for all rows or for the least sure; more candidates where previews choose among them."""
    plan = head.plan
    assert isinstance(plan, ScreenPlan)
    if plan.second_stage:
        return FULL_VIEWS(head, contexts)
    clusters = len(plan.sets)
    more: dict[str, Options] = {
        f"{count} probes": {"probes": count} for count in PROBES if plan.probes < count <= clusters
    }
    margins = margins_of(plan, contexts) if clusters > 1 else np.empty(0)
    for share in SECOND_PROBES if margins.size else ():
        found = float(np.quantile(margins, share))
        if found > plan.probe_margin:
            more[f"second probe for {share:.0%}"] = {"probe_margin": found}
    return more


def margins_of(plan: ScreenPlan, contexts: FloatArray) -> FloatArray:
    """[n]: difference of the two best clusters' scores over the size of the best, as the plan has it."""
    two = np.sort(plan.screen(context=contexts)[0], axis=1)[:, -2:]
    size = np.abs(two[:, 1])
    margins: FloatArray = (two[:, 1] - two[:, 0]) / np.where(size > 0, size, 1)
    return margins


FULL_VIEWS = scaled("full_view", "full view {:,}")
CANDIDATES = "{:,} candidates"
VARIANTS: dict[str, Kind] = {
    "preview": FULL_VIEWS,
    "screen": probes,
    "cascade": scaled("candidates", CANDIDATES),
    "grouped": scaled("candidates", CANDIDATES, least=WIDEN * max(PRECISION_DEPTHS)),  # fewer go a wider, slower way
}
