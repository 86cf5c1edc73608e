"""A weight matrix's way: fit -> graphs -> bundle -> verify, all of it or nothing."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import torch
from shortlist.bundle.manifest import Manifest, Quality
from shortlist.bundle.reader import LABELS, Bundle
from shortlist.bundle.writer import seal, writing
from shortlist.errors import QualityError
from shortlist.evaluation.canary import check_canary
from shortlist.evaluation.truth import Truth, compute_truth
from shortlist.head import Head
from torch import nn

from shortlist_exporter.core.layer import torch_dense
from shortlist_exporter.core.torch_scores import rank_by_module
from shortlist_exporter.core.types import Progress, count_rows, quiet
from shortlist_exporter.graphs.bounds import write_certificate
from shortlist_exporter.inputs.formats import tensor_file, torch_file
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.inputs.splits import Rows, split_held_out
from shortlist_exporter.methods.registry import Fitted, Method, OwnMethod, method_named
from shortlist_exporter.records.report import HELD_OUT
from shortlist_exporter.report.measure.samples import Sample
from shortlist_exporter.report.write import write_report
from shortlist_exporter.verify.quality import TRUE_CLASSES, measure_certificate, measure_quality
from shortlist_exporter.verify.targets import measure_target_quality

from .request import Request, check_request
from .write import manifest_of, write_calibration, write_graphs, write_index

log = logging.getLogger(__name__)


def export(dense: Dense, contexts: Contexts, out: Path, request: Request, progress: Progress = quiet) -> Manifest:
    """Fit a head and write it to `out` (`<name>/<version>`); returns its manifest.

    `progress` gets (stage, done, total). Raises BadInput, VersionExists, QualityError (nothing is left behind in
    any of these cases), BundleError.
    """
    check_request(dense, contexts, out, request)
    method = method_named(request.method)
    fit_rows, held_rows = split_held_out(contexts, request.seed)
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
        count = count_rows(progress, "exact answers", held.contexts)
        truth = compute_truth(
            rank_by_module(reference, held.contexts),
            held.contexts,
            min(TRUE_CLASSES, draft.max_k),
            progress=count,
            targets=held.targets,
        )
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
    quality = measure_quality(
        head, reference, truth, fitted.cost, count_rows(progress, "held-out quality", truth.contexts)
    )
    if draft.reference == "self":
        beside = measure_target_quality(head, reference, dense, fitted.retrained, truth)
        quality = quality.model_copy(update={"targets": beside})
    check_promise(quality, request.promise)
    write_calibration(folder, head, truth)
    if request.labels is not None:
        (folder / LABELS).write_text(json.dumps(request.labels), "utf-8")
    progress("dense crossover", 0, 1)
    large = request.fallback and draft.reference == "dense"
    measured = {
        "quality": quality,
        "dense_crossover": head.crossover(head.plan, truth.contexts) if large else None,
        "certificate": measure_certificate(head, truth.contexts, fallback=request.fallback),
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


def add_report(folder: Path, out: Path, request: Request, sample: Sample, progress: Progress) -> None:
    """Write report/ from the held-out rows. The bundle is good without: what goes wrong here is told, no more."""
    try:
        bundle = Bundle(folder, verify=False)
        head = Head(bundle, "cpu", request.threads)
        write_report(bundle, head, [sample], asked=request.promise, progress=progress)
    except Exception as error:
        log.warning("no report was written (%s): mend that, then run `shortlist report %s`", error, out)
