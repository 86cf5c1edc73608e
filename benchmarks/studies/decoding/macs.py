"""Multiply-adds of a row, by what was searched for it: the exporter's own figure leaves later looks out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from shortlist.core.results import FloatArray
from shortlist.head import Head
from shortlist.kernels.grouped.effort import Look
from shortlist.plans.grouped.plan import GroupedPlan
from shortlist.plans.screen.plan import ScreenPlan
from shortlist_exporter.methods.grouped import count_first_columns

COUNT_CHUNK_ROWS = 512
SURPLUS = 1 + 1 / 32  # of groups and blocks, which loops may take more than settings say

Counts = npt.NDArray[np.float64]


def measure_macs(head: Head, contexts: FloatArray, k: int) -> float:
    """Multiply-adds of a row over dense's, the mean of searches of `contexts` [n, d] for k classes."""
    manifest = head.manifest
    if head.plan is head.dense:
        return 1.0
    parts = [contexts[start : start + COUNT_CHUNK_ROWS] for start in range(0, len(contexts), COUNT_CHUNK_ROWS)]
    scored = np.concatenate([head.topk_by_plan(part, k).scored for part in parts])
    if isinstance(head.plan, ScreenPlan) and head.plan.settings.second_stage:
        return float(count_staged(head, head.plan, contexts, scored).mean()) / (manifest.classes * manifest.dim)
    return float(count_rows(head, scored, k).mean()) / (manifest.classes * manifest.dim)


def count_rows(head: Head, scored: npt.NDArray[np.int32], k: int) -> Counts:
    """Multiply-adds [n] of rows of which so many classes were scored, [n]."""
    manifest = head.manifest
    fit, dim = manifest.fit, manifest.dim
    if isinstance(head.plan, GroupedPlan):
        return count_grouped(head, head.plan, scored, k)
    if manifest.method == "svd":
        first = fit["width"] * (manifest.classes + dim)
    else:
        first = fit["clusters" if manifest.method == "l2s" else "experts"] * dim
    counts: Counts = first + scored.astype(np.float64) * dim
    return counts


def count_staged(head: Head, plan: ScreenPlan, contexts: FloatArray, scored: npt.NDArray[np.int32]) -> Counts:
    """The same of plan `screen` with a second stage: screen, terms, previews of a row's sets, then exact scores.

    Rows that dense answers, of which all classes are scored, are counted with what came before.
    """
    fit, dim = head.manifest.fit, head.manifest.dim
    previewed = [plan.sets.unite(route).ids.size if route else 0 for route in plan.choose_routes(contexts)]
    exact = np.where(scored == head.manifest.classes, scored + plan.settings.full_view, scored)
    first = dim * (fit["clusters"] + fit["width"] + fit["tail_terms"])
    counts: Counts = first + np.array(previewed) * float(fit["width"]) + exact * float(dim)
    return counts


def count_grouped(head: Head, plan: GroupedPlan, scored: npt.NDArray[np.int32], k: int) -> Counts:
    """The same of plan `grouped`: what comes before the looks, and the looks that a row got, one after the other."""
    fit, search = head.manifest.fit, plan.plan_search(k, restricts=False)
    start = head.manifest.dim * (fit["width"] + 1 + fit["tail_terms"]) + fit["groups"] * fit["centre_width"]
    totals = start + np.cumsum([count_look(head, look, plan.order.size) for look in search.looks])
    if not search.weights:  # all looks are taken
        return np.full(len(scored), totals[-1])
    last = np.searchsorted([look.candidates for look in search.looks[:-1]], scored)
    counts: Counts = totals[last]
    return counts


def count_look(head: Head, look: Look, classes: int) -> float:
    """Multiply-adds of one look at a row."""
    fit, dim = head.manifest.fit, head.manifest.dim
    first = count_first_columns(fit["width"], fit["int8_width"], fit["centre_width"])
    opened = min(classes, SURPLUS * look.opened)
    previews = opened * first + min(opened, SURPLUS * look.previewed) * (fit["width"] - first)
    return float(previews + (look.candidates + look.full_view) * dim)
