"""Evidence for cloning: an expert's clones keep the classes that score best for the contexts that they get.

Not in the paper: it stands in for the epochs in which a lasso shrinks the rows of rare classes, whose gradients are few
and large.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from shortlist_models.full import FullSoftmax

from .compaction import add_required_rows
from .softmax import DSSoftmax

BEST_CLASSES = 5  # of the dense softmax, counted for each context
FORWARD_CHUNK_ROWS = 1024  # contexts that meet a whole layer at a time
TARGET_WEIGHT = 1e-6  # of a target beside a best class: it decides alone where a class is no context's best
StopRule = Callable[[Tensor, Tensor], bool]  # utilization [K] and sizes [K] of the clones -> whether they are small


@torch.no_grad()
def find_best_classes(dense: FullSoftmax, contexts: Tensor) -> Tensor:
    """Ids [n, BEST_CLASSES] int64 of the dense softmax's best classes for `contexts` [n, d]."""
    depth = min(BEST_CLASSES, len(dense.weight))
    return torch.cat(
        [dense.logits(part).topk(depth, dim=1).indices for part in torch.split(contexts, FORWARD_CHUNK_ROWS)]
    )


class Evidence:
    """Counts how many contexts of each clone have each class among their best, and chooses rows by that."""

    def __init__(
        self,
        module: DSSoftmax,
        contexts: Tensor,
        best_classes: Tensor,
        targets: Tensor,
        fits: StopRule,
    ) -> None:
        """best_classes: [n, m] ids for `contexts` [n, d]. targets: [n] ids. fits: whether clones are small enough."""
        self.module, self.contexts, self.best_classes = module, contexts, best_classes
        self.targets, self.fits = targets, fits

    def choose_rows(self, owners: Tensor, ids: Tensor) -> Tensor:
        """Mask [M] of the rows to clone, given the expert and the class of each: as many as `fits` allows.

        A row is worth the number of its expert's contexts that have its class among their best.
        """
        module = self.module
        utilization = module.utilization(self.contexts)
        counts = module.count_evidence(self.contexts, self.best_classes) + TARGET_WEIGHT * module.count_evidence(
            self.contexts, self.targets[:, None]
        )
        row_counts = counts[owners, ids]
        for bound in range(int(counts.max()) + 2):
            chosen_rows = add_required_rows(
                row_counts >= bound, row_counts, ids, owners, module.classes, keep_one=module.options.keep_one
            )
            if self.fits(utilization, torch.bincount(owners[chosen_rows], minlength=module.experts)):
                break
        return chosen_rows
