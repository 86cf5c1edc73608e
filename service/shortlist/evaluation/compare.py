"""Two heads over the same classes held against each other: `difference(first, second, contexts)`.

Neither is the truth. As in `evaluation`, both answer by their plans alone, whatever the number of rows: dense answering
for either would hide what differs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.bundle.manifest import Strict
from shortlist.core.results import NO_CLASS, IdArray, TopK
from shortlist.errors import BadInput
from shortlist.head import Head

from . import statistics
from .measurement import DEPTHS
from .statistics import Doubles, Share, Summary

K = 5
PERCENTILES = (50, 99, 100)
COMPARED = {
    "name", "version", "method", "plan", "reference", "dtype", "max_k", "seed", "normalizer", "logit_scale", "soft_cap",
    "dense_crossover", "settings", "fit", "quality",
}  # fmt: skip
ORIGIN = ("weights_sha256", "contexts_sha256", "contexts_rows")

Pair = tuple[Any, Any]


class Difference(Strict):
    """What `difference` found; the two entries of a pair are the first head's and the second's.

    rows: contexts asked. agreement: by depth, how many of the first head's classes the second returned too, as a share,
    both asked for so many. The rest is of k classes. overlap: classes that both returned, mean. same_set, same_order:
    share of rows whose k classes are the same, and in the same order. logprob_difference: |first - second| of classes
    that both returned, nats; None where there are none. logprob_shift: mean of second - first of the same. candidates:
    classes scored for a row. relabelled: classes with another label; None unless both heads have labels. settings:
    every entry of either manifest that says how the head was made and how good it is. differing: names of those that
    are not the same.
    """

    k: int
    rows: int
    agreement: dict[int, Share]
    overlap: float
    same_set: float
    same_order: float
    logprob_difference: Summary | None
    logprob_shift: float | None
    candidates: tuple[Summary, Summary]
    relabelled: int | None
    settings: dict[str, Pair]
    differing: list[str]


def difference(first: Head, second: Head, contexts: npt.ArrayLike, k: int = K) -> Difference:
    """Ask both heads for the best classes of `contexts` [n, d]; raises BadInput for heads of other classes or d."""
    check_pair(first, second)
    rows = first.check_contexts(contexts)
    if not len(rows):
        raise BadInput("contexts have no rows: give at least 1")
    for head in (first, second):
        head.check_k(k)
    most = min(first.manifest.max_k, second.manifest.max_k)
    tops = {depth: (first.topk_by_plan(rows, depth), second.topk_by_plan(rows, depth)) for depth in depths(k, most)}
    settings = compared(flat(first), flat(second))
    return Difference(
        k=k,
        rows=len(rows),
        agreement={depth: agreement(*pair) for depth, pair in tops.items()},
        **in_detail(*tops[k]),
        relabelled=relabelled(first, second),
        settings=settings,
        differing=[name for name, (one, other) in settings.items() if one != other],
    )


def depths(k: int, most: int) -> list[int]:
    """The depths at which heads are compared; each is asked for by itself, since a plan may widen for it."""
    return [depth for depth in sorted({*DEPTHS, k}) if depth <= most]


def check_pair(first: Head, second: Head) -> None:
    """Raise BadInput unless both heads have the same V and the same d."""
    sizes = [f"{head.folder} has V = {head.manifest.classes}, d = {head.manifest.dim}" for head in (first, second)]
    if (first.manifest.classes, first.manifest.dim) != (second.manifest.classes, second.manifest.dim):
        raise BadInput(f"{' and '.join(sizes)}: give two heads over the same classes and contexts")


def agreement(first: TopK, second: TopK) -> Share:
    """Share of the first's classes that are among the second's; of the legal ones, where a row has fewer."""
    wanted = (first.ids != NO_CLASS).sum(axis=1)
    return statistics.share(common(first.ids, second.ids).sum(axis=1) / np.maximum(wanted, 1))


def in_detail(first: TopK, second: TopK) -> dict[str, Any]:
    """The figures that are of k classes alone."""
    change = logprob_changes(first, second)
    return {
        "overlap": float(common(first.ids, second.ids).sum(axis=1).mean()),
        "same_set": float((np.sort(first.ids, axis=1) == np.sort(second.ids, axis=1)).all(axis=1).mean()),
        "same_order": float((first.ids == second.ids).all(axis=1).mean()),
        "logprob_difference": statistics.summary(np.abs(change), PERCENTILES) if change.size else None,
        "logprob_shift": float(change.mean()) if change.size else None,
        "candidates": (statistics.summary(first.scored, (99,)), statistics.summary(second.scored, (99,))),
    }


def common(ids: IdArray, others: IdArray) -> npt.NDArray[np.bool_]:
    """[n, k]: which of `ids` are legal and in the same row of `others`."""
    found: npt.NDArray[np.bool_] = (ids[:, :, None] == others[:, None]).any(axis=2) & (ids != NO_CLASS)
    return found


def logprob_changes(first: TopK, second: TopK) -> Doubles:
    """[m]: second minus first, nats, of every class that both heads returned for a row."""
    same = (first.ids[:, :, None] == second.ids[:, None]) & (first.ids[:, :, None] != NO_CLASS)
    row, place, other = np.nonzero(same)
    return second.logprobs[row, other].astype(np.float64) - first.logprobs[row, place]


def relabelled(first: Head, second: Head) -> int | None:
    """How many classes have another label: then the ids do not mean the same."""
    if first.labels is None or second.labels is None:
        return None
    return sum(one != other for one, other in zip(first.labels, second.labels, strict=True))


def flat(head: Head) -> dict[str, Any]:
    """Settings of a manifest: `fit.width`, `settings.full_view`, `quality.p_at_1`, and so on."""
    content = head.manifest.model_dump(mode="json", include=COMPARED)
    content["provenance"] = {name: head.manifest.provenance.get(name) for name in ORIGIN}
    entries: dict[str, Any] = {}
    for name, value in content.items():
        inside = value if isinstance(value, dict) else None
        entries |= {name: value} if inside is None else {f"{name}.{inner}": part for inner, part in inside.items()}
    return entries


def compared(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Pair]:
    """Both settings under every name that either has, settings beside settings; None where one lacks it."""
    groups = list(dict.fromkeys(name.partition(".")[0] for name in first | second))
    names = sorted(first | second, key=lambda name: groups.index(name.partition(".")[0]))  # stable: else as they came
    return {name: (first.get(name), second.get(name)) for name in names}
