"""A bundle cut into bundles of class ranges, each fitted anew to its part of the layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from shortlist.bundle.class_sets import SETS_FOLDER, list_set_names, make_path, write_set
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import Names
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.errors import BadInput, VersionExists
from shortlist.fleet.shards.ranges import ClassRange, cut_classes
from shortlist.fleet.shards.shard_list import SHARDS_FILE, ShardEntry, ShardList

from shortlist_exporter.core.types import Progress, quiet
from shortlist_exporter.inputs.sampled import normalize_contexts
from shortlist_exporter.inputs.sources import Contexts, Dense

from .like import load_like_layer, make_like_request
from .request import Request, limit_classes
from .run import export


def export_shards(
    bundle: Bundle,
    shards: int,
    out: Path,
    contexts: Contexts | None = None,
    threads: int | None = None,
    progress: Progress = quiet,
) -> list[Manifest]:
    """Cut a bundle and write `out`/<name>-<i>-of-<n>/<version>, `out`/shards.json and named sets; returns manifests.

    contexts: to fit on; by default the rows that the bundle carries for its canary. progress: gets (stage, done, total)
    of each shard's export. Raises BadInput where the head is its own reference, VersionExists before anything is fitted
    where a cut that did not end left shards, and as `export` does.
    """
    check_cut(bundle, out)
    dense, request = load_like_layer(bundle), make_like_request(bundle)
    parts = cut_classes(dense.classes, shards)
    places = [f"{bundle.manifest.name}-{number}-of-{shards}/{bundle.manifest.version}" for number in range(shards)]
    check_places(out, places)
    sample = contexts or Contexts(bundle.tensors(CALIBRATION_FILE)["contexts"].astype(np.float32))
    sample = normalize_contexts(sample) if request.cosine else sample
    entries, manifests = [], []
    for number, (part, place) in enumerate(zip(parts, places, strict=True)):
        layer = cut_layer(dense, part)
        part_request = replace(cut_request(request, part, layer.real_classes), threads=threads)
        manifests.append(export(layer, sample, out / place, part_request, name_stages(progress, number, shards)))
        entries.append(ShardEntry(bundle=place, digest=manifests[-1].digest, start=part.start, stop=part.stop))
    copy_sets(bundle, out)
    write_list(bundle, entries, out)
    return manifests


def name_stages(progress: Progress, number: int, shards: int) -> Progress:
    """Progress of one shard's export: its stages say which shard they are of."""
    return lambda stage, done, total: progress(f"shard {number + 1} of {shards}: {stage}", done, total)


def check_cut(bundle: Bundle, out: Path) -> None:
    """Raise BadInput where a bundle cannot be cut, or `out` has a shards.json."""
    manifest = bundle.manifest
    if manifest.reference != "dense":
        raise BadInput(
            f"{bundle.folder} is of method {manifest.method}, whose own softmax was trained over all classes together: "
            "only heads that approximate a dense layer can be cut"
        )
    if (out / SHARDS_FILE).exists():
        raise BadInput(f"{out / SHARDS_FILE} is there already: give another folder with --out")


def check_places(out: Path, places: list[str]) -> None:
    """Raise VersionExists where a shard's folder is there: else the export of the shards before it would be in vain."""
    for folder in (out / place for place in places):
        if folder.exists():
            raise VersionExists(f"{folder} is of a cut that did not end: delete it, or give another folder with --out")


def cut_layer(dense: Dense, part: ClassRange) -> Dense:
    """The classes of one range."""
    padded = dense.padded[(dense.padded >= part.start) & (dense.padded < part.stop)] - part.start
    bias = None if dense.bias is None else dense.bias[part.start : part.stop].copy()
    return replace(dense, weight=dense.weight[part.start : part.stop].copy(), bias=bias, padded=padded)


def cut_request(request: Request, part: ClassRange, classes: int) -> Request:
    """The request for one range of so many real classes: as for the whole, but nothing is promised of a part.

    Sets hold classes of the whole layer: `copy_sets` puts them beside all shards.
    """
    labels = None if request.labels is None else request.labels[part.start : part.stop]
    ids = np.arange(part.start, part.stop)
    names = None if request.names is None else Names.make(request.names.read(ids).tolist())
    return replace(limit_classes(request, classes), promise={}, labels=labels, names=names, sets={})


def copy_sets(bundle: Bundle, out: Path) -> None:
    """Copy the named sets of the bundle, and those beside its versions, which stand before them, to `out`/sets."""
    for folder in (bundle.folder / SETS_FOLDER, bundle.folder.parent / SETS_FOLDER):
        for name in list_set_names(folder):
            write_set(out / SETS_FOLDER, name, make_path(folder, name).read_bytes())


def write_list(bundle: Bundle, entries: list[ShardEntry], out: Path) -> None:
    """Write shards.json, once all shards are there."""
    manifest = bundle.manifest
    shard_list = ShardList(
        name=manifest.name,
        version=manifest.version,
        classes=manifest.classes,
        dim=manifest.dim,
        max_k=manifest.max_k,
        source=manifest.digest,
        shards=entries,
    )
    part = out / f".{SHARDS_FILE}"
    part.write_text(shard_list.model_dump_json(indent=1), "utf-8")
    part.rename(out / SHARDS_FILE)
