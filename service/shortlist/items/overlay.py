"""The changed items of one version of a model: which there are, which of its classes they hide, at every moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import Names
from shortlist.core.arrays import normalize_rows
from shortlist.core.results import BoolArray, FloatArray, IdArray, IntArray
from shortlist.kernels.changes import CompiledMerge, RowSet
from shortlist.kernels.exact_rows import CompiledGather
from shortlist.kernels.growing_previews import GrowingPreviews

from .batch import ItemBatch, Key
from .names import GrowingNames, follow_nobody
from .records import has_cosines
from .table import MIN_ROWS, NEVER, ItemTable

NOT_CHANGED, GONE = -1, -2  # in place of a place: the bundle's own class, and no class
DEAD_DIVISOR = 4  # of the rows that are items: so many may be none any more
MIN_PREVIEWED = 2048  # hidden classes; the exact logits of fewer take no longer


@dataclass(frozen=True)
class Snapshot:
    """What was changed up to one moment. It never changes itself.

    classes: V and the ids added. base_classes: V. moment: how many times changes were made before it. table, size: the
    vectors of changed items, its first `size` rows. hidden: [1, m] int64, the bundle's classes that were replaced or
    removed. hidden_since: [V] int32, the moment from which on each class is hidden; later ones change nothing here.
    previews: of the hidden classes and of those hidden later, or None.
    """

    classes: int
    base_classes: int
    moment: int
    table: ItemTable
    size: int
    hidden: IdArray
    hidden_since: IntArray
    previews: GrowingPreviews | None

    @property
    def ids(self) -> IdArray:
        """[size] the item of each row."""
        return self.table.ids[: self.size]

    def score(self, contexts: FloatArray) -> FloatArray:
        """Exact logits [B, size] of the changed items, -inf where a row is no item."""
        logits = self.table.score(contexts, self.size)
        logits[:, self.dead_rows] = -np.inf
        return logits

    @cached_property
    def dead_rows(self) -> IdArray:
        """The rows [n] of the table that are no items any more."""
        return (~self.table.mark_living(self.size, self.moment)).nonzero()[0]

    @property
    def has_classes(self) -> bool:
        """Whether any class of the bundle was not removed, or any item is there."""
        return self.hidden.size < self.base_classes or self.sorted_items[0].size > 0

    @cached_property
    def hidden_rows(self) -> RowSet | None:
        """The hidden classes, by previews where these are many; None without loops."""
        if self.previews is None:
            return None
        is_previewed = self.previews.size >= self.hidden.size >= MIN_PREVIEWED
        return RowSet(self.previews.rows, self.hidden[0], self.previews if is_previewed else None)

    @cached_property
    def merge(self) -> CompiledMerge | None:
        """What merges answers of the bundle's classes with the changes; None without loops."""
        hidden, items = self.hidden_rows, self.table.open_rows(self.size, self.moment)
        if hidden is None or items is None:
            return None
        return CompiledMerge(hidden, items, self.table.ids, self.hidden_since, self.moment)

    def mark_hidden(self, ids: IdArray) -> BoolArray:
        """Whether each of the bundle's classes `ids` [...] is hidden; what -1 gets means nothing."""
        marks: BoolArray = self.hidden_since[ids] <= self.moment
        return marks

    @cached_property
    def sorted_items(self) -> tuple[IdArray, IdArray]:
        """The ids [n] of the items in ascending order, and their rows [n]."""
        rows = np.flatnonzero(self.table.mark_living(self.size, self.moment))
        order = np.argsort(self.ids[rows])
        return self.ids[rows[order]], rows[order]

    def find_rows(self, ids: IdArray) -> IdArray:
        """The row of each of `ids` [...], or `NOT_CHANGED`, or `GONE`."""
        items, rows = self.sorted_items
        places = np.minimum(np.searchsorted(items, ids), max(0, items.size - 1))
        changed = items[places] == ids if items.size else np.zeros(ids.shape, bool)
        gone = (ids >= self.base_classes) | self.mark_hidden(np.minimum(ids, self.base_classes - 1))
        others = np.where(gone, GONE, NOT_CHANGED)
        return np.where(changed, rows[places], others) if items.size else others


def overlay_logits(base: FloatArray, contexts: FloatArray, ids: IdArray, changes: Snapshot) -> FloatArray:
    """Logits [B, m] of `ids` [B, m]: the bundle's own in `base`, those of changed items in their place."""
    rows = changes.find_rows(ids)
    logits: FloatArray = np.where(rows == GONE, np.float32(-np.inf), base)
    if (rows >= 0).any():
        scores = np.take_along_axis(changes.score(contexts), np.maximum(rows, 0), axis=1)
        logits = np.where(rows >= 0, scores, logits)
    return logits


