"""The canary: a load must give the answers that the export gave, and those must be as good as promised.

Graphs in place of compiled loops must give answers as good as these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.core.results import FloatArray, IdArray
from shortlist.errors import BadInput, BundleError
from shortlist.head import Head

from .ranking import TrueClasses
from .statistics import Bools, compute_precision, mark_hits

CANARY_K = 10
MIN_AGREEMENT = 0.99  # float rounding may swap near-equal classes; a broken kernel or file does far worse
MAX_ERROR_NATS = 1e-2  # of a log-probability
MOST_GROWTH = 2  # of the mean error of estimates: one flat row of some sixty moves it
BOUND_CHECKED_ROWS = 16  # contexts whose every logit is held against its bounds
BOUND_CHECKED_LOGITS = 1 << 22  # of millions of classes, two contexts have more
MIN_BOUND_CHECKED_ROWS = 2


def check_canary(head: Head, bundle: Bundle) -> float:
    """Replay the calibration; returns P@k of its rows against their exact answers.

    Raises BundleError where the head answers otherwise than it did at the export.
    """
    calibration = bundle.tensors(CALIBRATION_FILE)
    head_ids: IdArray = calibration["head_ids"]
    try:
        top = head.topk_by_plan(calibration["contexts"], head_ids.shape[1])
    except BadInput as error:  # they were answered at the export: the fault is not theirs
        raise BundleError(
            f"{bundle.folder} failed its canary on {head.device}: the calibration's scores are not finite; "
            "export the bundle on this kind of machine"
        ) from error
    same = top.ids[:, None, :] == head_ids[:, :, None]  # [n, k, k]: one lost class moves others up, which is no fault
    hits = mark_hits(top.ids, head_ids, head_ids.shape[1])
    logprobs = np.take_along_axis(top.logprobs, same.argmax(axis=2), axis=1)
    off = compare_logprobs(logprobs, calibration["head_logprobs"], hits)
    kept, is_near = float(hits.mean()), off <= MAX_ERROR_NATS
    if head.kernels is None and top.normalizer == "estimated":  # graphs estimate in their own way what loops did
        wrong = ~mark_hits(calibration["ids"], head_ids, head_ids.shape[1])  # others may take their places
        kept, is_near = float((hits | wrong).mean()), is_near or are_as_near(logprobs, calibration, hits)
    if kept < MIN_AGREEMENT or not is_near:
        raise BundleError(
            f"{bundle.folder} failed its canary on {head.device}: {kept:.1%} of the calibration's classes came "
            f"back, log-probabilities off by up to {off:.2g}; export the bundle on this kind of machine"
        )
    check_certificate(head, calibration["contexts"][: count_checked_rows(head.manifest.classes)], bundle)
    return compute_precision(top.ids, TrueClasses.from_tensors(calibration), head_ids.shape[1])


def count_checked_rows(classes: int) -> int:
    """How many contexts are held against bounds, each of which has as many logits as there are classes."""
    return max(MIN_BOUND_CHECKED_ROWS, min(BOUND_CHECKED_ROWS, BOUND_CHECKED_LOGITS // classes))


def check_certificate(head: Head, contexts: FloatArray, bundle: Bundle) -> None:
    """Raise BundleError where a logit of `contexts` [n, d] lies outside the bounds that prove exact answers.

    Kernels that compute int8 products wrongly are detected here, before they serve.
    """
    if head.certified is None or head.exact is None:
        return
    for row in contexts:
        logits = head.exact.compute_distribution(row[None])
        if logits is None or not head.certified.holds(row, logits[0]):
            raise BundleError(
                f"{bundle.folder} failed its canary on {head.device}: a logit is outside its bounds; "
                "export the bundle on this kind of machine, or with --no-certificate"
            )


def are_as_near(logprobs: FloatArray, calibration: Mapping[str, npt.NDArray[Any]], hits: Bools) -> bool:
    """Whether log-probabilities [n, k] are about as near to the exact ones as the export's were, a row's moved alike.

    Where graphs answer what compiled loops answered at the export, normalisers are estimated beside other candidates.
    hits: [n, k], which of the export's classes came back.
    """
    export = calibration["head_logprobs"]
    same = calibration["head_ids"][:, :, None] == calibration["ids"][:, None, :]
    exact = np.take_along_axis(calibration["logprobs"], same.argmax(axis=2), axis=1)
    known = hits & same.any(axis=2) & np.isfinite(export) & np.isfinite(exact)
    if not known.any() or not np.isfinite(logprobs[known]).all():
        return False
    moves = np.take_along_axis(logprobs - export, known.argmax(axis=1)[:, None], axis=1)
    errors, export_errors = (float(np.abs(some[known] - exact[known]).mean()) for some in (logprobs, export))
    is_alike = compare_logprobs(logprobs - moves, export, known) <= MAX_ERROR_NATS
    return is_alike and errors <= MOST_GROWTH * export_errors + MAX_ERROR_NATS


def compare_logprobs(logprobs: FloatArray, others: FloatArray, hits: Bools) -> float:
    """Largest |difference| of [n, k] at the hits that are permitted, nats; infinite where a value is not a number."""
    finite_hits = hits & np.isfinite(others)
    difference = np.abs(logprobs[finite_hits] - others[finite_hits])
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))
