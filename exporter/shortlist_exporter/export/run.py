"""A weight matrix's way from sources to a sealed bundle, all of it or nothing; `export` is the list of its stages."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import torch
from shortlist.bundle.manifest import MANIFEST_FILE, Manifest, Quality
from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import GroupedSettings
from shortlist.bundle.writer import seal, write_version
from shortlist.errors import QualityError
from shortlist.evaluation.canary import check_canary
from shortlist.evaluation.truth import TRUTH_CHUNK_ROWS, Truth, compute_truth
from shortlist.head import Head
from shortlist.plans.common.crossover import ALWAYS_SLOWER, keep_single_rows
from shortlist.plans.grouped import GroupedPlan
from shortlist_models import FullSoftmax
from torch import nn

from shortlist_exporter.core.torch_scores import rank_by_module
from shortlist_exporter.core.types import Progress, count_rows, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.certificate import write_certificate
from shortlist_exporter.inputs.formats import tensor_file, torch_file
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.inputs.splits import select_rows, shuffle_documents, split_held_out
from shortlist_exporter.methods.base import DenseMethod, Fitted, Method, TrainedMethod
from shortlist_exporter.methods.grouped import GroupedMethod
from shortlist_exporter.methods.registry import find_method
from shortlist_exporter.records.report import HELD_OUT
from shortlist_exporter.report.measure.samples import Sample
from shortlist_exporter.report.write import write_report
from shortlist_exporter.verify.effort import EFFORT_DEPTHS, fit_efforts
from shortlist_exporter.verify.list_effort import fit_list_effort
from shortlist_exporter.verify.look_widths import choose_widths
from shortlist_exporter.verify.quality import (
    TRUE_CLASSES,
    answer_held_out,
    measure_certificate,
    measure_list_costs,
    measure_quality,
)
from shortlist_exporter.verify.targets import measure_target_quality

from .request import Request, check_request
from .write import make_manifest, write_calibration, write_graphs, write_index, write_labels, write_names, write_sets

MAX_CHUNK_LOGITS = 1 << 25  # of exact answers at once
CALIBRATION_ROWS = 500  # at least, as far as they are at most half of the fit rows
MIN_CALIBRATION_ROWS = 200  # fewer say too little of rare misses
NO_PROMISE = (
    f"no promise of precision was made: it takes {2 * MIN_CALIBRATION_ROWS} different contexts beside those held out, "
    "of which half calibrate it, and compiled loops"
)
LOW_PRECISION = 0.98  # P@1 under which an export says so

log = logging.getLogger(__name__)


def export(dense: Dense, contexts: Contexts, out: Path, request: Request, progress: Progress = quiet) -> Manifest:
    """Fit a head and write it to `out` (`<name>/<version>`); returns its manifest.

    `progress` gets (stage, done, total). Raises BadInput, VersionExists, QualityError (nothing is left behind in
    any of these cases), BundleError.
    """
    # Inputs: refuse what cannot succeed, hold some contexts out
    check_request(dense, contexts, out, request)
    method = find_method(request.method)
    fit_rows, held_rows = split_held_out(contexts, request.seed)
    fit_sample, held_out = select_rows(contexts, fit_rows), select_rows(contexts, held_rows)
    with write_version(out) as folder:
        # Fit the head to the dense layer, or train it; a promise is calibrated on contexts of its own
        fit_sample, calibration = split_calibration(method, fit_sample, request)
        fitted = fit_head(method, dense, fit_sample, request, progress)
        # Write its graphs, what proves exact answers, its index, and a manifest before anything was measured
        progress("graphs", 0, 1)
        files = write_graphs(folder, dense, method, fitted, keep_dense=request.keep_dense)
        files |= add_certificate(folder, dense, method, fitted, fit_sample, request, progress)
        files |= write_names(folder, request.names)
        write_index(folder, method.make_index(fitted))
        draft = make_manifest(dense, contexts, out, request, method, fitted, files)
        if method.reference == "dense":
            fitted = replace(fitted, module=dense.module)  # all that is measured is on disk: its tensors may go
        draft = keep_promise(folder, draft, request, dense.module, calibration, progress)
        # Verify it with the service's own runtime on the held-out contexts, and seal it
        reference = dense.module if method.reference == "dense" else fitted.module
        truth = find_truth(reference, held_out, max(min(TRUE_CLASSES, draft.max_k), *request.at, 1), progress)
        sample = Sample(HELD_OUT, held_out.contexts, truth, held_out.documents, held_out.kind_rows)
        manifest = verify_and_seal(folder, draft, request, fitted, sample, reference, dense.module, progress)
        # Report
        if request.report:
            add_report(folder, out, request, sample, progress)
        return manifest


def split_calibration(method: Method, fit_sample: Contexts, request: Request) -> tuple[Contexts, Contexts | None]:
    """The contexts to fit on, and those that calibrate a promise; None where none is made or they are too few."""
    if not wants_promise(method, request):
        return fit_sample, None
    half = len(fit_sample.contexts) // 2
    if half < MIN_CALIBRATION_ROWS:
        return fit_sample, None
    shuffled = shuffle_documents(fit_sample, request.seed)  # so that all kinds of text are among them
    least = min(CALIBRATION_ROWS, half)
    fit_rows, rows = split_held_out(shuffled, request.seed, least)
    if len(fit_rows) < half:  # one document holds most rows: it is cut
        shuffled = replace(shuffled, documents=None)
        fit_rows, rows = split_held_out(shuffled, request.seed, least)
    if len(rows) < MIN_CALIBRATION_ROWS:  # contexts that repeat count once
        return fit_sample, None
    return select_rows(shuffled, fit_rows), select_rows(shuffled, rows)


def wants_promise(method: Method, request: Request) -> bool:
    """Whether the request asks for a head that keeps a promise, by its own count or the default one."""
    return isinstance(method, GroupedMethod) and method.find_promise(request.options) is not None


def keep_promise(
    folder: Path,
    draft: Manifest,
    request: Request,
    dense: FullSoftmax,
    calibration: Contexts | None,
    progress: Progress,
) -> Manifest:
    """The draft with effort by the row, fitted to `calibration`; as it is without, and where graphs must answer."""
    if calibration is None:
        return draft
    (folder / MANIFEST_FILE).write_text(draft.with_digest().model_dump_json(), "utf-8")
    plan = Head(Bundle(folder, verify=False), "cpu", request.threads).plan
    if not isinstance(plan, GroupedPlan) or plan.compiled is None:
        return draft
    progress("effort", 0, 1)
    truth = find_truth(dense, calibration, min(max(EFFORT_DEPTHS), draft.max_k), progress)
    settings = calibrate_effort(plan, dense, truth, request)
    return draft.model_copy(update={"settings": settings})


def calibrate_effort(plan: GroupedPlan, dense: FullSoftmax, truth: Truth, request: Request) -> GroupedSettings:
    """The plan's settings with a promise and what keeps it. truth: of rows that the head has not seen."""
    promise = GroupedMethod().find_promise(request.options)
    assert promise is not None, "calibration is for a promise"
    plan = plan.with_settings(choose_widths(plan, truth, promise))
    changes = {
        "promise": promise,
        **fit_efforts(plan, truth),
        "list_effort": fit_list_effort(plan, dense, truth.contexts, request.seed),
    }
    return GroupedSettings.model_validate(plan.settings.model_dump() | changes)


