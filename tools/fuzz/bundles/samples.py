"""Small bundles of every method, with all the arrays and graphs that a bundle can have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.graphs import certificate
from shortlist_exporter.inputs.sources import Dense

from tests.support.heads import adaptive, ds, mixtape
from tests.support.layers import make_contexts, make_dense

CLASSES, DIM = 1100, 20  # so many classes that compiled loops map the rows, in the place of small graphs
PADDED = np.array([5, 1099])

CLUSTERS = {"clusters": "5", "budget": "60", "train": "false", "background": "0"}
L2S = CLUSTERS | {"probes": "2", "second_probe": "0.3"}
STAGED = CLUSTERS | {"second_stage": "int8", "width": "8"}
GROUPED = {"width": "12", "groups": "20", "previewed": "400", "candidates": "140"}
APPROXIMATIONS: dict[str, tuple[str, dict[str, str]]] = {  # name -> method of a given layer, its options
    "full": ("full", {}),
    "svd": ("svd", {"basis": "context", "width": "6", "full_view": "60"}),
    "svd-published": ("svd", {}),
    "cascade": ("cascade", {"common": "0.5"}),
    "grouped": ("grouped", GROUPED),
    "grouped-int8": ("grouped", GROUPED | {"int8_width": "12", "groups": "90"}),
    "l2s": ("l2s", L2S | {"fallback": "0.2"}),
    "l2s-tail": ("l2s", L2S | {"tail_rank": "3"}),
    "l2s-staged": ("l2s", STAGED),
    "l2s-terms": ("l2s", STAGED | {"tail_terms": "6"}),
}


def write_samples(root: Path) -> list[Path]:
    """Export all of them below `root`; returns their folders. Proofs are written for layers of any size meanwhile."""
    smallest, certificate.MIN_WEIGHTS = certificate.MIN_WEIGHTS, 0
    try:
        for name, (method, options) in APPROXIMATIONS.items():
            write_approximation(root / name / "1", method, options)
        write_trained_heads(root)
    finally:
        certificate.MIN_WEIGHTS = smallest
    return sorted(path.parent for path in root.glob("*/1/manifest.json"))


def write_approximation(out: Path, method: str, options: dict[str, str]) -> None:
    """A head of one layer, with labels or without dense for some of them."""
    labels = [f"word {i}" for i in range(CLASSES)] if method == "svd" else None
    request = Request(method, options, threads=1, labels=labels, fallback=method == "full")
    layer, contexts = make_layer(plain=out.parent.name == "cascade"), make_contexts(500, DIM)
    export(layer, contexts, out, replace(request, keep_dense=out.parent.name != "l2s-tail"))


def make_layer(*, plain: bool) -> Dense:
    """A layer; if not `plain`, with bias, logit scale, soft-cap, padding."""
    if plain:
        return make_dense(CLASSES, DIM)
    bias = np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32)
    return make_dense(CLASSES, DIM, bias=bias, logit_scale=0.7, soft_cap=30.0, padded=PADDED)


def write_trained_heads(root: Path) -> None:
    """Heads that are their own reference."""
    ds_forms: dict[str, tuple[str, dict[str, str]]] = {
        "ds": ("ds", {}), "ds-int8": ("ds", {"int8": "true"}), "ds-svd": ("ds-svd", ds.SVD),
    }  # fmt: skip
    for name, (method, options) in ds_forms.items():
        request = Request(method, options, threads=1, head=ds.make_module())
        export(ds.dense, ds.contexts, root / name / "1", request)
    adaptive_forms = adaptive.FORMS | {
        "adaptive-svd": ("adaptive", adaptive.OPTIONS | {"preview": "2", "full_view": "10"})
    }
    for name, (method, options) in adaptive_forms.items():
        out = root / name.replace(" ", "-") / "1"
        export(adaptive.dense, adaptive.examples, out, Request(method, options, threads=1))
    mixtape.write(root / "mixtape" / "1", "loops", mixtape.make_module(*mixtape.SIZES["loops"]))
