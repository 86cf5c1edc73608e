"""The vectors of changed items, one behind the other, and their exact logits."""

from __future__ import annotations

import numpy as np

from shortlist.core.results import BoolArray, FloatArray, IdArray, IntArray
from shortlist.kernels.changes import RowSet
from shortlist.kernels.dense_rows import CompiledRanking
from shortlist.kernels.exact_rows import CompiledGather
from shortlist.kernels.growing_previews import GrowingPreviews
from shortlist.kernels.native.library import open_kernels
from shortlist.plans.common.normalizer import log_sum_exp

MIN_ROWS = 1024
MIN_PREVIEWED_ITEMS = 4096  # rows; the exact logits of fewer take no longer
NEVER = np.iinfo(np.int32).max  # a moment that does not come


class ItemTable:
    """Rows that are appended and never changed, so that threads may read those before a number that they know.

    ids: [n] int64, the item of each row. vectors: [n, d] float32. biases: [n] float32. ends: [n] int32, the moment from
    which on a row is no item any more, the one number that changes. size: how many rows are used.
    scale, soft_cap: of the layer whose items they are. previews: of the rows, once there are many; None without loops.
    """

    def __init__(self, dim: int, rows: int, scale: float, soft_cap: float | None, threads: int) -> None:
        """Make room for `rows` rows."""
        self.scale, self.soft_cap, self.threads, self.size = scale, soft_cap, threads, 0
        self.ids, self.vectors = np.zeros(rows, np.int64), np.zeros((rows, dim), np.float32)
        self.biases, self.places = np.zeros(rows, np.float32), np.arange(rows)
        self.ends: IntArray = np.full(rows, NEVER, np.int32)
        self.gather: CompiledGather | None = None
        self.previews: GrowingPreviews | None = None
        self.ranking = CompiledRanking.open(1)
        if open_kernels() is not None:  # the loops that score the bundle's classes: equal rows get equal bits
            self.gather = CompiledGather(self.vectors, scale, soft_cap, self.biases, None, threads)
            self.previews = GrowingPreviews(self.gather)

    def append(self, ids: list[int], vectors: FloatArray, biases: FloatArray) -> int:
        """Append rows that there is room for; returns the place of the first."""
        first, self.size = self.size, self.size + len(ids)
        self.ids[first : self.size], self.vectors[first : self.size] = ids, vectors
        self.biases[first : self.size] = biases
        if self.previews is not None and self.size >= MIN_PREVIEWED_ITEMS:
            self.previews.append(self.places[self.previews.size : self.size])
        return first

    def open_rows(self, rows: int, moment: int) -> RowSet | None:
        """The first `rows` rows that are items at a moment, by previews where these are many; None without loops."""
        if self.gather is None:
            return None
        is_previewed = self.previews is not None and self.previews.size >= rows >= MIN_PREVIEWED_ITEMS
        return RowSet(self.gather, self.places[:rows], self.previews if is_previewed else None, self.ends, moment)

    def mark_living(self, rows: int, moment: int) -> BoolArray:
        """Which [rows] of the first `rows` rows are items at a moment."""
        marks: BoolArray = self.ends[:rows] > moment
        return marks

    def has_room(self, rows: int) -> bool:
        """Whether so many rows may be appended."""
        return self.size + rows <= len(self.ids)

    def copy_rows(self, places: IdArray, room: int) -> ItemTable:
        """A table of the rows at `places` [m], with room for at least `room` more."""
        rows = max(MIN_ROWS, 2 * (places.size + room))
        other = ItemTable(self.vectors.shape[1], rows, self.scale, self.soft_cap, self.threads)
        other.append(self.ids[places].tolist(), self.vectors[places], self.biases[places])
        return other

    def score(self, contexts: FloatArray, rows: int) -> FloatArray:
        """Exact logits [B, rows] of the first `rows` rows for `contexts` [B, d]."""
        if self.gather is not None:
            return self.gather(contexts, repeat_rows(self.places[None, :rows], len(contexts)))
        logits: FloatArray = contexts @ self.vectors[:rows].T + self.biases[:rows]
        logits *= np.float32(self.scale)
        return logits if self.soft_cap is None else self.soft_cap * np.tanh(logits / np.float32(self.soft_cap))

    def sum_logits(self, logits: FloatArray) -> FloatArray:
        """[B] the logs of the sums of exp(logits) [B, m]; -inf of none. `logits` stay as they are."""
        if self.ranking is not None:
            return self.ranking.sum(logits)
        if not logits.shape[1]:
            return np.full(len(logits), -np.inf, np.float32)
        return np.array([log_sum_exp(row.copy()) for row in logits], np.float32)


def repeat_rows(ids: IdArray, rows: int) -> IdArray:
    """`ids` [1, m] as [rows, m]."""
    return ids if rows == 1 else np.broadcast_to(ids, (rows, ids.shape[1]))