def fit_head(
    method: DenseMethod | TrainedMethod, dense: Dense, examples: Contexts, request: Request, progress: Progress
) -> Fitted:
    """Fit the head to the dense layer, train it on its own, or restore one that was trained elsewhere."""
    progress("fit", 0, 1)
    if not isinstance(method, TrainedMethod):
        return method.fit(dense, examples.contexts, request.options, request.seed, progress)
    if request.head is None:
        return method.learn(dense, examples, request.options, request.seed, progress)
    return method.restore(dense, load_state(request.head), examples, request.options)


def load_state(head: Path | nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a module, a safetensors file, or a state dict saved by torch; raises NotFound, BadInput."""
    if isinstance(head, Path):
        is_torch_file = head.is_file() and head.suffix in (".pt", ".pth", ".bin")
        read = torch_file.read_torch_tensors(head) if is_torch_file else tensor_file.read_tensors(head, "weight")
        return dict(read.tensors)
    return {name: value.detach().cpu() for name, value in head.state_dict().items()}


def add_certificate(
    folder: Path,
    dense: Dense,
    method: Method,
    fitted: Fitted,
    fit_sample: Contexts,
    request: Request,
    progress: Progress,
) -> GraphFiles:
    """Write what proves exact answers, where the request asks for it and the bundle has what they are exact for."""
    if not request.certificate or (method.reference == "dense" and not request.keep_dense):
        return GraphFiles()
    proved = method.find_proved_layer(fitted, dense, fit_sample.contexts)
    if proved is None:
        return GraphFiles()
    progress("certificate", 0, 1)
    return write_certificate(folder, *proved, request.seed)


def find_truth(reference: nn.Module, held_out: Contexts, depth: int, progress: Progress) -> Truth:
    """The `depth` best classes that the reference gives each of the held-out contexts, exactly."""
    count = count_rows(progress, "exact answers", held_out.contexts)
    classes = reference.weight.shape[0] if isinstance(reference, FullSoftmax) else 1
    return compute_truth(
        rank_by_module(reference, held_out.contexts),
        held_out.contexts,
        depth,
        step=max(1, min(TRUTH_CHUNK_ROWS, MAX_CHUNK_LOGITS // classes)),
        progress=count,
        targets=held_out.targets,
    )


def verify_and_seal(
    folder: Path,
    draft: Manifest,
    request: Request,
    fitted: Fitted,
    sample: Sample,
    reference: nn.Module,
    dense: nn.Module,
    progress: Progress,
) -> Manifest:
    """Open the drafted bundle with the service's runtime, measure it, add calibration and labels, seal it, load it.

    sample: the contexts held out, with their truth by `reference`. dense: the dense layer, beside
    which targets are counted. Raises QualityError where the request's promise is not kept.
    """
    assert sample.truth is not None, "the reference is there while a bundle is made"
    (folder / MANIFEST_FILE).write_text(draft.with_digest().model_dump_json(), "utf-8")
    head = Head(Bundle(folder, verify=False), "cpu", request.threads)
    truth = sample.truth.first_classes(min(TRUE_CLASSES, draft.max_k))
    count = count_rows(progress, "held-out quality", truth.contexts)
    answers = answer_held_out(head, truth.contexts, request.at, count)
    quality = measure_quality(answers, reference, sample.truth, sample.kinds, fitted.cost, request.at)
    if draft.reference == "self":
        beside = measure_target_quality(answers, reference, dense, fitted.retrained, truth)
        quality = quality.model_copy(update={"targets": beside})
    check_promise(quality, request)
    write_calibration(folder, head, truth)
    write_labels(folder, request.labels)
    write_sets(folder, request.sets)
    progress("dense crossover", 0, 1)
    large = request.fallback and draft.reference == "dense"
    crossover = head.measure_crossover(head.plan, truth.contexts) if large else None
    figures = {
        "quality": quality,
        "dense_crossover": keep_single_rows(crossover),
        "list_costs": measure_list_costs(head, truth.contexts),
        "certificate": measure_certificate(head, truth.contexts, fallback=request.fallback),
        "provenance": draft.provenance | add_notes(draft, request, quality, crossover),
    }
    manifest = seal(folder, draft.model_copy(update=figures))
    bundle = Bundle(folder)
    check_canary(Head(bundle, "cpu", request.threads), bundle)
    return manifest


def add_notes(draft: Manifest, request: Request, quality: Quality, crossover: int | None) -> dict[str, list[str]]:
    """The draft's notes and those that measuring gave, if any: each a sentence that the export prints too."""
    notes, method = list(draft.provenance.get("notes", [])), find_method(request.method)
    if wants_promise(method, request) and not getattr(draft.settings, "promise", None):
        notes.append(NO_PROMISE)
    if crossover == 1:
        notes.append(ALWAYS_SLOWER)
    if quality.p_at_1 < LOW_PRECISION:
        low = f"P@1 is {quality.p_at_1:.4f} on held-out contexts, under {LOW_PRECISION}"
        notes.append(f"{low}: {method.ways_to_find_more}")
    return {"notes": notes} if notes else {}


def check_promise(quality: Quality, request: Request) -> None:
    """Raise QualityError where a P@k that the request promises was not reached."""
    precision = {1: quality.p_at_1, 5: quality.p_at_5, 10: quality.p_at_10} | quality.p_at
    for k, least in request.promise.items():
        if precision[k] < least:
            raise QualityError(
                f"P@{k} is {precision[k]:.4f} on {quality.rows} held-out contexts, under the {least} asked for: "
                f"nothing was exported; {find_method(request.method).ways_to_find_more}"
            )


def add_report(folder: Path, out: Path, request: Request, sample: Sample, progress: Progress) -> None:
    """Write report/ from the held-out rows. The bundle is good without it: an error here is logged, and no more."""
    try:
        bundle = Bundle(folder, verify=False)
        head = Head(bundle, "cpu", request.threads)
        write_report(bundle, head, [sample], promise=request.promise, progress=progress)
    except Exception as error:
        log.warning("no report was written (%s): mend that, then run `shortlist report %s`", error, out)
