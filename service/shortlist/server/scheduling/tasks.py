"""Checked questions that can be computed in pieces, and pieces of several questions together.

What a question is answered with depends on its own rows and k alone: they choose the plan, and pieces share a call only
where the plan searches both equally widely.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from shortlist.core.filters import ClassFilter
from shortlist.core.queries import Query, Result, ScoreQuery, Scores, TopKQuery
from shortlist.core.results import FloatArray, IdArray, PlanResult, TopK
from shortlist.head import Head, finished
from shortlist.plans.registry import Plan


class Work(Protocol):
    """One question."""

    @property
    def plan(self) -> Plan:
        """What answers it."""

    @property
    def k(self) -> int:
        """Classes wanted for each; 0 where they are named."""

    @property
    def rows(self) -> int:
        """Context vectors."""

    @property
    def cells(self) -> int:
        """Ids in the answer."""

    @property
    def alone(self) -> bool:
        """Whether its pieces never share a call."""

    @property
    def width(self) -> int:
        """See Plan.width."""

    @property
    def kind(self) -> Hashable:
        """Works of one kind take about as long a row: one plan, searched equally widely, for about as many classes."""

    def answer(self) -> Result:
        """All of it at once; raises BadInput."""

    def together(self, pieces: Sequence[Piece]) -> list[Any]:
        """The parts of the answers for `pieces` of works of one group."""

    def finish(self, parts: list[Any]) -> Result:
        """The answer, from the parts of all rows in order; raises BadInput."""


class Piece(NamedTuple):
    """Rows start..stop of a work."""

    work: Work
    start: int
    stop: int

    @property
    def group(self) -> Hashable:
        """Pieces of equal groups may share a call."""
        return (id(self.work), self.start) if self.work.alone else (id(self.work.plan), self.work.width)


@dataclass(slots=True, eq=False)
class TopKWork:
    """`Head.topk`, its arguments checked."""

    head: Head
    plan: Plan
    normalizer: str
    contexts: FloatArray
    k: int
    legal: ClassFilter
    kind: Hashable
    alone: bool  # allow and ban lists are of a request's own shape

    @property
    def rows(self) -> int:
        """See Work."""
        return len(self.contexts)

    @property
    def cells(self) -> int:
        """See Work."""
        return len(self.contexts) * self.k

    def with_rows(self, contexts: FloatArray) -> TopKWork:
        """The same question of as many other contexts, of the same shape; raises BadInput."""
        rows = self.head.check_finite(contexts if contexts.dtype == np.float32 else contexts.astype(np.float32))
        return TopKWork(self.head, self.plan, self.normalizer, rows, self.k, self.legal, self.kind, self.alone)

    @property
    def width(self) -> int:
        """See Work."""
        return self.plan.width(self.k)

    def answer(self) -> TopK:
        """See Work."""
        return finished(self.head.run(self.plan, self.contexts, self.k, self.legal), self.normalizer)

    def together(self, pieces: Sequence[Piece]) -> list[PlanResult]:
        """See Work."""
        works: list[TopKWork] = [piece.work for piece in pieces]  # type: ignore[misc]  # of one group, so of one kind
        parts = [work.contexts[piece.start : piece.stop] for work, piece in zip(works, pieces, strict=True)]
        contexts = parts[0] if len(parts) == 1 else np.concatenate(parts)
        legal = self.legal.slice_rows(pieces[0].start, pieces[0].stop)
        result = self.head.run(self.plan, contexts, max(work.k for work in works), legal)
        if len(pieces) == 1:
            return [result]
        ends = np.cumsum([len(part) for part in parts])
        return [cut(result, end - len(part), end, work.k) for work, part, end in zip(works, parts, ends, strict=True)]

    def finish(self, parts: list[PlanResult]) -> TopK:
        """See Work."""
        return finished(PlanResult.concat(parts), self.normalizer)


def cut(result: PlanResult, start: int, stop: int, k: int) -> PlanResult:
    """Rows start..stop, and their k best."""
    return PlanResult(
        result.ids[start:stop, :k],
        result.logits[start:stop, :k],
        result.log_normalizer[start:stop],
        result.scored[start:stop],
    )


@dataclass(slots=True, eq=False)
class ScoreWork:
    """`Head.logprobs`, its arguments checked."""

    head: Head
    plan: Plan
    normalizer: str
    contexts: FloatArray
    ids: IdArray
    alone: bool = True
    width: int = 0
    k: int = 0

    @property
    def kind(self) -> Hashable:
        """See Work."""
        return id(self.plan), 0, 0

    @property
    def rows(self) -> int:
        """See Work."""
        return len(self.contexts)

    @property
    def cells(self) -> int:
        """See Work."""
        return int(self.ids.size)

    def answer(self) -> Scores:
        """See Work."""
        return self.finish([self.head.score(self.plan, self.contexts, self.ids)])

    def together(self, pieces: Sequence[Piece]) -> list[FloatArray]:
        """See Work."""
        return [
            self.head.score(self.plan, self.contexts[piece.start : piece.stop], self.ids[piece.start : piece.stop])
            for piece in pieces
        ]

    def finish(self, parts: list[FloatArray]) -> Scores:
        """See Work."""
        return Scores(self.ids, np.concatenate(parts), self.normalizer)


def checked_work(head: Head, query: Query) -> Work:
    """The question as work for `head`; raises BadInput."""
    rows = head.check_contexts(query.contexts)
    if isinstance(query, ScoreQuery):
        ids = np.atleast_2d(query.ids)
        wanted = head.check_ids(ids.repeat(len(rows), axis=0) if len(ids) == 1 else ids, len(rows))
        return ScoreWork(head, *head.choose_scorer(len(rows), query.exact), rows, wanted)
    return checked_topk(head, query, rows)


def checked_topk(head: Head, query: TopKQuery, rows: FloatArray) -> TopKWork:
    """The same, for the k best of checked rows."""
    head.check_k(query.k)
    plan, normalizer = head.choose_plan(len(rows), query.k, query.exact)
    legal = head.lists(query.allow, query.ban, len(rows))
    kind = id(plan), plan.width(query.k), query.k.bit_length()
    return TopKWork(head, plan, normalizer, rows, query.k, legal, kind, legal.restricts)
