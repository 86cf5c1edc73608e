"""Gold classes under a head that is its own reference, beside the dense softmax it was made from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from shortlist.bundle.manifest import TargetFigures, TargetQuality
from shortlist.head import Head
from torch import nn

from .quality import CHUNK, Truth, logits_of

DEPTHS = (1, 5, 10)


def target_quality(
    head: Head, own: nn.Module, dense: nn.Module, retrained: nn.Module | None, truth: Truth
) -> TargetQuality | None:
    """Figures on the held-out targets, or None where there are none; the head's ids are those that it serves."""
    if truth.targets is None:
        return None
    depth = min(max(DEPTHS), head.manifest.max_k)
    starts = range(0, len(truth.contexts), CHUNK)
    served = [head.topk_by_plan(truth.contexts[start : start + CHUNK], depth).ids for start in starts]
    return TargetQuality(
        rows=len(truth.targets),
        head=figures_of(own, truth, np.concatenate(served)),
        dense=figures_of(dense, truth),
        retrained=None if retrained is None else figures_of(retrained, truth),
    )


def figures_of(module: nn.Module, truth: Truth, served: npt.NDArray[np.int64] | None = None) -> TargetFigures:
    """Of one softmax; by its own best classes, or by those `served` [n, m]."""
    assert truth.targets is not None
    targets, best, found = torch.from_numpy(truth.targets), [], []
    with torch.inference_mode():
        for rows in torch.split(torch.arange(len(targets)), CHUNK):
            logits = logits_of(module, torch.from_numpy(truth.contexts)[rows])
            found.append((logits - logits.logsumexp(dim=1, keepdim=True)).gather(1, targets[rows, None])[:, 0])
            best.append(logits.topk(min(max(DEPTHS), logits.shape[1]), dim=1).indices)
    ids = torch.cat(best) if served is None else torch.from_numpy(served)
    logprobs, hits = torch.cat(found).double(), ids == targets[:, None]
    possible = logprobs[logprobs.isfinite()]
    top_1, top_5, top_10 = (float(hits[:, :k].any(dim=1).double().mean()) for k in DEPTHS)
    return TargetFigures(
        top_1=top_1,
        top_5=top_5,
        top_10=top_10,
        perplexity=float((-possible.mean()).exp()) if len(possible) else 0.0,
        impossible=1 - len(possible) / len(logprobs),
    )
