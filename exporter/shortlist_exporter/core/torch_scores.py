"""Torch modules as the source of exact answers: logits, their best classes, log-probabilities of given ones.

A module is the dense layer (`FullSoftmax`), or one with `log_prob`: contexts [B, d] -> [B, V], -inf for probability 0.
"""

from __future__ import annotations

import torch
from shortlist.core.results import IdArray
from shortlist.evaluation.truth import Ranking, RankRows, Truth
from shortlist_models import FullSoftmax
from torch import nn

from .types import FloatArray


def compute_logits(module: nn.Module, contexts: torch.Tensor) -> torch.Tensor:
    """Contexts [b, d] -> logits [b, V] of the dense layer, or log-probabilities of a module with `log_prob`."""
    if isinstance(module, FullSoftmax):
        return module.logits(contexts)
    logprobs: torch.Tensor = module.log_prob(contexts)  # type: ignore[operator]
    return logprobs


def rank_by_module(module: nn.Module, contexts: FloatArray) -> RankRows:
    """The backend of a module, for `shortlist.evaluation.truth.compute_truth` over `contexts` [n, d]."""

    def rank_rows(rows: slice, k: int) -> Ranking:
        with torch.inference_mode():
            logits = compute_logits(module, torch.from_numpy(contexts[rows]))
            best = logits.topk(k, dim=1)
            return Ranking(best.indices.numpy(), best.values.numpy(), logits.logsumexp(dim=1).numpy())

    return rank_rows


def compute_logprobs(module: nn.Module, truth: Truth, rows: slice, ids: IdArray) -> FloatArray:
    """The module's log-probabilities [b, m] of `ids` [b, m], for `rows` of its own truth."""
    classes, contexts = torch.from_numpy(ids), torch.from_numpy(truth.contexts[rows])
    with torch.inference_mode():
        if isinstance(module, FullSoftmax):
            logits = compute_class_logits(module, contexts, classes)
        else:
            logits = compute_logits(module, contexts).gather(1, classes)
    exact: FloatArray = logits.numpy() - truth.log_normalizer[rows, None]
    return exact


def compute_class_logits(dense: FullSoftmax, contexts: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Logits [b, m] of `classes` [b, m] alone. Equals a gather from all logits, but without computing these."""
    products = torch.einsum("bmd,bd->bm", dense.weight[classes], contexts)
    return dense.finish(products if dense.bias is None else products + dense.bias[classes], classes)
