"""The catalogue of the benchmark: its bundle, the changes that are sent, and what has to hold after them."""

from __future__ import annotations

import time
from collections import deque
from functools import cache
from pathlib import Path

import numpy as np
from shortlist.bundle.manifest import FORMAT_VERSION, MANIFEST_FILE
from shortlist.core.results import FloatArray

MODEL_NAME = "shop"
DIM = 64
CLUSTERS = 256
FIT_ROWS = 2_048  # that the head is fitted to: an export takes its time by them
SPREAD = 0.6  # of items around the middle of their cluster
LIVING_ITEMS = 5_000  # added items that live at a time; then each addition takes the place of the oldest
BASE_SHARE = 0.1  # of removals, that are of items of the export


def draw_items(rng: np.random.Generator, count: int) -> FloatArray:
    """Vectors [count, DIM] of items, in clusters, as factors of a recommender are."""
    rows = draw_middles()[rng.integers(CLUSTERS, size=count)] + SPREAD * rng.standard_normal((count, DIM))
    return rows.astype(np.float32)


@cache
def draw_middles() -> FloatArray:
    """The middles [CLUSTERS, DIM] of all clusters."""
    return np.random.default_rng(0).standard_normal((CLUSTERS, DIM)).astype(np.float32)


def make_catalogue(folder: Path, classes: int) -> Path:
    """The bundle of a head of so many named items, exported where it is missing."""
    out = folder / f"catalogue-{classes}" / f"format-{FORMAT_VERSION}" / MODEL_NAME / "1"
    if not (out / MANIFEST_FILE).is_file():
        from shortlist.bundle.names import Names
        from shortlist_exporter.export.request import Request
        from shortlist_exporter.export.run import export
        from shortlist_exporter.inputs.sources import Contexts, Dense

        names = Names.make([f"item-{number}" for number in range(classes)])
        rng = np.random.default_rng(1)
        request = Request("grouped", {}, names=names, threads=1, fallback=False)
        export(Dense(draw_items(rng, classes)), Contexts(draw_items(rng, FIT_ROWS)), out, request)
    return out


class Feed:
    """Makes batches of changes, half of them additions, and knows what has to hold.

    living: name -> vector of added items that live, in the order in which they came. removed: id -> when its removal
    was acknowledged, by `time.perf_counter`. ids: of added items by name.
    """

    def __init__(self, classes: int, seed: int) -> None:
        self.rng, self.classes, self.prefix = np.random.default_rng(seed), classes, f"new-{seed}"
        self.living: dict[str, FloatArray] = {}
        self.removed: dict[int, float] = {}
        self.removed_base: set[int] = set()
        self.ids: dict[str, int] = {}
        self.recent: deque[FloatArray] = deque(maxlen=64)  # vectors of items that were changed a short while ago
        self.leaving: dict[str, FloatArray] = {}
        self.count = 0

    def next_batch(self, size: int) -> tuple[list[str], FloatArray, list[str]]:
        """Names and vectors of items to add, and names of items to remove, `size` of both together."""
        half = max(1, size // 2)
        names = [f"{self.prefix}-{self.count + i}" for i in range(half)]
        self.count += half
        gone: list[str] = []
        for _ in range(size - half):
            gone.append(self.choose_base() if self.takes_base() else self.take_oldest())
        return names, draw_items(self.rng, half), gone

    def takes_base(self) -> bool:
        """Whether the next removal is of an item of the export; at most half of those go."""
        if not self.living:
            return True
        few = len(self.living) < min(LIVING_ITEMS, self.classes // 4)
        return (few or self.rng.random() < BASE_SHARE) and len(self.removed_base) < self.classes // 2

    def take_oldest(self) -> str:
        """The name of the added item that lives longest, of which nothing is known until its removal is answered."""
        name = next(iter(self.living))
        self.leaving[name] = self.living.pop(name)
        return name

    def choose_base(self) -> str:
        """The name of an item of the export that was not removed yet."""
        while True:
            number = int(self.rng.integers(self.classes))
            if number not in self.removed_base:
                self.removed_base.add(number)
                return f"item-{number}"

    def acknowledge(self, names: list[str], vectors: FloatArray, gone: list[str], ids: list[int]) -> None:
        """Note that a batch holds from now on."""
        now = time.perf_counter()
        for name, vector, item in zip(names, vectors, ids, strict=True):
            self.living[name], self.ids[name] = vector, item
        if names:
            self.recent.append(vectors[0])
        for name in gone:
            vector = self.leaving.pop(name, None)
            if vector is None:
                self.removed[int(name.removeprefix("item-"))] = now
            else:
                self.recent.append(vector)
                self.removed[self.ids[name]] = now
