"""Classes that a clone's contexts do not want are not cloned.

Not in the paper: it stands in for the epochs in which a lasso shrinks the rows of rare classes, whose gradients are few
and large.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from shortlist_models.full import FullSoftmax

from .softmax import DSSoftmax, least_kept

DEPTH = 5  # the dense softmax's best classes that a context wants
CHUNK = 1024
Fits = Callable[[Tensor, Tensor], bool]
TIE = 1e-6  # what a target counts beside a wanted class: copies of what nobody wants go where it is the target


@torch.no_grad()
def leading(dense: FullSoftmax, contexts: Tensor) -> Tensor:
    """[n, DEPTH] int64: the dense softmax's best classes."""
    depth = min(DEPTH, len(dense.weight))
    return torch.cat([dense.logits(part).topk(depth, dim=1).indices for part in torch.split(contexts, CHUNK)])


class Evidence:
    """Which rows of clones to make: see `choose`."""

    def __init__(
        self,
        module: DSSoftmax,
        contexts: Tensor,
        wanted: Tensor,
        targets: Tensor,
        fits: Callable[[Tensor, Tensor], bool],
    ) -> None:
        """wanted: [n, m] ids for `contexts` [n, d]; targets: [n]. fits: given used and sizes [K], whether to stop."""
        self.module, self.contexts, self.wanted, self.targets, self.fits = module, contexts, wanted, targets, fits

    def choose(self, owners: Tensor, ids: Tensor) -> Tensor:
        """[M] bool: the rows that most of their expert's contexts want, as many as `fits` allows."""
        module = self.module
        used = module.utilization(self.contexts)
        counts = module.evidence(self.contexts, self.wanted) + TIE * module.evidence(
            self.contexts, self.targets[:, None]
        )
        found = counts[owners, ids]
        for bound in range(int(counts.max()) + 2):
            kept = least_kept(found >= bound, found, ids, owners, module.classes, keep_one=module.options.keep_one)
            if self.fits(used, torch.bincount(owners[kept], minlength=module.experts)):
                break
        return kept
