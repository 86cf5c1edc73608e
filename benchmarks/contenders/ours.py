"""Every method that approximates the given layer, exported and opened as a user would; new ones take part."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from shortlist.bundle.reader import Bundle
from shortlist.head import Head
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.methods.registry import METHODS

from .base import Contender, FloatArray, IdArray, Options

BUNDLES = Path("build/bench/bundles")
WIDTHS = (24, 12, 8, 6, 4.5, 3, 2)  # d / W


def svd_grid(dense: Dense) -> list[Options]:
    """Widths from d/24 to d/2 in the basis of contexts, and what the paper's two tables use."""
    published = [{"basis": "weight", "width": dense.dim // share} for share in (8, 4)]
    ours = [
        {"basis": "context", "preview": preview, "width": round(dense.dim / share)}
        for preview in ("int8", "fp32")
        for share in WIDTHS
    ]
    return [*published, *ours]


def cascade_grid(dense: Dense) -> list[Options]:
    """Widths from d/9 to d/3; at one of them, other shares of rare classes, and everything looked at."""
    widths: list[Options] = [{"width": round(dense.dim / share)} for share in (9, 6, 4.5, 3.6, 3)]
    screens: list[Options] = [{"common": 1.0}, {"common": 0.5, "rare_share": 0.3}, {"common": 0.33, "rare_share": 0.3}]
    return [*widths, *({"width": round(dense.dim / 4.5), **screen} for screen in screens)]


def grouped_grid(dense: Dense) -> list[Options]:
    """Widths from d/3 to d/1.2."""
    return [{"width": round(dense.dim / share)} for share in (3, 2.25, 1.8, 1.5, 1.2)]


def l2s_grid(dense: Dense) -> list[Options]:
    """100 clusters: small sets, with each option beyond the paper by itself, and larger ones with a preview inside."""
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


REVISIONS = {"grouped": "6"}  # raise where a method exports something else for the same options: bundles are kept

# Methods that are not listed take part with their defaults.
GRIDS = {"svd": svd_grid, "l2s": l2s_grid, "cascade": cascade_grid, "grouped": grouped_grid}
SWEPT = {
    "preview": ("full_view", (32, 64, 128, 256, 512, 1024, 2048, 4096)),
    "screen": ("probes", (1, 2, 4)),
    "cascade": ("candidates", (128, 192, 256, 384, 512, 768)),
    "grouped": ("previewed", (1024, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 8192, 10240, 12288, 16384)),
}


class Ours(Contender):
    """One method. Large requests are not handed to dense here: the head itself is compared."""

    method: ClassVar[str]

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """See Contender.grid."""
        return GRIDS[cls.method](dense) if cls.method in GRIDS else [{}]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        """See Contender.fit; bundles stay in `BUNDLES`."""
        parts = [self.method, self.build, dense.sha256, hashlib.sha256(np.ascontiguousarray(contexts).data).hexdigest()]
        parts += [self.revision] if self.revision else []
        out = BUNDLES / hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16] / "1"
        if not out.is_dir():
            options = {name: str(value) for name, value in self.build.items()}
            export(
                dense,
                Contexts(contexts),
                out,
                Request(self.method, options, fallback=False, certificate=False, threads=self.threads),
            )
        self.folder = out
        self.head = Head(Bundle(out, verify=False), "cpu", self.threads)

    def settings(self) -> list[Options]:
        """See Contender.settings; from SWEPT, by plan."""
        name, values = SWEPT.get(self.head.manifest.plan, ("", ()))
        classes = self.head.manifest.classes
        return [{name: value} for value in values if value < classes // 2] or [{}]

    def use(self, setting: Options) -> None:
        """See Contender.use."""
        super().use(setting)
        self.head = self.head.with_settings(**setting)

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        """See Contender.topk."""
        return self.head.topk(contexts, k).ids

    def scored(self, contexts: FloatArray, k: int) -> npt.NDArray[np.int32]:
        """See Contender.scored."""
        return self.head.topk(contexts, k).scored

    def size(self) -> int:
        """See Contender.size; without the dense layer's own copy of the weights."""
        files = self.head.manifest.files
        return sum(entry.size for name, entry in files.items() if name.endswith(".bin") and "columns" not in name)


# Heads that are their own reference learn another softmax: the given layer's best classes are no truth for them.
CONTENDERS = tuple(
    type(
        f"Ours_{name}",
        (Ours,),
        {"method": name, "name": f"shortlist {name}", "revision": REVISIONS.get(name, "")},
    )
    for name, method in METHODS.items()
    if method.reference == "dense"
)
