"""Torch modules as the source of exact answers: logits, their best classes, log-probabilities of given ones.

A module is the dense layer (`FullSoftmax`), or one with `log_prob`: contexts [B, d] -> [B, V], -inf for probability 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from shortlist.core.results import IdArray
from shortlist.evaluation.ranking import rank_scores
from shortlist.evaluation.truth import Ranking, RankRows, Truth
from shortlist_models import FullSoftmax
from torch import nn

from .types import FloatArray

HASHED_ROWS = 4096  # at a time


def compute_logits(module: nn.Module, contexts: torch.Tensor) -> torch.Tensor:
    """Contexts [b, d] -> logits [b, V] of the dense layer, or log-probabilities of a module with `log_prob`."""
    if isinstance(module, FullSoftmax):
        return module.logits(contexts)
    logprobs: torch.Tensor = module.log_prob(contexts)  # type: ignore[operator]
    return logprobs


def rank_by_module(module: nn.Module, contexts: FloatArray) -> RankRows:
    """The backend of a module, for `shortlist.evaluation.truth.compute_truth` over `contexts` [n, d]."""
    copies, originals = find_copies(module)

    def rank_rows(rows: slice, k: int) -> Ranking:
        with torch.inference_mode():
            logits = compute_logits(module, torch.from_numpy(contexts[rows]))
            logits[:, copies] = logits[:, originals]
            best, scores = rank_scores(logits.numpy(), k)
            return Ranking(best, scores.astype(np.float32, copy=False), logits.logsumexp(dim=1).numpy())

    return rank_rows


def find_copies(module: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes [c] of the dense layer that an earlier class equals in weight and bias, and that class of each, [c].

    Their scores are equal, but a matrix product may round its last columns otherwise than those before. Of other
    modules no classes are known to be equal.
    """
    if not isinstance(module, FullSoftmax):
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    columns = [part.numpy()[:, None] for part in (module.bias, module.padding) if part is not None]
    _, first, group = np.unique(hash_rows(module.weight.numpy(), *columns), return_index=True, return_inverse=True)
    originals = first[group]
    copies = np.flatnonzero(originals != np.arange(len(originals)))
    return torch.from_numpy(copies), torch.from_numpy(originals[copies])


def hash_rows(*arrays: FloatArray) -> npt.NDArray[np.uint64]:
    """[n, ...] -> [n]: a 64-bit hash of each row of all `arrays`; equal for equal rows, also of 0 and -0."""
    random = np.random.default_rng(0)
    hashes = np.zeros(len(arrays[0]), np.uint64)
    for values in arrays:
        factors = random.integers(0, 1 << 63, values.shape[1], np.uint64) * 2 + 1
        for start in range(0, len(values), HASHED_ROWS):
            bits = (values[start : start + HASHED_ROWS] + np.float32(0)).view(np.uint32)
            hashes[start : start + HASHED_ROWS] += (bits * factors).sum(axis=1)
    return hashes


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
