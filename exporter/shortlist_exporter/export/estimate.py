"""What an export will take, said before it begins: memory from the sizes of its arrays, time from one timed product."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.inputs.splits import HELD_OUT_FRACTION
from shortlist_exporter.methods.base import DenseMethod
from shortlist_exporter.methods.registry import find_method

from .request import Request

BASE_BYTES = 450 << 20  # interpreter, libraries, and the arrays of a layer of some thousand classes
WORK_WEIGHTS, WORK_CONTEXTS = 8, 420  # what is worked on at a time: in sizes of the weights, and logits of contexts
MAX_WORK_BYTES = 574 << 20  # of it, since large layers go by parts
HEAD_WEIGHTS = 0.6  # int8 rows, previews and their tables, in sizes of the weights
CROSSOVER_ROWS = 2_400  # contexts whose logits take as long as all that is timed beside dense
CERTIFICATE_ROWS_PER_DIM = 6  # and as long as the certificate: products in float64
REPORT_ROWS = 3_000
TIMED_ROWS, TIMED_CLASSES = 64, 1 << 15
SHORT_SECONDS = 90.0  # an export that takes less is said to take about a minute


class Estimate(NamedTuple):
    """memory_bytes: of the process at its largest. seconds: None where a head is trained, for as long as that takes."""

    memory_bytes: int
    seconds: float | None

    def __str__(self) -> str:
        memory = f"about {self.memory_bytes / (1 << 30):.1f} GiB of memory"
        if self.seconds is None:
            return f"this will need {memory}, and as long as training takes"
        minutes = f"{self.seconds / 60:.0f} minutes" if self.seconds > SHORT_SECONDS else "a minute"
        return f"this will need {memory} and about {minutes} (estimates)"


def estimate_export(dense: Dense, contexts: Contexts, request: Request) -> Estimate:
    """What `export` of the same arguments will need on this machine as busy as it is; raises BadInput."""
    copies = 1 + request.keep_dense + HEAD_WEIGHTS  # of the weights: as given, packed where dense is timed, the head's
    work = min(dense.weight.itemsize * dense.classes * (WORK_WEIGHTS * dense.dim + WORK_CONTEXTS), MAX_WORK_BYTES)
    memory = BASE_BYTES + work + round(copies * dense.weight.nbytes) + 2 * contexts.contexts.nbytes
    method = find_method(request.method)
    fit_rows = method.count_fit_rows(dense, len(contexts.contexts)) if isinstance(method, DenseMethod) else None
    if fit_rows is None:
        return Estimate(memory, None)
    rows = fit_rows + 2 * len(contexts.contexts) // HELD_OUT_FRACTION
    rows += CERTIFICATE_ROWS_PER_DIM * dense.dim * request.certificate + REPORT_ROWS * request.report
    rows += CROSSOVER_ROWS * (request.keep_dense and request.fallback)
    return Estimate(memory, rows * dense.classes * time_logit(dense))


def time_logit(dense: Dense) -> float:
    """Seconds of this machine for one logit among many, and its part in the sum of all."""
    weight, contexts = dense.weight[:TIMED_CLASSES], np.ones((TIMED_ROWS, dense.dim), np.float32)
    start = time.perf_counter()
    logits = contexts @ weight.T
    np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    return (time.perf_counter() - start) / logits.size
