"""Exact best classes of held-out contexts: float32 scores, the best ordered in float64; computed once and stored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.ranking import TrueClasses, rank_scores
from shortlist.evaluation.truth import Ranking, RankRows, compute_truth
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.core.types import count_rows
from shortlist_exporter.inputs.sources import Dense

EXACT_CLASSES = 10  # of each row
NEAR_TIE_CLASSES = 22  # classes below those that float64 may still lift among them


@dataclass(frozen=True)
class Truth:
    """Distinct held-out contexts in random order, and the exact best classes of each.

    contexts: [n, d] float32. best: the `EXACT_CLASSES` best of each row. targets: [n] int64 or None.
    """

    contexts: FloatArray
    best: TrueClasses
    targets: IdArray | None = None

    @property
    def ids(self) -> IdArray:
        """The ids of `best`, [n, EXACT_CLASSES] int64."""
        return self.best.ids


def load_truth(path: Path, dense: Dense, contexts: FloatArray, targets: IdArray | None) -> Truth:
    """Read the truth at `path`, or compute that of the distinct rows of `contexts` [n, d] and store it there."""
    stored = load_file(path) if path.is_file() else {}
    if "levels" in stored:  # older files do not say which scores are equal
        return Truth(stored["contexts"], TrueClasses.from_tensors(stored), stored.get("targets"))
    _, first = np.unique(contexts, axis=0, return_index=True)
    rows = np.random.default_rng(0).permutation(first)
    truth = Truth(contexts[rows], compute_best(dense, contexts[rows]), None if targets is None else targets[rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    gold = {} if truth.targets is None else {"targets": truth.targets}
    save_file({"contexts": truth.contexts, **truth.best.to_tensors(), **gold}, path)
    return truth


def compute_best(dense: Dense, contexts: FloatArray) -> TrueClasses:
    """The `EXACT_CLASSES` best of each row by float32, ordered by float64; of equal scores the lower id first."""
    depth = min(EXACT_CLASSES, dense.real_classes)
    with progress_bar("dense answers") as report:
        count = count_rows(report, "dense answers", contexts)
        return compute_truth(rank_in_float64(dense, contexts), contexts, depth, progress=count).best


def rank_in_float64(dense: Dense, contexts: FloatArray) -> RankRows:
    """The backend of the dense layer over `contexts` [n, d] whose best classes are ordered by products in float64.

    Scores and normaliser are the layer's own, in float32.
    """
    module = dense.module

    def rank_rows(rows: slice, k: int) -> Ranking:
        chunk = torch.from_numpy(contexts[rows])
        with torch.inference_mode():
            logits = module.logits(chunk)
            near = logits.topk(min(k + NEAR_TIE_CLASSES, dense.classes), dim=1).indices.sort(dim=1).values
            best, _ = rank_scores(score_in_float64(dense, chunk, near).numpy(), k, near.numpy())
            best_logits = logits.gather(1, torch.from_numpy(best.ids))
            return Ranking(best, best_logits.numpy(), logits.logsumexp(dim=1).numpy())

    return rank_rows


def score_in_float64(dense: Dense, contexts: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    """Float64 products [b, m] of the classes `near` [b, m], -inf for padding (scale and cap keep the order)."""
    rows = torch.from_numpy(dense.weight)[near].double()
    scores = torch.einsum("bmd,bd->bm", rows, contexts.double())
    if dense.bias is not None:
        scores += torch.from_numpy(dense.bias)[near].double()
    scores[torch.isin(near, torch.from_numpy(dense.padded))] = -torch.inf
    return scores
