"""Classes that a clone's contexts do not want, dropped at once.

Not in the paper: it stands in for the epochs in which a lasso shrinks the rows of rare classes, whose gradients are few
and large.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .ds import DSSoftmax
from .full import FullSoftmax

DEPTH = 5  # the dense softmax's best classes that a context wants
CHUNK = 1024


@torch.no_grad()
def leading(dense: FullSoftmax, contexts: Tensor) -> Tensor:
    """[n, DEPTH] int64: the dense softmax's best classes."""
    depth = min(DEPTH, len(dense.weight))
    return torch.cat([dense.logits(part).topk(depth, dim=1).indices for part in torch.split(contexts, CHUNK)])


def drop_unwanted(
    module: DSSoftmax,
    contexts: Tensor,
    wanted: Tensor,
    least: int,
    too_large: Callable[[Tensor], bool],
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Drop the classes of every expert that fewer than `least` of its `contexts` [n, d] want, by `wanted` [n, m] ids.

    Then more, as long as it is `too_large` (given the utilisation [K]) and there are any.
    """
    used, counts = module.utilization(contexts), module.evidence(contexts, wanted)
    for bound in range(least, int(counts.max()) + 2):
        found = counts[module.owners, module.ids]
        module.keep(found >= bound, found, optimizer)
        if not too_large(used):
            return
