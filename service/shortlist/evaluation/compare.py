"""Two heads over the same classes held against each other: `compare_heads(first, second, contexts)`.

Classes are the same where they have the same name, or the same id where not both heads have names. Neither head is the
truth. As in `evaluation`, both answer by their plans alone, whatever the number of rows: dense answering for either
would hide what differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.bundle.manifest import Strict
from shortlist.bundle.names import Names
from shortlist.core.results import NO_CLASS, DoubleArray, IdArray, TopK
from shortlist.errors import BadInput
from shortlist.head import Head

from . import statistics
from .statistics import PRECISION_DEPTHS, Bools, Share, Summary, mark_hits

COMPARED_K = 5
DIFFERENCE_PERCENTILES = (50, 99, 100)
COMPARED_FIELDS = {
    "name", "version", "method", "plan", "reference", "dtype", "max_k", "seed", "normalizer", "logit_scale", "soft_cap",
    "dense_crossover", "settings", "fit", "quality",
}  # fmt: skip
PROVENANCE_FIELDS = ("weights_sha256", "contexts_sha256", "contexts_rows")

Pair = tuple[Any, Any]


class Difference(Strict):
    """The figures of `compare_heads`; the two entries of a pair are the first head's and the second's.

    rows: contexts asked. agreement: by depth, how many of the first head's classes the second returned too, as a share,
    both asked for so many. The rest is of k classes. overlap: classes that both returned, mean. same_set, same_order:
    share of rows whose k classes are the same, and in the same order. logprob_difference: |first - second| of classes
    that both returned, nats; None where there are none. logprob_shift: mean of second - first of the same. candidates:
    classes scored for a row. relabelled: classes with another label; None unless both heads have labels, and not both
    have names. only_first, only_second: classes whose names the other head lacks; moved: those that have another id
    there; None unless both heads have names. settings: every entry of either manifest that says how the head was made
    and how good it is. differing: names of those that are not the same.
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
    only_first: int | None
    only_second: int | None
    moved: int | None
    settings: dict[str, Pair]
    differing: list[str]


def compare_heads(first: Head, second: Head, contexts: npt.ArrayLike, k: int = COMPARED_K) -> Difference:
    """Ask both heads for the best classes of `contexts` [n, d]; raises BadInput for heads of other classes or d."""
    check_pair(first, second)
    rows = first.check_contexts(contexts)
    if not len(rows):
        raise BadInput("contexts have no rows: give at least 1")
    for head in (first, second):
        head.check_k(k)
    depths = choose_compared_depths(k, min(first.manifest.max_k, second.manifest.max_k))
    tops = {depth: (first.topk_by_plan(rows, depth), second.topk_by_plan(rows, depth)) for depth in depths}
    if first.names is not None and second.names is not None:
        tops = {depth: (top, match_names(other, second.names, first.names)) for depth, (top, other) in tops.items()}
    settings = pair_settings(flatten_manifest(first), flatten_manifest(second))
    return Difference(
        k=k,
        rows=len(rows),
        agreement={depth: measure_agreement(*pair) for depth, pair in tops.items()},
        **compare_in_detail(*tops[k]),
        relabelled=count_relabelled(first, second),
        **compare_names(first.names, second.names),
        settings=settings,
        differing=[name for name, (one, other) in settings.items() if one != other],
    )


def choose_compared_depths(k: int, max_k: int) -> list[int]:
    """The depths at which heads are compared; each is asked for by itself, since a plan may widen for it."""
    return [depth for depth in sorted({*PRECISION_DEPTHS, k}) if depth <= max_k]


def check_pair(first: Head, second: Head) -> None:
    """Raise BadInput unless both heads have the same d and, where not both have names, the same V."""
    sizes = [f"{head.folder} has V = {head.manifest.classes}, d = {head.manifest.dim}" for head in (first, second)]
    named = first.names is not None and second.names is not None
    fits = first.manifest.dim == second.manifest.dim and (named or first.manifest.classes == second.manifest.classes)
    if not fits:
        raise BadInput(f"{' and '.join(sizes)}: give two heads over the same classes and contexts")


