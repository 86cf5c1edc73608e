"""Heads fitted for the search, each a bundle in the cache, opened by the service's runtime as users open theirs."""

from __future__ import annotations

import hashlib
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from shortlist.bundle.manifest import MANIFEST_FILE, Manifest, Strict
from shortlist.bundle.reader import GRAPHS_FOLDER, INDEX_FILE, Bundle
from shortlist.head import Head
from shortlist.plans.full import FullPlan

from shortlist_exporter.core.types import Cost, FloatArray, Progress
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.write import make_manifest, write_graphs, write_index
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.methods.registry import Fitted, TrainedMethod, find_method
from shortlist_exporter.records.tuning import Promise

from .cache import Cache
from .space import Build, Setting, find_space

SHARED_FILES = ("weight.bin", "columns.bin")  # of every bundle of one layer
ABOUT_FILE = "fit.json"


class About(Strict):
    """What the cache keeps of a fit beside its bundle: cost relative to dense, and the seconds that it took."""

    cost_macs: float
    cost_bytes: float
    seconds: float


@dataclass
class Fit:
    """A fitted head. fitted: the torch module, where this process has made it. seconds: that it took, then or now."""

    build: Build
    rows: int
    folder: Path
    cost: Cost
    seconds: float
    fitted_head: Fitted | None = None

    @property
    def bytes(self) -> int:
        """Of graphs, weights and index: what a runtime maps or loads."""
        files = [path for path in (self.folder / GRAPHS_FOLDER).rglob("*") if path.is_file()]
        index = [self.folder / INDEX_FILE] if (self.folder / INDEX_FILE).is_file() else []
        return sum(path.stat().st_size for path in [*files, *index])

    def open(self, promise: Promise, dense: FullPlan | None = None) -> Head:
        """The head, by the service's runtime. dense: an open dense head of the layer, to share its memory."""
        return Head(Bundle(self.folder, verify=False), promise.device, promise.threads, dense)


@dataclass
class Fits:
    """Fits on random rows of the fit split [n, d]; what the cache holds is not fitted again."""

    cache: Cache
    dense: Dense
    contexts: Contexts
    seed: int
    keep_dense: bool

    def __post_init__(self) -> None:
        """Name the data by its own bytes: callers may have made it in memory."""
        rows = np.ascontiguousarray(self.contexts.contexts)
        parts = [array.data for array in (self.dense.weight, self.dense.bias, rows) if array is not None]
        hashes = [hashlib.sha256(np.ascontiguousarray(part).data).hexdigest() for part in parts]
        scale = [self.dense.logit_scale, self.dense.soft_cap, self.dense.padded.tolist()]
        self.data = [*hashes, *scale, self.seed]
        self.new_fits: dict[str, Fit] = {}

    def key(self, build: Build, rows: int) -> str:
        """The name of a fit's folder."""
        return self.cache.key("fit", self.data, build.method, build.options, rows, self.keep_dense)

    def find(self, build: Build, rows: int) -> Fit | None:
        """A fit of this search or, from the cache, of an earlier one; None where there is none, or none whole."""
        key = self.key(build, rows)
        folder = self.cache.folder / key
        if key in self.new_fits or not (folder / ABOUT_FILE).is_file():
            return self.new_fits.get(key)
        try:
            about = About.model_validate_json((folder / ABOUT_FILE).read_bytes())
        except ValueError:  # it did not reach the disk whole, as where power was lost
            shutil.rmtree(folder, ignore_errors=True)
            return None
        return Fit(build, rows, folder, Cost(macs=about.cost_macs, bytes=about.cost_bytes), about.seconds)

    def fit(self, build: Build, rows: int, progress: Progress) -> Fit:
        """The head of `build` fitted on `rows` rows; raises BadInput on options that do not fit the layer."""
        return self.find(build, rows) or self.store(build, rows, *self.run_method(build, rows, progress))

    def adapt(self, fit: Fit, setting: Setting, progress: Progress) -> Fit:
        """The same head with the setting as an option of its own, calibrated for it."""
        if not setting:
            return fit
        options = dict(fit.build.options) | {name: str(value) for name, value in setting.items()}
        build, adapt = Build(fit.build.method, tuple(options.items())), find_space(fit.build.method).adapt
        entry = self.find(build, fit.rows)
        if entry is not None or adapt is None or fit.fitted_head is None:
            return entry or self.fit(build, fit.rows, progress)
        start, head = time.perf_counter(), fit.fitted_head
        calibrated_head = adapt(head, self.dense, self.draw_rows(fit.rows), setting, self.seed)
        return self.store(build, fit.rows, calibrated_head, fit.seconds + time.perf_counter() - start)

    def run_method(self, build: Build, rows: int, progress: Progress) -> tuple[Fitted, float]:
        """The torch module and the seconds that it took."""
        start = time.perf_counter()
        method = find_method(build.method)
        assert not isinstance(method, TrainedMethod), "choose_methods refuses heads that are their own reference"
        fitted = method.fit(self.dense, self.draw_rows(rows), dict(build.options), self.seed, progress)
        return fitted, time.perf_counter() - start

    def draw_rows(self, rows: int) -> FloatArray:
        """Random rows of the fit split, in its order."""
        if rows >= len(self.contexts.contexts):
            return self.contexts.contexts
        positions = np.random.default_rng(self.seed).permutation(len(self.contexts.contexts))[:rows]
        return self.contexts.contexts[np.sort(positions)]

    def store(self, build: Build, rows: int, fitted: Fitted, seconds: float) -> Fit:
        """Write the bundle of a head, fitted on so many rows in so many seconds, to the cache."""
        key = self.key(build, rows)
        with self.cache.make(key) as folder:
            folder.mkdir()
            self.write(folder, build, fitted)
            about = About(cost_macs=fitted.cost.macs, cost_bytes=fitted.cost.bytes, seconds=seconds)
            (folder / ABOUT_FILE).write_text(about.model_dump_json(), "utf-8")
        self.new_fits[key] = Fit(build, rows, self.cache.folder / key, fitted.cost, seconds, fitted)
        return self.new_fits[key]

    def write(self, folder: Path, build: Build, fitted: Fitted) -> None:
        """Graphs, index and an unmeasured manifest."""
        method = find_method(build.method)
        files = write_graphs(folder, self.dense, method, fitted, keep_dense=self.keep_dense or method.plan == "full")
        write_index(folder, method.make_index(fitted))
        for name in SHARED_FILES:
            if (folder / GRAPHS_FOLDER / name).is_file():
                self.cache.share(folder / GRAPHS_FOLDER / name)
        request = Request(build.method, dict(build.options), fallback=False, seed=self.seed)
        draft = make_manifest(self.dense, self.contexts, Path("tune/1"), request, method, fitted, files)
        (folder / MANIFEST_FILE).write_text(draft.with_digest().model_dump_json(), "utf-8")


def read_manifest(fit: Fit) -> Manifest:
    return Bundle(fit.folder, verify=False).manifest
