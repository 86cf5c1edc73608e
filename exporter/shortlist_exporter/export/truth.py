"""Exact answers of the layer that a head is held against."""

from __future__ import annotations

from shortlist.evaluation.truth import TRUTH_CHUNK_ROWS, Truth, compute_truth
from shortlist_models import FullSoftmax
from torch import nn

from shortlist_exporter.core.torch_scores import rank_by_module
from shortlist_exporter.core.types import Progress, count_rows
from shortlist_exporter.inputs.sources import Contexts

MAX_CHUNK_LOGITS = 1 << 25  # of exact answers at once


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
