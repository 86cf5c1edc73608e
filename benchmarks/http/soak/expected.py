"""Requests of mixed sizes, each with the offline answer of every row, and whether an answer is that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import FloatArray, IdArray
from shortlist.errors import ServerError
from shortlist.head import Head

from benchmarks.http.client.requests import Answer, infer, infer_answer
from benchmarks.http.client.wire import Reply

KS = (1, 5, 10)
MOST_ROWS = 16
NEAR = 1e-4  # scores closer than this may change places, log-probabilities may differ by this


@dataclass(frozen=True)
class Expected:
    """One request, with and without a timeout, and what must come back. crossed: so many rows ask the dense head."""

    timed: bytes
    untimed: bytes
    contexts: FloatArray
    ids: IdArray
    logprobs: FloatArray
    crossed: bool

    def difference(self, reply: Reply, head: Head) -> str | None:
        """How an answer differs from the offline one, or None."""
        try:
            found = infer_answer(reply.headers, reply.body)
        except ServerError as error:
            return str(error)
        if found.ids.shape != self.ids.shape or found.logprobs.shape != self.ids.shape:
            return f"shape {list(found.ids.shape)} instead of {list(self.ids.shape)}"
        off = float(np.abs(found.logprobs - self.logprobs).max())
        if not off <= NEAR:
            return f"log-probabilities off by {off:.2g}"
        if np.array_equal(found.ids, self.ids) or self.only_ties(found, head):
            return None
        row = int(np.flatnonzero((found.ids != self.ids).any(axis=1))[0])
        return f"ids {found.ids[row].tolist()} instead of {self.ids[row].tolist()}"

    def only_ties(self, found: Answer, head: Head) -> bool:
        """Whether every class that is not where it was expected scores as the expected one does, and comes once."""
        if any(len(set(row)) < len(row) for row in found.ids.tolist()):
            return False
        scores = head.logprobs(self.contexts, found.ids, exact=self.crossed)
        return bool((np.abs(scores - self.logprobs) <= NEAR).all())


def mixture(head: Head, contexts: FloatArray, count: int, deadline_us: int, host: str) -> list[Expected]:
    """`count` requests of 1 to 16 rows drawn from `contexts` [n, d]; deterministic."""
    random = np.random.default_rng(2)
    known: dict[tuple[int, int, bool], tuple[IdArray, FloatArray]] = {}
    made = []
    for _ in range(count):
        rows = random.integers(len(contexts), size=int(random.integers(1, MOST_ROWS + 1)))
        made.append(one(head, contexts, rows, int(random.choice(KS)), deadline_us, host, known))
    return made


def one(
    head: Head, contexts: FloatArray, rows: IdArray, k: int, deadline_us: int, host: str, known: dict[Any, Any]
) -> Expected:
    """One request; offline answers are of each row alone, and `known` keeps them."""
    crossover = head.manifest.dense_crossover
    crossed = crossover is not None and len(rows) >= crossover
    for row in rows.tolist():
        if (row, k, crossed) not in known:
            plan, normalizer = head.choose_scorer(1, crossed, k)  # by dense itself, not by proof
            top = head.run(plan, contexts[row : row + 1], k, UNRESTRICTED).topk(normalizer)
            known[row, k, crossed] = top.ids[0], top.logprobs[0]
    ids, logprobs = (np.stack(each) for each in zip(*(known[row, k, crossed] for row in rows.tolist()), strict=True))
    name, asked = head.manifest.name, contexts[rows]
    timed, untimed = infer(name, asked, k, timeout=deadline_us), infer(name, asked, k)
    return Expected(timed.wire(host), untimed.wire(host), asked, ids, logprobs, crossed)
