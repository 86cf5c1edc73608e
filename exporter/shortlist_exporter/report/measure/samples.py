"""Rows that a report measures, with their exact answers where these can be had."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from shortlist.bundle.reader import CALIBRATION as CALIBRATION_FILE
from shortlist.bundle.reader import Bundle
from shortlist.errors import BadInput
from shortlist.evaluation.measurement import best, checked_logits, distinct_rows, truth_of
from shortlist.evaluation.statistics import log_normalizers
from shortlist.head import Head

from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.inputs.sources import load_contexts
from shortlist_exporter.inputs.splits import Rows
from shortlist_exporter.records.report import CALIBRATION
from shortlist_exporter.verify.quality import DEPTH, Truth

ROWS = 4096  # of a sample that are measured


@dataclass(frozen=True)
class Sample:
    """contexts: [n, d]. truth: None where the bundle has no dense head. documents: [n] or None."""

    name: str
    contexts: FloatArray
    truth: Truth | None
    documents: npt.NDArray[np.int32] | None = None


def from_file(head: Head, path: Path, name: str, rows: int, seed: int) -> Sample:
    """At most `rows` distinct contexts of a file, in random order; raises NotFound, BadInput."""
    file = load_contexts(path)
    width = file.contexts.shape[1]
    if width != head.manifest.dim:
        raise BadInput(f"contexts in {path} have d = {width} but the bundle {head.manifest.dim}: capture both alike")
    chosen = distinct_rows(file.contexts, rows, seed)
    contexts = np.ascontiguousarray(file.contexts[chosen])
    documents = None if file.documents is None else file.documents[chosen]
    return Sample(name, contexts, exact_answers(head, contexts, chosen), documents)


def calibration(head: Head, bundle: Bundle) -> Sample:
    """The few rows that every bundle carries."""
    contexts = bundle.tensors(CALIBRATION_FILE)["contexts"]
    return Sample(CALIBRATION, contexts, exact_answers(head, contexts, np.arange(len(contexts))))


def exact_answers(head: Head, contexts: FloatArray, rows: Rows) -> Truth | None:
    """The bundle's own exact answers to `contexts` [n, d]; None where it has none to be held against.

    rows: [n] positions in the user's file. Raises BadInput where scores overflow.
    """
    truth = truth_of(head)
    if truth is None:
        return None
    depth, step = min(DEPTH, head.manifest.max_k), truth.max_rows()
    ids, logprobs, normalizers = [], [], []
    for start in range(0, len(contexts), step):
        chunk = slice(start, start + step)
        logits = checked_logits(truth.distribution(contexts[chunk]), rows[chunk])
        assert logits is not None
        found, log_z = best(logits, depth), log_normalizers(logits)
        ids.append(found)
        logprobs.append(np.take_along_axis(logits, found, axis=1) - log_z[:, None])
        normalizers.append(log_z)
    exact = np.concatenate(logprobs).astype(np.float32)
    return Truth(contexts, np.concatenate(ids), exact, np.concatenate(normalizers).astype(np.float32))


def names_of(paths: list[Path]) -> list[str]:
    """What to call the samples of several files: the file's name, or the whole path where two share one."""
    stems = [path.stem for path in paths]
    return [stem if stems.count(stem) == 1 else str(path) for stem, path in zip(stems, paths, strict=True)]
