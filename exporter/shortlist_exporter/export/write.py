"""The files of a bundle: graphs, index, manifest, calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.reader import CALIBRATION, GRAPHS, INDEX, version_of
from shortlist.evaluation.canary import CANARY_K
from shortlist.evaluation.truth import Truth
from shortlist.head import Head

from shortlist_exporter.core.provenance import describe_provenance
from shortlist_exporter.graphs.dense import write_dense, write_rows
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.methods.registry import Fitted, Method, OwnMethod

from .request import Request

CANARY_ROWS = 64


def write_graphs(
    folder: Path, dense: Dense, method: Method | OwnMethod, fitted: Fitted, *, keep_dense: bool
) -> dict[str, str]:
    """All graphs of the bundle; role -> path below `folder`."""
    graphs = folder / GRAPHS
    graphs.mkdir()
    rows = {"rows": write_rows(graphs, dense)} if method.reference == "dense" else {}
    roles = rows | method.graphs(fitted, dense, graphs)
    if keep_dense:
        roles["dense"] = write_dense(graphs, dense)
    return {role: f"{GRAPHS}/{name}" for role, name in roles.items()}


def write_index(folder: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    """index.safetensors, where the plan wants one."""
    if arrays:
        (folder / INDEX).write_bytes(save(arrays))  # save_file would hide it from all other users


def manifest_of(
    dense: Dense,
    contexts: Contexts,
    out: Path,
    request: Request,
    method: Method | OwnMethod,
    fitted: Fitted,
    graphs: dict[str, str],
) -> Manifest:
    """The manifest before anything was measured."""
    bundle = describe_bundle(dense, contexts, out, request)
    if fitted.notes:
        bundle["provenance"] |= {"notes": list(fitted.notes)}
    return Manifest(
        **bundle,
        method=request.method,
        plan=method.plan,
        reference=method.reference,
        classes=dense.classes,
        dim=dense.dim,
        dtype=dense.dtype,
        graphs=graphs,
        options=fitted.options,
        normalizer=fitted.normalizer or method.normalizer,
        logit_scale=dense.logit_scale,
        soft_cap=dense.soft_cap,
    )


def describe_bundle(dense: Dense, contexts: Contexts, out: Path, request: Request) -> dict[str, Any]:
    """The fields of a manifest that are of the bundle at `out`, whatever head is in it; as keyword arguments."""
    return {
        "name": out.parent.name,
        "version": version_of(out),
        "max_k": request.max_k or dense.classes - int(dense.padded.size),
        "seed": request.seed,
        "fallback": request.fallback,
        "provenance": describe_provenance(dense, contexts),
    }


def write_calibration(folder: Path, head: Head, truth: Truth) -> None:
    """Held-out contexts, their exact answers, and the head's own: what a load replays."""
    contexts = truth.contexts[:CANARY_ROWS]
    own = head.topk_by_plan(contexts, min(CANARY_K, head.manifest.max_k))
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "contexts": contexts,
        "ids": truth.ids[:CANARY_ROWS],
        "logprobs": truth.logprobs[:CANARY_ROWS],
        "head_ids": own.ids,
        "head_logprobs": own.logprobs,
    }
    (folder / CALIBRATION).write_bytes(save(tensors))
