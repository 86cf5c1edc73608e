"""A weight matrix's way: fit -> graphs -> bundle -> verify, all of it or nothing."""

from __future__ import annotations

import datetime
import json
import logging
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save
from shortlist.bundle import CALIBRATION, INDEX, LABELS, Bundle, seal, version_of, writing
from shortlist.canary import CANARY_K, check_canary
from shortlist.crossover import crossover
from shortlist.errors import BadInput, QualityError
from shortlist.head import Head
from shortlist.manifest import Manifest, Quality
from shortlist.repository import check_name
from shortlist.runtime import ort
from shortlist_models import FullSoftmax

from .dense_graphs import write_dense, write_rows
from .methods import Fitted, Method, method_named
from .methods.base import Progress, quiet, torch_dense
from .report.figures import HELD_OUT
from .report.samples import Sample
from .report.write import write_report
from .sources import Contexts, Dense, check_pair
from .splits import split
from .verify import DEPTH, Truth, measure, truth_of

CANARY_ROWS = 64
GRAPHS = "graphs"
SEEDS = 1 << 63  # torch takes no larger ones
log = logging.getLogger(__name__)

PACKAGES = ("shortlist", "torch", "onnx", "onnxruntime", "onnxruntime-gpu", "numpy", "safetensors")


@dataclass(frozen=True)
class Request:
    """What to export.

    promise: least P@k by k, on held-out contexts. keep_dense: with dense.onnx. fallback: large requests, from where
    it is faster, are answered by dense. report: with the page about it.
    """

    method: str = "svd"
    options: dict[str, str] = field(default_factory=dict)
    promise: dict[int, float] = field(default_factory=dict)
    labels: list[str] | None = None
    keep_dense: bool = True
    fallback: bool = True
    max_k: int | None = None
    threads: int | None = None
    seed: int = 0
    report: bool = False


def export(dense: Dense, contexts: Contexts, out: Path, request: Request, progress: Progress = quiet) -> Manifest:
    """Fit a head and write it to `out` (`<name>/<version>`); returns its manifest.

    `progress` gets (stage, done, total). Raises BadInput, VersionExists, QualityError (nothing is left behind in
    any of these cases), BundleError.
    """
    check_request(dense, contexts, out, request)
    method = method_named(request.method)
    fit_rows, held_rows = split(contexts, request.seed)
    held = contexts.contexts[held_rows]
    with writing(out) as folder:
        progress("fit", 0, 1)
        fitted = method.fit(dense, contexts.contexts[fit_rows], request.options, request.seed, progress)
        progress("graphs", 0, 1)
        graphs = write_graphs(folder, dense, method, fitted, keep_dense=request.keep_dense)
        write_index(folder, method.index(fitted))
        draft = manifest_of(dense, contexts, out, request, method, fitted, graphs)
        truth = truth_of(torch_dense(dense), held, min(DEPTH, draft.max_k), counter(progress, "dense answers", held))
        manifest = finish(folder, draft, request, fitted, truth, torch_dense(dense), progress)
        if request.report:
            documents = None if contexts.documents is None else contexts.documents[held_rows]
            add_report(folder, out, request, Sample(HELD_OUT, held, truth, documents), progress)
        return manifest


def check_request(dense: Dense, contexts: Contexts, out: Path, request: Request) -> None:
    """Refuse before any work what could not succeed."""
    ort()  # what the finished bundle is measured with
    version_of(out)
    check_name(out.parent.name)
    check_pair(dense, contexts)
    real = dense.classes - dense.padded.size
    if real < 1:
        raise BadInput("every row of the weight is marked as padding: there is no class to answer with")
    if request.max_k is not None and not 1 <= request.max_k <= real:
        raise BadInput(f"max_k is {request.max_k} but the layer has {real} classes: choose 1 to {real}")
    if not 0 <= request.seed < SEEDS:
        raise BadInput(f"seed is {request.seed}: give a whole number from 0, under 2**63")
    for k, least in request.promise.items():
        if not 0 < least <= 1:
            raise BadInput(f"P@{k} is to reach {least}: give a share over 0, up to 1")
    if request.method == "full" and not request.keep_dense:
        raise BadInput("--no-dense leaves nothing of method full: choose another method")
    if request.labels is not None and len(request.labels) != dense.classes:
        raise BadInput(f"there are {len(request.labels)} labels for {dense.classes} classes: give one for each")


