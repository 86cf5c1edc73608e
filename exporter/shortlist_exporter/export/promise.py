"""A promise of precision: contexts are kept apart to calibrate it, and the effort by the row is fitted to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from shortlist.bundle.manifest import MANIFEST_FILE, Manifest
from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import GroupedSettings
from shortlist.evaluation.truth import Truth
from shortlist.head import Head
from shortlist.plans.grouped.plan import GroupedPlan
from shortlist_models import FullSoftmax

from shortlist_exporter.core.types import Progress, quiet
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.inputs.splits import count_distinct, select_rows, shuffle_documents, split_held_out
from shortlist_exporter.methods.base import Method
from shortlist_exporter.methods.grouped import GroupedMethod
from shortlist_exporter.verify.ban_effort import MOST_BANNED, fit_ban_efforts
from shortlist_exporter.verify.effort import EFFORT_DEPTHS, fit_efforts
from shortlist_exporter.verify.list_effort import fit_list_effort
from shortlist_exporter.verify.look_widths import choose_widths
from shortlist_exporter.verify.perturbation import perturb_contexts

from .request import Request
from .truth import find_truth

CALIBRATION_ROWS = 500  # at least, as far as they are at most half of the fit rows
MIN_CALIBRATION_ROWS = 200  # fewer say too little of rare misses
MAX_CALIBRATION_LOGITS, LEAST_CALIBRATION_ROWS = 1 << 28, 1_000  # so many logits, or rows, are as many as are needed
NO_PROMISE = (
    f"no promise of precision was made: it takes {2 * MIN_CALIBRATION_ROWS} different contexts beside those held out, "
    "of which half calibrate it, compiled loops, and a layer that is not so small that graphs hold it"
)


def split_calibration(method: Method, fit_sample: Contexts, request: Request) -> tuple[Contexts, Contexts | None]:
    """The contexts to fit on, and those that calibrate a promise; None where none is made or they are too few."""
    if not wants_promise(method, request):
        return fit_sample, None
    half = count_distinct(fit_sample.contexts) // 2  # contexts that repeat count once
    if half < MIN_CALIBRATION_ROWS:
        return fit_sample, None
    shuffled = shuffle_documents(fit_sample, request.seed)  # so that no large kind of text is missed
    least = min(CALIBRATION_ROWS, half)
    fit_rows, rows = split_held_out(shuffled, request.seed, least)
    if len(fit_rows) < half:  # one document holds most rows: it is cut
        shuffled = replace(shuffled, documents=None)
        fit_rows, rows = split_held_out(shuffled, request.seed, least)
    if len(rows) < MIN_CALIBRATION_ROWS:
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
    """The draft with effort by the row, fitted to `calibration`; as it is without, and where graphs must answer.

    calibration: contexts in random order, of which no more than a large layer can afford are used.
    """
    if calibration is None:
        return draft
    (folder / MANIFEST_FILE).write_text(draft.with_digest().model_dump_json(), "utf-8")
    plan = Head(Bundle(folder, verify=False), "cpu", request.threads).plan
    if not isinstance(plan, GroupedPlan) or plan.compiled is None:
        return draft
    most = max(LEAST_CALIBRATION_ROWS, MAX_CALIBRATION_LOGITS // draft.classes)
    some = select_rows(calibration, np.arange(min(most, len(calibration.contexts))))
    truth = find_truth(dense, some, min(max(EFFORT_DEPTHS) + MOST_BANNED, draft.classes), progress)
    settings = calibrate_effort(plan, dense, truth, request, progress)
    return draft.model_copy(update={"settings": settings})


def calibrate_effort(
    plan: GroupedPlan, dense: FullSoftmax, truth: Truth, request: Request, progress: Progress
) -> GroupedSettings:
    """The plan's settings with a promise and what keeps it. truth: of rows that the head has not seen."""
    promise = GroupedMethod().find_promise(request.options)
    assert promise is not None, "calibration is for a promise"
    progress("widths of looks", 0, 4)
    plan = plan.with_settings(choose_widths(plan, truth, promise))
    progress("estimates of what looks miss", 1, 4)
    efforts = fit_efforts(plan, [truth, find_perturbed_truth(dense, truth, request.seed)])
    progress("estimates for lists", 2, 4)
    list_effort = fit_list_effort(plan, dense, truth.contexts, request.seed)
    progress("estimates for bans", 3, 4)
    ban_efforts = fit_ban_efforts(plan, truth, request.seed)
    changes = {"promise": promise, **efforts, "list_effort": list_effort, **ban_efforts}
    return GroupedSettings.model_validate(plan.settings.model_dump() | changes)


def find_perturbed_truth(dense: FullSoftmax, truth: Truth, seed: int) -> Truth:
    """Exact answers for rows of `truth` that are perturbed, as many of the best classes as efforts are fitted to."""
    contexts = Contexts(perturb_contexts(truth.contexts, seed))
    return find_truth(dense, contexts, min(max(EFFORT_DEPTHS), truth.ids.shape[1]), quiet)