class ItemOverlay:
    """Applies batches, one at a time. snapshot: what holds now, None while nothing was changed; threads may read it.

    position: of the last change that holds. names: of the items; None where they have ids alone.
    """

    def __init__(
        self,
        manifest: Manifest,
        names: Names | None,
        position: int,
        threads: int = 1,
        rows: CompiledGather | None = None,
    ) -> None:
        """position: up to which change the bundle itself holds them. rows: of the bundle's classes, where loops do."""
        self.classes = self.base_classes = manifest.classes
        self.names = None if names is None else GrowingNames.grow(names)
        self.position = self.exported_position = position
        self.has_cosines = has_cosines(manifest)
        self.live_rows: dict[int, int] = {}
        self.table = ItemTable(manifest.dim, MIN_ROWS, manifest.logit_scale, manifest.soft_cap, threads)
        self.moment, self.hidden_count, self.hidden = 0, 0, np.zeros(MIN_ROWS, np.int64)
        self.hidden_since: IntArray = np.empty(0, np.int32)  # made when the first class is hidden
        self.previews = None if rows is None else GrowingPreviews(rows)
        self.snapshot: Snapshot | None = None
        self.follow = follow_nobody

    def follow_by(self, follow: Callable[[], None]) -> None:
        """Let `follow`, which makes changes of other processes, be called before each look at what holds."""
        self.follow = follow
        if self.names is not None:
            self.names.follow = follow

    def read(self) -> Snapshot | None:
        """What holds now, of all processes; None while nothing was changed."""
        self.follow()
        return self.snapshot

    def find_ids(self, keys: list[Key]) -> list[int]:
        """The ids that `keys` have, -1 for those that have none."""
        if self.names is None:
            return [int(key) for key in keys]
        ids: list[int] = self.names.find_known([str(key) for key in keys]).tolist()
        return ids

    def apply(self, position: int, batches: list[ItemBatch]) -> None:
        """Make the changes of batches, the last of which has this position, and show them all at once."""
        self.moment += 1
        if not self.hidden_since.size:
            self.hidden_since = np.full(self.base_classes, NEVER, np.int32)
        for batch in batches:
            self.remove(batch)
            self.put(batch)
        self.drop_dead_rows()
        self.position = position
        self.snapshot = Snapshot(
            *(self.classes, self.base_classes, self.moment, self.table, self.table.size),
            *(self.hidden[None, : self.hidden_count], self.hidden_since, self.previews),
        )

    def remove(self, batch: ItemBatch) -> None:
        """Take items away; one that there is not stays away."""
        if not batch.remove:
            return
        ids = self.find_ids(batch.remove)
        self.end_rows(ids)
        self.hide(ids)

    def put(self, batch: ItemBatch) -> None:
        """Add items, or replace their vectors."""
        if not batch.put:
            return
        ids = [int(key) for key in batch.put] if self.names is None else self.names.add(batch.put)
        self.end_rows(ids)
        if not self.table.has_room(len(ids)):
            self.copy_live_rows(len(ids))
        vectors = normalize_rows(batch.vectors) if self.has_cosines else batch.vectors
        first = self.table.append(ids, vectors, batch.biases)
        self.live_rows.update(zip(ids, range(first, first + len(ids)), strict=True))
        self.hide(ids)
        self.classes = max(self.classes, max(ids) + 1)

    def end_rows(self, ids: list[int]) -> None:
        """Let the rows of `ids` be items no more, from this moment on."""
        rows = [row for row in (self.live_rows.pop(item, None) for item in ids) if row is not None]
        if rows:
            self.table.ends[rows] = self.moment

    def hide(self, ids: list[int]) -> None:
        """Let the bundle's own classes of these ids answer no more from this moment on."""
        fresh = [item for item in ids if 0 <= item < self.base_classes and self.hidden_since[item] == NEVER]
        if not fresh:
            return
        last = self.hidden_count + len(fresh)
        if last > self.hidden.size:
            self.hidden = np.concatenate([self.hidden, np.zeros(max(last, self.hidden.size), np.int64)])
        self.hidden[self.hidden_count : last] = fresh
        self.hidden_since[fresh] = self.moment
        self.hidden_count = last
        if self.previews is not None and last >= MIN_PREVIEWED:
            self.previews.append(self.hidden[self.previews.size : last])

    def drop_dead_rows(self) -> None:
        """Copy the rows that are items where many are none any more: else they would be scored for ever."""
        if self.table.size - len(self.live_rows) > max(MIN_ROWS, len(self.live_rows) // DEAD_DIVISOR):
            self.copy_live_rows(0)

    def copy_live_rows(self, room: int) -> None:
        """Go on with a table of the rows that are items alone."""
        rows = np.flatnonzero(self.table.mark_living(self.table.size, self.moment))
        self.table = self.table.copy_rows(rows, room)
        self.live_rows = {int(item): row for row, item in enumerate(self.table.ids[: self.table.size].tolist())}

    def count(self) -> dict[str, int]:
        """How many items are changed, by what became of them."""
        items = list(self.live_rows)  # in one step: another thread changes it
        added = sum(item >= self.base_classes for item in items)
        replaced = len(items) - added
        return {"added": added, "replaced": replaced, "removed": self.hidden_count - replaced}
