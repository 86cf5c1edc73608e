"""Every method that approximates the given layer, exported and opened as a user would.

Heads that are their own reference learn another softmax: the given layer's best classes are no truth for them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.bundle.reader import Bundle
from shortlist.errors import ShortlistError
from shortlist.head import Head
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, Dense

from .base import Contender, FloatArray, IdArray, Options

BUNDLES = Path("build/bench/bundles")
DIM_PER_WIDTH = (24, 12, 8, 6, 4.5, 3, 2)  # d / W of SVD-softmax
SettingValues = tuple[str, tuple[int, ...]]  # a setting of the plan, and its values


class Ours(Contender):
    """One method. Large requests are not handed to dense here: the head itself is compared.

    method: its name for the exporter. setting_values: the setting that is swept, if the plan has one, and its values.
    A `revision` is raised where the method exports something else for the same options, since bundles are kept.
    """

    method: ClassVar[str]
    setting_values: ClassVar[SettingValues] = ("", ())

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        """Open the bundle in `BUNDLES` that holds the head already; export it where none can be opened."""
        self.folder = self.locate_bundle(dense, contexts)
        try:
            self.head = self.open_head()
        except ShortlistError:  # there is none, or one that this version reads no more
            shutil.rmtree(self.folder, ignore_errors=True)
            options = {name: str(value) for name, value in self.build.items()}
            request = Request(self.method, options, fallback=False, certificate=False, threads=self.threads)
            export(dense, Contexts(contexts), self.folder, request)
            self.head = self.open_head()

    def open_head(self) -> Head:
        """The head of the bundle in `folder`; raises NotFound, BundleError."""
        return Head(Bundle(self.folder, verify=False), "cpu", self.threads)

    def locate_bundle(self, dense: Dense, contexts: FloatArray) -> Path:
        """The folder in `BUNDLES` of what this build exports, which differs by format, layer, contexts and options."""
        contexts_sha256 = hashlib.sha256(np.ascontiguousarray(contexts).data).hexdigest()
        parts = [FORMAT_VERSION, self.method, self.revision, self.build, dense.sha256, contexts_sha256]
        return BUNDLES / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16] / "1"

    def settings(self) -> list[Options]:
        """Values of the swept setting that are under half of the classes."""
        name, values = self.setting_values
        classes = self.head.manifest.classes
        return [{name: value} for value in values if value < classes // 2] or [{}]

    def use(self, setting: Options) -> None:
        super().use(setting)
        self.head = self.head.with_settings(**setting)

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        return self.head.topk(contexts, k).ids

    def count_candidates(self, contexts: FloatArray, k: int) -> npt.NDArray[np.int32]:
        return self.head.topk(contexts, k).scored

    def size(self) -> int:
        """Without the dense layer's own copy of the weights."""
        files = self.head.manifest.files
        return sum(entry.size for name, entry in files.items() if name.endswith(".bin") and "columns" not in name)


class OursFull(Ours):
    """The dense layer, exported and served as a head."""

    name: ClassVar[str] = "shortlist full"
    method: ClassVar[str] = "full"


class OursSvd(Ours):
    """Method `svd`: a low-rank preview of all classes, exact scores for the best."""

    name: ClassVar[str] = "shortlist svd"
    method: ClassVar[str] = "svd"
    setting_values: ClassVar[SettingValues] = ("full_view", (32, 64, 128, 256, 512, 1024, 2048, 4096))

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """Widths from d/24 to d/2 in the basis of contexts, and what the paper's two tables use."""
        published_builds = [{"basis": "weight", "width": dense.dim // share} for share in (8, 4)]
        ours = [
            {"basis": "context", "preview": preview, "width": round(dense.dim / share)}
            for preview in ("int8", "fp32")
            for share in DIM_PER_WIDTH
        ]
        return [*published_builds, *ours]


class OursL2s(Ours):
    """Method `l2s`: a trained screen picks clusters of candidates."""

    name: ClassVar[str] = "shortlist l2s"
    method: ClassVar[str] = "l2s"
    setting_values: ClassVar[SettingValues] = ("probes", (1, 2, 4))

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """100 clusters: small sets, with each option beyond the paper by itself, and larger ones with a preview."""
        budget = dense.classes // 40
        beyond: list[Options] = [
            {"second_probe": 0.0},
            {"second_probe": 0.12},
            {"always_top": budget // 4},
            {"fallback": 0.05},
            {"tail_rank": dense.dim // 10},
        ]
        small: list[Options] = [{"budget": budget, **option} for option in beyond]
        return [*small, {"budget": dense.classes // 6, "second_stage": "int8"}]


class OursCascade(Ours):
    """Method `cascade`: int8 previews, then int8 rows, then exact scores."""

    name: ClassVar[str] = "shortlist cascade"
    method: ClassVar[str] = "cascade"
    setting_values: ClassVar[SettingValues] = ("candidates", (128, 192, 256, 384, 512, 768))

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """Widths from d/9 to d/3; at one of them, other shares of rare classes, and everything looked at."""
        widths: list[Options] = [{"width": round(dense.dim / share)} for share in (9, 6, 4.5, 3.6, 3)]
        screens: list[Options] = [
            {"common": 1.0},
            {"common": 0.5, "rare_share": 0.3},
            {"common": 0.33, "rare_share": 0.3},
        ]
        return [*widths, *({"width": round(dense.dim / 4.5), **screen} for screen in screens)]


class OursGrouped(Ours):
    """Groups of classes with previews."""

    name: ClassVar[str] = "shortlist grouped"
    method: ClassVar[str] = "grouped"
    revision: ClassVar[str] = "7"
    setting_values: ClassVar[SettingValues] = ("opened", (1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576))
    promises: ClassVar[tuple[float, ...]] = (0.5, 0.9, 0.95, 0.97, 0.99, 0.998)

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """Widths from d/3 to d/1.2."""
        return [{"width": round(dense.dim / share)} for share in (3, 2.25, 1.8, 1.5, 1.2)]

    def settings(self) -> list[Options]:
        """What the first look opens, by how sure it has to be of each row to be the last one."""
        settings = super().settings()
        if self.head.manifest.promise is None or not settings[0]:  # graphs look once
            return settings
        return [{**setting, "promise": promise} for setting in settings for promise in self.promises]


REVISIONS = {kind.method: kind.revision for kind in (OursFull, OursSvd, OursL2s, OursCascade, OursGrouped)}
