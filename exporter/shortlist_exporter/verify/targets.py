"""Gold classes under a head that is its own reference, beside the dense softmax it was made from."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from shortlist.bundle.manifest import TargetFigures, TargetQuality
from shortlist.core.results import IdArray, TopK
from shortlist.evaluation.ranking import rank_scores
from shortlist.evaluation.statistics import PRECISION_DEPTHS, compute_precision
from shortlist.evaluation.truth import TRUTH_CHUNK_ROWS, Truth
from torch import nn

from shortlist_exporter.core.torch_scores import compute_logits


def measure_target_quality(
    answers: Mapping[int, TopK],
    reference: nn.Module,
    dense: nn.Module,
    retrained: nn.Module | None,
    truth: Truth,
) -> TargetQuality | None:
    """Figures on the held-out targets, or None where there are none.

    answers: what the head serves, by the k of requests, as of `answer_held_out`. reference: the head's own softmax.
    dense: the layer that it was made from. retrained: a dense softmax trained in the same way, where there is one.
    """
    if truth.targets is None:
        return None
    served = {k: answers[min(k, max(answers))].ids for k in PRECISION_DEPTHS}
    return TargetQuality(
        rows=len(truth.targets),
        head=measure_softmax(reference, truth, served),
        dense=measure_softmax(dense, truth),
        retrained=None if retrained is None else measure_softmax(retrained, truth),
    )


def measure_softmax(module: nn.Module, truth: Truth, served: Mapping[int, IdArray] | None = None) -> TargetFigures:
    """Figures of one softmax on the targets; by its own best classes, or by those `served` [n, m], by k."""
    assert truth.targets is not None
    targets = torch.from_numpy(truth.targets)
    best, parts = [], []
    with torch.inference_mode():
        for rows in torch.split(torch.arange(len(targets)), TRUTH_CHUNK_ROWS):
            logits = compute_logits(module, torch.from_numpy(truth.contexts)[rows])
            parts.append((logits - logits.logsumexp(dim=1, keepdim=True)).gather(1, targets[rows, None])[:, 0])
            best.append(rank_scores(logits.numpy(), min(max(PRECISION_DEPTHS), logits.shape[1]))[0].ids)
    ids = served or dict.fromkeys(PRECISION_DEPTHS, np.concatenate(best))
    logprobs = torch.cat(parts).double()
    possible = logprobs[logprobs.isfinite()]
    top_1, top_5, top_10 = (compute_precision(ids[k], truth.targets[:, None], k) for k in PRECISION_DEPTHS)
    return TargetFigures(
        top_1=top_1,
        top_5=top_5,
        top_10=top_10,
        perplexity=compute_perplexity(possible),
        impossible=1 - len(possible) / len(logprobs),
    )


def compute_perplexity(logprobs: torch.Tensor) -> float | None:
    """Perplexity of log-probabilities [n], nats; 0 where there are none, None where it is too large for a number."""
    perplexity = float((-logprobs.mean()).exp()) if len(logprobs) else 0.0
    return perplexity if math.isfinite(perplexity) else None
