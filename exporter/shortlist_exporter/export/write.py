"""The files of a bundle: graphs, index, manifest, calibration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save
from shortlist.bundle.class_sets import SETS_FOLDER, pack_set, write_set
from shortlist.bundle.manifest import Manifest, RawArray
from shortlist.bundle.names import NAME_ROLES, Names
from shortlist.bundle.reader import CALIBRATION_FILE, GRAPHS_FOLDER, INDEX_FILE, LABELS_FILE, parse_version_folder
from shortlist.core.results import IdArray
from shortlist.evaluation.canary import CANARY_K
from shortlist.evaluation.truth import Truth
from shortlist.head import Head
from shortlist.items.records import COSINE, POSITION

from shortlist_exporter.core.provenance import record_provenance
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.dense import write_dense, write_rows
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.methods.base import Fitted, Method

from .like import RECORD, record_request
from .request import Request

CALIBRATION_FILE_ROWS = 64
NAMES_FOLDER = "names"


def write_graphs(folder: Path, dense: Dense, method: Method, fitted: Fitted, *, keep_dense: bool) -> GraphFiles:
    """All graphs of the bundle, and the arrays for loops in their place, as seen from `folder`."""
    graphs = folder / GRAPHS_FOLDER
    graphs.mkdir()
    files = write_rows(graphs, dense) if method.reference == "dense" else GraphFiles()
    files |= method.write_graphs(fitted, dense, graphs)
    if keep_dense:
        files |= write_dense(graphs, dense)
    return files.below(GRAPHS_FOLDER)


def write_index(folder: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """Write index.safetensors, where the plan needs arrays."""
    if arrays:
        (folder / INDEX_FILE).write_bytes(save(arrays))  # save_file would hide it from all other users


def make_manifest(
    dense: Dense,
    contexts: Contexts,
    out: Path,
    request: Request,
    method: Method,
    fitted: Fitted,
    files: GraphFiles,
) -> Manifest:
    """The manifest of a bundle of which nothing was measured yet."""
    bundle = describe_bundle(dense, contexts, out, request)
    notes = [*contexts.notes, *fitted.notes]
    if notes:
        bundle["provenance"] |= {"notes": notes}
    return Manifest(
        **bundle,
        method=request.method,
        plan=method.plan,
        reference=method.reference,
        classes=dense.classes,
        dim=dense.dim,
        dtype=dense.dtype,
        **describe_files(files),
        settings=fitted.settings,
        fit=fitted.fit,
        normalizer=fitted.normalizer or method.normalizer,
        logit_scale=dense.logit_scale,
        soft_cap=dense.soft_cap,
    )


def describe_bundle(dense: Dense, contexts: Contexts, out: Path, request: Request) -> dict[str, Any]:
    """Keyword arguments for a manifest: the fields that do not depend on the head in the bundle at `out`."""
    items = {POSITION: request.item_position, COSINE: request.cosine}
    stated = {name: value for name, value in items.items() if value}
    return {
        "name": out.parent.name,
        "version": parse_version_folder(out),
        "max_k": request.max_k or dense.real_classes,
        "seed": request.seed,
        "fallback": request.fallback,
        "provenance": record_provenance(dense, contexts) | {RECORD: record_request(request)} | stated,
    }


def describe_files(files: GraphFiles) -> dict[str, Any]:
    """The fields of a manifest that name its files; exact answers are proved where the graph for it was written."""
    exact_plan = "certified" if "bounds" in files.graphs else None
    return {"graphs": files.graphs, "arrays": files.arrays, "exact_plan": exact_plan}


def write_calibration(folder: Path, head: Head, truth: Truth) -> None:
    """Write calibration.safetensors.

    Held-out contexts with the exact answers and the head's, which every load replays.
    """
    contexts = truth.contexts[:CALIBRATION_FILE_ROWS]
    top = head.topk_by_plan(contexts, min(CANARY_K, head.manifest.max_k))
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "contexts": contexts,
        **truth.first_rows(CALIBRATION_FILE_ROWS).to_tensors(),
        "head_ids": top.ids,
        "head_logprobs": top.logprobs,
    }
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}  # a part would be saved wrongly
    (folder / CALIBRATION_FILE).write_bytes(save(whole))


def write_names(folder: Path, names: Names | None) -> GraphFiles:
    """Write the names of classes, by which requests may ask, as arrays to be mapped."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    if names is not None:
        arrays = {role: getattr(names, field) for role, field in zip(NAME_ROLES, names._fields, strict=True)}
    files = {role: f"{NAMES_FOLDER}/{role}.bin" for role in arrays}
    for role, array in arrays.items():
        (folder / files[role]).parent.mkdir(exist_ok=True)
        array.tofile(folder / files[role])
    return GraphFiles({}, {role: RawArray.describe(files[role], array) for role, array in arrays.items()})


def write_sets(folder: Path, sets: Mapping[str, IdArray]) -> None:
    """Write the named sets of classes, by which requests may restrict their answers, as compressed bitmaps."""
    for name, ids in sets.items():
        write_set(folder / SETS_FOLDER, name, pack_set(ids))


def write_labels(folder: Path, labels: list[str] | None) -> None:
    """Write labels.json, the V printable names, where there are any."""
    if labels is not None:
        (folder / LABELS_FILE).write_text(json.dumps(labels), "utf-8")