def match_names(top: TopK, names: Names, others: Names) -> TopK:
    """An answer by the ids that its classes have among `others`, and by ids from there on for names that these lack."""
    ids, places = np.unique(top.ids, return_inverse=True)
    classes = ids[ids != NO_CLASS]
    new = others.find(names.read(classes).tolist())
    ids[ids != NO_CLASS] = np.where(new == NO_CLASS, others.classes.size + classes, new)
    return replace(top, ids=ids[places].reshape(top.ids.shape))


def compare_names(first: Names | None, second: Names | None) -> dict[str, Any]:
    """How many names one of them lacks, or has at another id; None for each where there are no names."""
    if first is None or second is None:
        return dict.fromkeys(("only_first", "only_second", "moved"))
    _, one, other = np.intersect1d(first.hashes, second.hashes, assume_unique=True, return_indices=True)
    return {
        "only_first": first.hashes.size - one.size,
        "only_second": second.hashes.size - other.size,
        "moved": int((first.classes[one] != second.classes[other]).sum()),
    }


def measure_agreement(first: TopK, second: TopK) -> Share:
    """Share of the first's classes that are among the second's; of the permitted ones, where a row has fewer."""
    class_counts = (first.ids != NO_CLASS).sum(axis=1)
    return statistics.estimate_share(
        mark_common_classes(first.ids, second.ids).sum(axis=1) / np.maximum(class_counts, 1)
    )


def compare_in_detail(first: TopK, second: TopK) -> dict[str, Any]:
    """The figures that are of k classes alone."""
    change = subtract_logprobs(first, second)
    return {
        "overlap": float(mark_common_classes(first.ids, second.ids).sum(axis=1).mean()),
        "same_set": float((np.sort(first.ids, axis=1) == np.sort(second.ids, axis=1)).all(axis=1).mean()),
        "same_order": float((first.ids == second.ids).all(axis=1).mean()),
        "logprob_difference": statistics.summarize(np.abs(change), DIFFERENCE_PERCENTILES) if change.size else None,
        "logprob_shift": float(change.mean()) if change.size else None,
        "candidates": (statistics.summarize(first.scored, (99,)), statistics.summarize(second.scored, (99,))),
    }


def mark_common_classes(ids: IdArray, others: IdArray) -> Bools:
    """[n, k]: which of `ids` [n, k] are permitted and in the same row of `others` [n, m]."""
    width = max(ids.shape[1], others.shape[1])
    return np.asarray(mark_hits(others, ids, width) & (ids != NO_CLASS))


def subtract_logprobs(first: TopK, second: TopK) -> DoubleArray:
    """[m]: second minus first, nats, of every class that both heads returned for a row."""
    same = (first.ids[:, :, None] == second.ids[:, None]) & (first.ids[:, :, None] != NO_CLASS)
    row, place, other = np.nonzero(same)
    return second.logprobs[row, other].astype(np.float64) - first.logprobs[row, place]


def count_relabelled(first: Head, second: Head) -> int | None:
    """How many classes have another label: then the ids do not mean the same."""
    if first.labels is None or second.labels is None or (first.names is not None and second.names is not None):
        return None
    return sum(one != other for one, other in zip(first.labels, second.labels, strict=True))


def flatten_manifest(head: Head) -> dict[str, Any]:
    """Fields of a manifest by dotted names: `fit.width`, `quality.p_at_1`, `quality.kinds.news.rows` and so on."""
    content = head.manifest.model_dump(mode="json", include=COMPARED_FIELDS)
    content["provenance"] = {name: head.manifest.provenance.get(name) for name in PROVENANCE_FIELDS}
    return dict(flatten(content))


def flatten(content: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (`a.b.c`, value) for every value of nested objects that is none itself."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def pair_settings(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Pair]:
    """Both settings under every name that either has, options beside options; None where one lacks it."""
    groups = list(dict.fromkeys(name.partition(".")[0] for name in first | second))
    names = sorted(first | second, key=lambda name: groups.index(name.partition(".")[0]))  # stable: else as they came
    return {name: (first.get(name), second.get(name)) for name in names}
