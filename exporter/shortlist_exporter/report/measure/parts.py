"""Clusters or experts: how large, how used, which classes they hold, and where answers are lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from shortlist.head import Head
from shortlist.plans.common.base import Routed

from shortlist_exporter.records.report import Copies, Part, Parts

from .answers import Answers, Namer

PART_NAMES = {"screen": "cluster"}
MIN_PART_ROWS = 8  # with fewer, a part's precision says nothing
WORST_PARTS = 8  # shown
PART_WORDS = 6  # shown of each

Ids = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def measure_parts(head: Head, answers: Answers, name: Namer) -> Parts | None:
    """Figures of the plan's parts; None where it has none."""
    plan = head.plan
    if not isinstance(plan, Routed):
        return None
    sets, routes = plan.list_parts(), plan.choose_routes(answers.contexts)
    opening_counts = np.bincount([part for route in routes for part in route], minlength=len(sets))
    return Parts(
        kind=PART_NAMES.get(head.manifest.plan, "part"),
        sizes=[int(ids.size) for ids in sets],
        shares=(opening_counts / len(routes)).tolist(),
        unused=int((opening_counts == 0).sum()),
        effective=count_effective(opening_counts),
        opened=float(np.mean([len(route) for route in routes])),
        copies=count_copies(sets, answers),
        worst=find_worst(sets, routes, answers, name),
    )


def count_effective(counts: Ids) -> float:
    """Exp of the entropy of the shares: so many parts, equally used, would be as even."""
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(np.exp(-(shares * np.log(shares)).sum()))


def count_copies(sets: Sequence[Ids], answers: Answers) -> list[Copies]:
    """Classes by how often they are among the five best (0, 1, 2-3, 4-7, ...), and how many parts hold one."""
    if answers.true is None:
        return []
    copy_counts = np.bincount(np.concatenate(sets), minlength=answers.classes)
    answer_counts = np.bincount(answers.true[:, :5].ravel(), minlength=answers.classes)
    bins = np.where(answer_counts > 0, np.log2(np.maximum(answer_counts, 1)).astype(int) + 1, 0)
    return [
        Copies(
            least=0 if number == 0 else 1 << (number - 1),
            most=0 if number == 0 else (1 << number) - 1,
            classes=int(inside.sum()),
            copies=float(copy_counts[inside].mean()),
            missing=int((copy_counts[inside] == 0).sum()),
        )
        for number in np.unique(bins)
        if (inside := bins == number).any()
    ]


def find_worst(sets: Sequence[Ids], routes: list[tuple[int, ...]], answers: Answers, name: Namer) -> list[Part]:
    """The parts that lose most of their rows' five best, among those with enough rows."""
    if answers.true is None:
        return []
    first = np.array([route[0] if route else -1 for route in routes])
    counts = np.bincount(first[first >= 0], minlength=len(sets))
    parts = [measure_part(int(i), sets, first == i, answers, name) for i in np.flatnonzero(counts >= MIN_PART_ROWS)]
    return sorted((part for part in parts if part.p_at_5 < 1), key=lambda part: (part.p_at_5, -part.rows))[:WORST_PARTS]


def measure_part(number: int, sets: Sequence[Ids], inside: Bools, answers: Answers, name: Namer) -> Part:
    """One part, over the rows that opened it first."""
    assert answers.true is not None
    hits, true = answers.mark_hits(5)[inside], answers.true[inside]
    return Part(
        number=number,
        size=int(sets[number].size),
        rows=int(inside.sum()),
        p_at_1=float(answers.mark_hits(1)[inside].mean()),
        p_at_5=float(hits.mean()),
        words=name_commonest(true[:, 0], name),
        missed=name_commonest(true[:, : hits.shape[1]][~hits], name),
    )


def name_commonest(ids: Ids, name: Namer) -> list[str]:
    """The names of the most frequent of `ids` [n], the commonest first."""
    classes, counts = np.unique(ids, return_counts=True)
    return [name(int(classes[i])) for i in np.argsort(-counts, kind="stable")[:PART_WORDS]]
