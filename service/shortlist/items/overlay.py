"""The changed items of one version of a model: which there are, which of its classes they hide, at every moment."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import Names
from shortlist.core.results import FloatArray, IdArray

from .batch import ItemBatch, Key
from .names import GrowingNames
from .table import MIN_ROWS, ItemTable

NOT_CHANGED, GONE = -1, -2  # in place of a place: the bundle's own class, and no class


@dataclass(frozen=True)
class Snapshot:
    """What was changed up to one moment. It never changes itself.

    classes: V and the ids added. base_classes: V. table, size: the vectors of changed items, its first `size` rows.
    penalty: [size] float32, 0 for a row that is an item, -inf for one that was replaced or removed. hidden: [1, m]
    int64, the bundle's classes that were replaced or removed.
    """

    classes: int
    base_classes: int
    table: ItemTable
    size: int
    penalty: FloatArray
    hidden: IdArray

    @property
    def ids(self) -> IdArray:
        """[size] the item of each row."""
        return self.table.ids[: self.size]

    def score(self, contexts: FloatArray) -> FloatArray:
        """Exact logits [B, size] of the changed items, -inf where a row is no item."""
        logits = self.table.score(contexts, self.size)
        logits += self.penalty
        return logits

    @cached_property
    def sorted_items(self) -> tuple[IdArray, IdArray]:
        """The ids [n] of the items in ascending order, and their rows [n]."""
        rows = np.flatnonzero(self.penalty == 0)
        order = np.argsort(self.ids[rows])
        return self.ids[rows[order]], rows[order]

    @cached_property
    def sorted_hidden(self) -> IdArray:
        """The hidden classes [m] in ascending order."""
        return np.sort(self.hidden[0])

    def find_rows(self, ids: IdArray) -> IdArray:
        """The row of each of `ids` [...], or `NOT_CHANGED`, or `GONE`."""
        items, rows = self.sorted_items
        places = np.minimum(np.searchsorted(items, ids), max(0, items.size - 1))
        changed = items[places] == ids if items.size else np.zeros(ids.shape, bool)
        gone = (ids >= self.base_classes) | is_in_sorted(ids, self.sorted_hidden)
        others = np.where(gone, GONE, NOT_CHANGED)
        return np.where(changed, rows[places], others) if items.size else others


def is_in_sorted(ids: IdArray, values: IdArray) -> IdArray:
    """Whether each of `ids` [...] is one of the ascending `values` [m]."""
    if not values.size:
        return np.zeros(ids.shape, bool)
    places = np.minimum(np.searchsorted(values, ids), values.size - 1)
    found: IdArray = values[places] == ids
    return found


class ItemOverlay:
    """Applies batches, one at a time. snapshot: what holds now, None while nothing was changed; threads may read it.

    position: of the last change that holds. names: of the items; None where they have ids alone.
    """

    def __init__(self, manifest: Manifest, names: Names | None, position: int, threads: int = 1) -> None:
        """position: up to which change the bundle itself holds them."""
        self.classes = self.base_classes = manifest.classes
        self.names = None if names is None else GrowingNames.grow(names)
        self.position = self.exported_position = position
        self.live_rows: dict[int, int] = {}
        self.table = ItemTable(manifest.dim, MIN_ROWS, manifest.logit_scale, manifest.soft_cap, threads)
        self.penalty = np.zeros(MIN_ROWS, np.float32)
        self.hidden, self.hidden_ids = np.zeros(MIN_ROWS, np.int64), dict[int, None]()
        self.snapshot: Snapshot | None = None

    def find_ids(self, keys: list[Key]) -> list[int]:
        """The ids that `keys` have, -1 for those that have none."""
        if self.names is None:
            return [int(key) for key in keys]
        found: list[int] = self.names.find([str(key) for key in keys]).tolist()
        return found

    def apply(self, position: int, batches: list[ItemBatch]) -> None:
        """Make the changes of batches, the last of which has this position, and show them all at once."""
        dead: list[int] = []
        for batch in batches:
            self.remove(batch, dead)
            self.put(batch, dead)
        if dead:
            self.penalty = self.penalty.copy()  # the snapshots before have the old one
            self.penalty[dead] = -np.inf
        self.drop_dead_rows()
        count = len(self.hidden_ids)
        self.position = position
        self.snapshot = Snapshot(
            *(self.classes, self.base_classes, self.table, self.table.size),
            *(self.penalty[: self.table.size], self.hidden[None, :count]),
        )

    def remove(self, batch: ItemBatch, dead: list[int]) -> None:
        """Take items away; one that there is not stays away."""
        for item in self.find_ids(batch.remove) if batch.remove else ():
            row = self.live_rows.pop(item, None)
            if row is not None:
                dead.append(row)
            self.hide(item)

    def put(self, batch: ItemBatch, dead: list[int]) -> None:
        """Add items, or replace their vectors."""
        if not batch.put:
            return
        ids = [int(key) for key in batch.put] if self.names is None else self.names.add(batch.put)
        self.make_room(len(ids), dead)
        first = self.table.append(ids, batch.vectors, batch.biases)
        for row, item in enumerate(ids, first):
            old = self.live_rows.get(item)
            if old is not None:
                dead.append(old)
            self.live_rows[item] = row
            self.hide(item)
        self.classes = max(self.classes, max(ids) + 1)

    def hide(self, item: int) -> None:
        """Let the bundle's own class of this id answer no more, if it has one."""
        if not 0 <= item < self.base_classes or item in self.hidden_ids:
            return
        count = len(self.hidden_ids)
        if count == self.hidden.size:
            self.hidden = np.concatenate([self.hidden, np.zeros_like(self.hidden)])
        self.hidden[count] = item
        self.hidden_ids[item] = None

    def make_room(self, rows: int, dead: list[int]) -> None:
        """See that so many rows may be appended."""
        if not self.table.has_room(rows):
            self.penalty = self.penalty.copy()
            self.penalty[dead] = -np.inf
            dead.clear()
            self.copy_live_rows(rows)

    def drop_dead_rows(self) -> None:
        """Copy the rows that are items where most of them are none any more: else they would be scored for ever."""
        if self.table.size - len(self.live_rows) > max(MIN_ROWS, len(self.live_rows)):
            self.copy_live_rows(0)

    def copy_live_rows(self, room: int) -> None:
        """Go on with a table of the rows that are items alone."""
        rows = np.flatnonzero(self.penalty[: self.table.size] == 0)
        self.table = self.table.copy_rows(rows, room)
        self.penalty = np.zeros(len(self.table.ids), np.float32)
        self.live_rows = {int(item): row for row, item in enumerate(self.table.ids[: self.table.size].tolist())}

    def count(self) -> dict[str, int]:
        """How many items are changed, by what became of them."""
        items = list(self.live_rows)  # in one step: another thread changes it
        added = sum(item >= self.base_classes for item in items)
        replaced = len(items) - added
        return {"added": added, "replaced": replaced, "removed": len(self.hidden_ids) - replaced}
