"""The same bundle at other settings: what scoring more or fewer classes would cost and bring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from shortlist.evaluation.statistics import PRECISION_DEPTHS
from shortlist.head import Head
from shortlist.kernels.grouped.effort import GROUPED_CANDIDATES_PER_K
from shortlist.plans.registry import Plan, ScreenPlan

from shortlist_exporter.core.types import FloatArray

Changes = dict[str, Any]  # of settings
Kind = Callable[[Head, FloatArray], dict[str, Changes]]

VARIANT_FACTORS = (0.25, 0.5, 2, 4)  # of how many classes go on
PROMISE_VARIANTS = (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
PROBE_VARIANTS = (2, 3)  # clusters opened
SECOND_PROBES = (0.1, 0.3)  # shares of rows that open one cluster more


def make_variants(head: Head, contexts: FloatArray) -> dict[str, Plan]:
    """Label -> plan, by the kind of plan; none where a plan has nothing to set."""
    kind = VARIANTS.get(head.manifest.plan)
    changes = {} if kind is None else kind(head, contexts)
    return {label: head.with_settings(**values).plan for label, values in changes.items()}


def scale_setting(setting: str, label: str, least: int = 1, above: str = "", below: str = "") -> Kind:
    """Less and more of a setting that says how many classes go on, but not less than `least`.

    above, below: settings that it may not be under, and not over.
    """

    def of(head: Head, contexts: FloatArray) -> dict[str, Changes]:
        del contexts
        settings = head.manifest.settings.model_dump()
        value, fewest = settings[setting], max(least, settings.get(above, 1))
        most = min(head.manifest.classes, settings.get(below, head.manifest.classes))
        sizes = {min(most, max(fewest, round(value * factor))) for factor in VARIANT_FACTORS} - {value}
        return {label.format(size): {setting: size} for size in sorted(sizes)}

    return of


def vary_probes(head: Head, contexts: FloatArray) -> dict[str, Changes]:
    """More clusters, for all rows or for the least sure; more candidates where previews choose among them."""
    plan = head.plan
    assert isinstance(plan, ScreenPlan)
    if plan.settings.second_stage:
        return FULL_VIEWS(head, contexts)
    clusters = plan.sets.count
    more: dict[str, Changes] = {
        f"{count} probes": {"probes": count} for count in PROBE_VARIANTS if plan.settings.probes < count <= clusters
    }
    margins = compute_margins(plan, contexts) if clusters > 1 else np.empty(0)
    for share in SECOND_PROBES if margins.size else ():
        margin = float(np.quantile(margins, share))
        if margin > plan.settings.probe_margin:
            more[f"second probe for {share:.0%}"] = {"probe_margin": margin}
    return more


def compute_margins(plan: ScreenPlan, contexts: FloatArray) -> FloatArray:
    """[n]: difference of the two best clusters' scores over the size of the best, as the plan has it."""
    two = np.sort(plan.router.route(contexts, plan.settings, use_dense=False).scores, axis=1)[:, -2:]
    size = np.abs(two[:, 1])
    return ((two[:, 1] - two[:, 0]) / np.where(size > 0, size, 1)).astype(np.float32)


def vary_promise(head: Head, contexts: FloatArray) -> dict[str, Changes]:
    """Other promises; where there is none, less and more candidates of all rows."""
    promise = head.manifest.promise
    if promise is None:
        return GROUPED_CANDIDATES(head, contexts)
    return {f"promise {value:g}": {"promise": value} for value in PROMISE_VARIANTS if value != promise}


FULL_VIEWS = scale_setting("full_view", "full view {:,}")
CANDIDATES = "{:,} candidates"
FAST_CANDIDATES = GROUPED_CANDIDATES_PER_K * max(PRECISION_DEPTHS)  # fewer go a wider, slower way
GROUPED_CANDIDATES = scale_setting("candidates", CANDIDATES, FAST_CANDIDATES, above="full_view", below="previewed")
VARIANTS: dict[str, Kind] = {
    "preview": FULL_VIEWS,
    "screen": vary_probes,
    "cascade": scale_setting("candidates", CANDIDATES, above="full_view"),
    "grouped": vary_promise,
}
