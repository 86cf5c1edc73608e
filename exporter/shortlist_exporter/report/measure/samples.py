"""Rows that a report measures, with their exact answers where these can be had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.errors import BadInput
from shortlist.evaluation.measurement import choose_distinct_rows
from shortlist.evaluation.truth import Truth, compute_truth, rank_by_plan
from shortlist.head import Head

from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.inputs.sources import load_contexts
from shortlist_exporter.inputs.splits import Rows, select_rows
from shortlist_exporter.records.report import CALIBRATION_SAMPLE
from shortlist_exporter.verify.quality import TRUE_CLASSES

Depths = tuple[int, ...]

MAX_SAMPLE_ROWS = 4096  # of a sample that are measured, by default


@dataclass(frozen=True)
class Sample:
    """contexts: [n, d]. truth: None where the bundle has no dense head. documents: [n] or None.

    kinds: of text, positions of their rows. depths: each further k whose P@k is measured, of as many true classes.
    """

    name: str
    contexts: FloatArray
    truth: Truth | None
    documents: npt.NDArray[np.int32] | None = None
    kinds: Mapping[str, Rows] = field(default_factory=dict)
    depths: Depths = ()


def read_sample(head: Head, path: Path, name: str, count: int, seed: int, depths: Depths = ()) -> Sample:
    """At most `count` distinct contexts of a file, in random order; raises NotFound, BadInput."""
    file = load_contexts(path)
    dim = file.contexts.shape[1]
    if dim != head.manifest.dim:
        raise BadInput(f"contexts in {path} have d = {dim} but the bundle {head.manifest.dim}: capture both alike")
    positions = choose_distinct_rows(file.contexts, count, seed)
    rows = select_rows(file, positions)
    truth = compute_exact(head, rows.contexts, positions, depths)
    return Sample(name, rows.contexts, truth, rows.documents, rows.kind_rows, depths)


def read_calibration(head: Head, bundle: Bundle, depths: Depths = ()) -> Sample:
    """The few rows that every bundle carries."""
    contexts = bundle.tensors(CALIBRATION_FILE)["contexts"]
    truth = compute_exact(head, contexts, np.arange(len(contexts)), depths)
    return Sample(CALIBRATION_SAMPLE, contexts, truth, depths=depths)


def compute_exact(head: Head, contexts: FloatArray, row_numbers: Rows, depths: Depths = ()) -> Truth | None:
    """The bundle's own exact answers to `contexts` [n, d]; None where it has none to be held against.

    row_numbers: [n] positions in the user's file. depths: each k whose P@k is measured beside the usual ones. Raises
    BadInput where scores overflow.
    """
    plan = head.exact
    if plan is None:
        return None
    depth = min(max({TRUE_CLASSES, *depths}), head.manifest.max_k)
    return compute_truth(rank_by_plan(plan, contexts, row_numbers), contexts, depth, step=plan.max_rows())


def name_samples(paths: list[Path]) -> list[str]:
    """What to call the samples of several files: the file's name, or the whole path where two share one."""
    stems = [path.stem for path in paths]
    return [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, paths, strict=True)]
