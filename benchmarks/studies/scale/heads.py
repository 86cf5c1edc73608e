"""Layers of random classes, and heads of them, whole and in shards; what was exported stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from shortlist.bundle.reader import Bundle
from shortlist.fleet.shards.shard_list import SHARDS_FILE
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.export.shard import export_shards
from shortlist_exporter.inputs.sources import Contexts, Dense

from .contexts import NAME, make_contexts

FIT_ROWS = 4_096
TIED = 4  # every fourth class equals the one before it: ties have to be broken as in one layer


def make_layer(classes: int, dim: int, *, tied: bool = False) -> Dense:
    """A layer [V, d] with a bias; with ties between neighbours, of which shards hold one each where they are cut."""
    random = np.random.default_rng(classes)
    weight = random.standard_normal((classes, dim), np.float32)
    weight /= np.float32(np.sqrt(dim))
    bias = random.standard_normal(classes, np.float32)
    if tied:
        last = classes - classes % TIED
        weight[1:last:TIED], bias[1:last:TIED] = weight[0:last:TIED], bias[0:last:TIED]
    return Dense(weight, bias)


def open_bundle(cache: Path, classes: int, dim: int, method: str, *, tied: bool = False) -> Bundle:
    """The bundle of such a layer, exported unless that was done."""
    folder = cache / f"{method}-{classes}x{dim}{'-tied' if tied else ''}" / NAME / "1"
    if not (folder / "manifest.json").exists():
        contexts = Contexts(make_contexts(FIT_ROWS, dim))
        request = Request(method=method, threads=1, certificate=False, fallback=False)
        export(make_layer(classes, dim, tied=tied), contexts, folder, request)
    return Bundle(folder, verify=False)


def open_shard_folder(bundle: Bundle, shards: int) -> Path:
    """The folder of so many shards of a bundle, exported unless that was done."""
    folder = bundle.folder.parents[1] / f"shards-{shards}"
    if not (folder / SHARDS_FILE).exists():
        dim = bundle.manifest.dim
        export_shards(bundle, shards, folder, Contexts(make_contexts(FIT_ROWS, dim)), threads=1)
    return folder
