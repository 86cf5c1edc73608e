"""A drafted bundle is measured with the service's own runtime, completed and sealed; then its report is written."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from shortlist.bundle.manifest import MANIFEST_FILE, Manifest, Quality
from shortlist.bundle.reader import Bundle
from shortlist.bundle.writer import seal
from shortlist.errors import QualityError
from shortlist.evaluation.canary import check_canary
from shortlist.evaluation.statistics import bound_mean
from shortlist.evaluation.truth import Truth
from shortlist.head import Head
from shortlist.plans.common.crossover import ALWAYS_SLOWER, keep_single_rows
from torch import nn

from shortlist_exporter.core.types import Progress, count_rows
from shortlist_exporter.methods.base import Fitted
from shortlist_exporter.methods.registry import find_method
from shortlist_exporter.report.measure.samples import Sample
from shortlist_exporter.report.write import write_report
from shortlist_exporter.verify.ban_costs import choose_ban_limits
from shortlist_exporter.verify.quality import (
    TRUE_CLASSES,
    add_dense_rows,
    answer_held_out,
    measure_certificate,
    measure_list_costs,
    measure_quality,
)
from shortlist_exporter.verify.targets import measure_target_quality

from .promise import NO_PROMISE, wants_promise
from .request import Request
from .write import write_calibration, write_labels, write_sets

LOW_PRECISION = 0.98  # P@1 under which an export says so
FEW_BEST = 5  # classes that are best for some held-out context, above which these are not said to be alike
ALIKE_ROWS, ALIKE_CLASSES = 20, 10  # held-out contexts, and classes of the layer, for each of them, at least
HIGH_LOGPROB_ERROR = 0.1  # mean error of the log-probabilities, nats, over which an export says so

log = logging.getLogger(__name__)


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
    # Measure the head as the service would open it
    (folder / MANIFEST_FILE).write_text(draft.with_digest().model_dump_json(), "utf-8")
    head = Head(Bundle(folder, verify=False), "cpu", request.threads)
    truth = sample.truth.first_classes(min(TRUE_CLASSES, draft.max_k))
    count = count_rows(progress, "held-out quality", truth.contexts)
    answers = answer_held_out(head, truth.contexts, request.depths, count)
    cost = add_dense_rows(fitted.cost, draft.settings, answers[min(TRUE_CLASSES, draft.max_k)], draft.classes)
    quality = measure_quality(answers, reference, sample.truth, sample.kinds, cost, request.depths)
    if draft.reference == "self":
        beside = measure_target_quality(answers, reference, dense, fitted.retrained, truth)
        quality = quality.model_copy(update={"targets": beside})
    check_promise(quality, request)
    # Write what else the bundle holds
    write_calibration(folder, head, truth)
    write_labels(folder, request.labels)
    write_sets(folder, request.sets)
    # Time the ways to answer: the head, dense, lists, proofs
    progress("dense crossover", 0, 1)
    large = request.fallback and draft.reference == "dense"
    crossover = head.measure_crossover(head.plan, truth.contexts) if large else None
    figures = {
        "settings": choose_ban_limits(head, truth.contexts) if large else draft.settings,
        "quality": quality,
        "dense_crossover": keep_single_rows(crossover),
        "list_costs": measure_list_costs(head, truth.contexts),
        "certificate": measure_certificate(head, truth.contexts, fallback=request.fallback),
        "provenance": draft.provenance | add_notes(draft, request, quality, crossover, truth),
    }
    # Seal it, and load it as a server does
    manifest = seal(folder, draft.model_copy(update=figures))
    bundle = Bundle(folder)
    check_canary(Head(bundle, "cpu", request.threads), bundle)
    return manifest


def add_notes(
    draft: Manifest, request: Request, quality: Quality, crossover: int | None, truth: Truth
) -> dict[str, list[str]]:
    """The draft's notes and those that measuring gave, if any: each a sentence that the export prints too."""
    notes, method = list(draft.provenance.get("notes", [])), find_method(request.method)
    if wants_promise(method, request) and not getattr(draft.settings, "promise", None):
        notes.append(NO_PROMISE)
    notes += describe_missed_promise(draft, quality) + describe_alike(draft.classes, truth)
    if crossover == 1:
        notes.append(ALWAYS_SLOWER)
    if quality.p_at_1 < LOW_PRECISION:
        low = f"P@1 is {quality.p_at_1:.4f} on held-out contexts, under {LOW_PRECISION}"
        notes.append(f"{low}: {method.ways_to_find_more}")
    error = quality.logprob_error_hits_mean or 0.0  # in the others the best class is missing, which is said above
    if error > HIGH_LOGPROB_ERROR:
        high = f"log-probabilities are off by {error:.2f} nats in the mean"
        notes.append(f"{high}: {method.ways_to_normalize}")
    return {"notes": notes} if notes else {}


def describe_alike(classes: int, truth: Truth) -> list[str]:
    """A sentence where the held-out contexts of `truth` are so much alike that few classes are ever best; none else."""
    rows, best = len(truth.contexts), len(np.unique(truth.ids[:, 0]))
    if best > FEW_BEST or rows < ALIKE_ROWS * best or classes < ALIKE_CLASSES * best:
        return []
    several = f"one of {best} classes is" if best > 1 else "the same class is"
    return [
        f"{several} best for each of the {rows:,} held-out contexts: they are too much alike to tell how often "
        "the best class of another context is missed; give contexts as various as those that will be asked about"
    ]


def describe_missed_promise(draft: Manifest, quality: Quality) -> list[str]:
    """A sentence where a P@k on the held-out contexts is under the promise by more than chance; none else."""
    highs = {k: bound_mean(share, quality.rows).high for k, share in read_precision(quality).items()}
    missed = [k for k, high in highs.items() if high < (draft.find_promise(draft.normalizer, k) or 0.0)]
    if not missed:
        return []
    measured = " and ".join(f"P@{k} is {read_precision(quality)[k]:.4f}" for k in missed)
    return [
        f"{measured} on {quality.rows:,} held-out contexts, under the promise of {draft.promise:g}: they may be "
        "unlike those that made the head; where the file has kinds of text one after another, name them or mix them"
    ]


def read_precision(quality: Quality) -> dict[int, float]:
    """P@k by k, of every k that was measured."""
    return {1: quality.p_at_1, 5: quality.p_at_5, 10: quality.p_at_10} | quality.p_at


def check_promise(quality: Quality, request: Request) -> None:
    """Raise QualityError where a P@k that the request promises was not reached."""
    for k, least in request.promise.items():
        share = read_precision(quality)[k]
        if share < least:
            raise QualityError(
                f"P@{k} is {share:.4f} on {quality.rows} held-out contexts, under the {least} asked for: "
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
