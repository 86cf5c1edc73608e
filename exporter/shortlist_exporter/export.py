"""A weight matrix's way: fit -> graphs -> bundle -> verify, all of it or nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from shortlist.bundle import CALIBRATION, GRAPHS, INDEX, LABELS, Bundle, seal, version_of, writing
from shortlist.canary import CANARY_K, check_canary
from shortlist.crossover import crossover
from shortlist.errors import BadInput, QualityError
from shortlist.head import Head
from shortlist.manifest import Manifest, Quality
from shortlist.repository import check_name
from shortlist.runtime import ort
from torch import nn

from .certificate import write_certificate
from .dense_graphs import write_dense, write_rows
from .formats import tensor_file, torch_file
from .methods import Fitted, Method, OwnMethod, method_named
from .methods.base import Progress, quiet, torch_dense
from .provenance import provenance
from .report.figures import HELD_OUT
from .report.samples import Sample
from .report.write import write_report
from .sources import Contexts, Dense, check_pair
from .splits import Rows, split
from .target_figures import target_quality
from .verify import DEPTH, Truth, certificate_of, measure, truth_of

CANARY_ROWS = 64
SEEDS = 1 << 63  # torch takes no larger ones
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """What to export.

    promise: least P@k by k, on held-out contexts. keep_dense: with dense.onnx. fallback: large requests, from where
    it is faster, are answered by dense. certificate: with what proves exact answers, a quarter of dense's size.
    report: with the page about it. head: a head of the method that was trained elsewhere, as a module or a file of
    its `state_dict`.
    """

    method: str = "svd"
    options: dict[str, str] = field(default_factory=dict)
    promise: dict[int, float] = field(default_factory=dict)
    labels: list[str] | None = None
    keep_dense: bool = True
    fallback: bool = True
    certificate: bool = True
    max_k: int | None = None
    threads: int | None = None
    seed: int = 0
    report: bool = False
    head: Path | nn.Module | None = None


def export(dense: Dense, contexts: Contexts, out: Path, request: Request, progress: Progress = quiet) -> Manifest:
    """Fit a head and write it to `out` (`<name>/<version>`); returns its manifest.

    `progress` gets (stage, done, total). Raises BadInput, VersionExists, QualityError (nothing is left behind in
    any of these cases), BundleError.
    """
    check_request(dense, contexts, out, request)
    method = method_named(request.method)
    fit_rows, held_rows = split(contexts, request.seed)
    held = part_of(contexts, held_rows)
    with writing(out) as folder:
        progress("fit", 0, 1)
        fitted = fitted_head(method, dense, part_of(contexts, fit_rows), request, progress)
        reference = torch_dense(dense) if method.reference == "dense" else fitted.module
        progress("graphs", 0, 1)
        graphs = write_graphs(folder, dense, method, fitted, keep_dense=request.keep_dense)
        if request.keep_dense and request.certificate and method.reference == "dense":
            progress("certificate", 0, 1)
            graphs |= write_certificate(folder, dense, contexts.contexts[fit_rows], request.seed)
        write_index(folder, method.index(fitted))
        draft = manifest_of(dense, contexts, out, request, method, fitted, graphs)
        count = counter(progress, "exact answers", held.contexts)
        truth = truth_of(reference, held.contexts, min(DEPTH, draft.max_k), count, held.targets)
        manifest = finish(folder, draft, request, fitted, truth, reference, torch_dense(dense), progress)
        if request.report:
            documents = None if contexts.documents is None else contexts.documents[held_rows]
            add_report(folder, out, request, Sample(HELD_OUT, held.contexts, truth, documents), progress)
        return manifest


def part_of(contexts: Contexts, rows: Rows) -> Contexts:
    """Some rows, with their targets."""
    targets = None if contexts.targets is None else contexts.targets[rows]
    return Contexts(contexts.contexts[rows], targets)


def fitted_head(
    method: Method | OwnMethod, dense: Dense, examples: Contexts, request: Request, progress: Progress
) -> Fitted:
    """Fitted to the dense layer; or trained on its own, here or elsewhere."""
    if not isinstance(method, OwnMethod):
        return method.fit(dense, examples.contexts, request.options, request.seed, progress)
    if request.head is None:
        return method.learn(dense, examples, request.options, request.seed, progress)
    return method.restore(dense, state_of(request.head), examples, request.options)


def state_of(head: Path | nn.Module) -> dict[str, torch.Tensor]:
    """Tensors of a module, of a safetensors file, or of a state dict saved by torch; raises NotFound, BadInput."""
    if isinstance(head, Path):
        torch_made = head.is_file() and head.suffix in (".pt", ".pth", ".bin")
        read = torch_file.read_tensors(head) if torch_made else tensor_file.read_tensors(head, "weight")
        return dict(read.tensors)
    return {name: value.detach().cpu() for name, value in head.state_dict().items()}


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
    check_options(dense, request)


def check_options(dense: Dense, request: Request) -> None:
    """What the request's own fields must be."""
    if request.head is not None and not isinstance(method_named(request.method), OwnMethod):
        raise BadInput(f"method {request.method} is fitted to the dense layer: leave --head out")
    for k, least in request.promise.items():
        if not 0 < least <= 1:
            raise BadInput(f"P@{k} is to reach {least}: give a share over 0, up to 1")
    if request.method == "full" and not request.keep_dense:
        raise BadInput("--no-dense leaves nothing of method full: choose another method")
    if request.labels is not None and len(request.labels) != dense.classes:
        raise BadInput(f"there are {len(request.labels)} labels for {dense.classes} classes: give one for each")


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
        normalizer=fitted.normalizer or method.normalizer,
        logit_scale=dense.logit_scale,
        soft_cap=dense.soft_cap,
        fallback=request.fallback,
        provenance=provenance(dense, contexts) | ({"notes": list(fitted.notes)} if fitted.notes else {}),
    )


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
    reference: nn.Module,
    dense: nn.Module,
    progress: Progress,
) -> Manifest:
    """Open the draft with the runtime, measure it, add calibration and labels, seal it, and load it once more."""
    (folder / "manifest.json").write_text(draft.sealed().model_dump_json(), "utf-8")
    head = Head(Bundle(folder, verify=False), "cpu", request.threads)
    quality = measure(head, reference, truth, fitted.cost, counter(progress, "held-out quality", truth.contexts))
    if draft.reference == "self":
        beside = target_quality(head, reference, dense, fitted.retrained, truth)
        quality = quality.model_copy(update={"targets": beside})
    check_promise(quality, request.promise)
    write_calibration(folder, head, truth)
    if request.labels is not None:
        (folder / LABELS).write_text(json.dumps(request.labels), "utf-8")
    progress("dense crossover", 0, 1)
    large = request.fallback and draft.reference == "dense"
    measured = {
        "quality": quality,
        "dense_crossover": crossover(head, head.plan, truth.contexts) if large else None,
        "certificate": certificate_of(head, truth.contexts, fallback=request.fallback),
    }
    final = draft.model_copy(update=measured)
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
