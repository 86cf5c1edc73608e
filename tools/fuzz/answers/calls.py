"""Calls to a head: rows of its pool, how many classes, lists, and classes to score."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from shortlist.core.results import FloatArray, IdArray, TopK
from shortlist.head import Head

from .layers import POOL_ROWS, Generator
from .references import Reference

BATCHES, BATCH_SHARES = (1, 2, 5, 33, 257), (0.5, 0.2, 0.17, 0.1, 0.03)
LISTED_SHARE = 0.4  # of the calls
BEST_LISTED = 3  # of each row
SCORED_CLASSES = 12  # at most so many best, random and repeated ones each
LISTED = (("allow",), ("ban",), ("allow", "ban"))
LIST_KINDS = ("empty", "one", "best", "most", "all but k")


@dataclass(frozen=True)
class Call:
    """rows: numbers in the pool [B]. allow, ban: as `Head.topk` takes them."""

    rows: IdArray
    k: int
    exact: bool
    allow: IdArray | None = None
    ban: IdArray | None = None

    @property
    def listed(self) -> bool:
        return self.allow is not None or self.ban is not None

    def topk(self, head: Head, pool: FloatArray) -> TopK:
        """The head's k best of these rows."""
        return head.topk(pool[self.rows], self.k, allow=self.allow, ban=self.ban, exact=self.exact)

    def mask(self, classes: int) -> npt.NDArray[np.bool_]:
        """[B, V]: what the lists permit."""
        permitted = np.ones((len(self.rows), classes), bool)
        if self.allow is not None:
            permitted &= mark(self.allow, len(self.rows), classes)
        if self.ban is not None:
            permitted &= ~mark(self.ban, len(self.rows), classes)
        return permitted

    def take_row(self, place: int) -> Call:
        """The same call for the row at this place alone."""
        allow, ban = (ids[place] if ids is not None and ids.ndim == 2 else ids for ids in (self.allow, self.ban))
        return replace(self, rows=self.rows[place : place + 1], allow=allow, ban=ban)


def mark(ids: IdArray, rows: int, classes: int) -> npt.NDArray[np.bool_]:
    """[rows, classes]: which are in `ids`, [m] or [rows, m], where -1 pads."""
    marked = np.zeros((rows, classes + 1), bool)
    np.put_along_axis(marked, np.broadcast_to(ids, (rows, ids.shape[-1])), True, axis=1)
    return marked[:, :-1]  # -1 marks the last column


def make_call(random: Generator, head: Head, reference: Reference) -> Call:
    """Make a random call to a head."""
    count = int(random.choice(BATCHES, p=BATCH_SHARES))
    rows = np.arange(count) + random.integers(POOL_ROWS - count + 1)
    most = head.manifest.max_k
    k = int(random.choice([1, 1, 2, 5, 5, 10, int(random.integers(1, most + 1)), -(-most // 4), most]))
    call = Call(rows, min(k, most), bool(random.random() < 0.35))
    if random.random() >= LISTED_SHARE:
        return call
    names = LISTED[int(random.integers(len(LISTED)))]
    lists: dict[str, Any] = {name: make_list(random, reference, call) for name in names}
    return replace(call, **lists)


def make_list(random: Generator, reference: Reference, call: Call) -> IdArray:
    """Make an allow or ban list of a random kind, for all rows or for each."""
    classes = reference.logits.shape[1]
    kind = str(random.choice(LIST_KINDS))
    if kind == "best":
        best = np.argsort(-reference.logits[call.rows], axis=1)[:, :BEST_LISTED].astype(np.int64)
        return best if random.random() < 0.5 else best[0]
    size = {"empty": 0, "one": 1, "most": classes * 9 // 10, "all but k": max(0, classes - call.k)}[kind]
    if random.random() < 0.5 or size * len(call.rows) > 1 << 17:
        return random.permutation(classes)[:size]
    rows = np.stack([random.permutation(classes)[:size] for _ in call.rows])
    return np.where(random.random(rows.shape) < 0.05, -1, rows)


def choose_scored(random: Generator, reference: Reference, call: Call) -> IdArray:
    """Ids [B, m] to score: the truly best, some at random, some twice, and padding."""
    logits = reference.logits[call.rows]
    classes = logits.shape[1]
    best = np.argsort(-logits, axis=1)[:, : int(random.integers(1, SCORED_CLASSES))]
    others = random.integers(classes, size=(len(logits), int(random.integers(SCORED_CLASSES))))
    ids = np.concatenate([best, others, best[:, :2], np.full((len(logits), 1), -1)], axis=1)
    return random.permuted(ids, axis=1).astype(np.int64)