def write_graphs(folder: Path, dense: Dense, method: Method, fitted: Fitted, *, keep_dense: bool) -> dict[str, str]:
    """All graphs of the bundle; role -> path below `folder`."""
    graphs = folder / GRAPHS
    graphs.mkdir()
    roles = {"rows": write_rows(graphs, dense)} | method.graphs(fitted, dense, graphs)
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
    method: Method,
    fitted: Fitted,
    graphs: dict[str, str],
) -> Manifest:
    """The manifest before anything was measured."""
    return Manifest(
        name=out.parent.name,
        version=version_of(out),
        method=request.method,
        plan=method.plan,
        reference=method.reference,
        classes=dense.classes,
        dim=dense.dim,
        dtype=dense.dtype,
        max_k=request.max_k or dense.classes - int(dense.padded.size),
        graphs=graphs,
        options=fitted.options,
        seed=request.seed,
        normalizer=method.normalizer,
        logit_scale=dense.logit_scale,
        soft_cap=dense.soft_cap,
        fallback=request.fallback,
        provenance=provenance(dense, contexts),
    )


def provenance(dense: Dense, contexts: Contexts) -> dict[str, object]:
    """Where the bundle came from: hashes of its inputs, versions, command line, UTC time."""
    return {
        "weights_sha256": dense.sha256,
        "contexts_sha256": contexts.sha256,
        "contexts_rows": len(contexts.contexts),
        "versions": {"python": platform.python_version()} | installed(),
        "command": sys.argv,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def installed() -> dict[str, str]:
    """Versions of the packages that made the bundle."""
    present = {distribution.metadata["Name"].lower() for distribution in metadata.distributions()}
    return {name: metadata.version(name) for name in PACKAGES if name in present}


def counter(
    progress: Progress, stage: str, rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> Callable[[int], None]:
    """A callback that adds up rows done in a stage."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        progress(stage, done, len(rows))

    return add


def finish(
    folder: Path,
    draft: Manifest,
    request: Request,
    fitted: Fitted,
    truth: Truth,
    dense: FullSoftmax,
    progress: Progress,
) -> Manifest:
    """Open the draft with the runtime, measure it, add calibration and labels, seal it, and load it once more."""
    (folder / "manifest.json").write_text(draft.sealed().model_dump_json(), "utf-8")
    head = Head(Bundle(folder, verify=False), "cpu", request.threads)
    quality = measure(head, dense, truth, fitted.cost, counter(progress, "held-out quality", truth.contexts))
    check_promise(quality, request.promise)
    write_calibration(folder, head, truth)
    if request.labels is not None:
        (folder / LABELS).write_text(json.dumps(request.labels), "utf-8")
    progress("dense crossover", 0, 1)
    found = crossover(head, head.plan, truth.contexts) if request.fallback else None
    final = draft.model_copy(update={"quality": quality, "dense_crossover": found})
    sealed = seal(folder, final)
    bundle = Bundle(folder)
    check_canary(Head(bundle, "cpu", request.threads), bundle)
    return sealed


def check_promise(quality: Quality, promise: dict[int, float]) -> None:
    """Raise QualityError when a promised P@k was not reached."""
    reached = {1: quality.p_at_1, 5: quality.p_at_5, 10: quality.p_at_10}
    for k, least in promise.items():
        if reached[k] < least:
            raise QualityError(
                f"P@{k} is {reached[k]:.4f} on {quality.rows} held-out contexts, under the {least} asked for: "
                "nothing was exported; use more candidates (--set full_view=...) or a wider preview (--set width=...)"
            )


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


def add_report(folder: Path, out: Path, request: Request, sample: Sample, progress: Progress) -> None:
    """Write report/ from the held-out rows. The bundle is good without: what goes wrong here is told, no more."""
    try:
        bundle = Bundle(folder, verify=False)
        head = Head(bundle, "cpu", request.threads)
        write_report(bundle, head, [sample], asked=request.promise, progress=progress)
    except Exception as error:
        log.warning("no report was written (%s): mend that, then run `shortlist report %s`", error, out)
