"""A small Doubly Sparse Softmax, and heads exported of it."""

import numpy as np
import torch
from shortlist_exporter.inputs.sources import Contexts
from shortlist_models.ds.softmax import DSOptions, DSSoftmax

from tests.support.layers import CLASSES, DIM, make_contexts, make_dense, make_head

QUICK = {
    "experts": "4", "rounds": "1", "final_rounds": "2", "tuning_rounds": "1", "round_steps": "40",
    "learning_rate": "0.02", "lasso": "0.01", "batch": "128", "threshold": "9",
}  # fmt: skip
SVD = {"over": "30", "width": "6", "full_view": "25"}
dense = make_dense(padded=np.array([5, 17]))
sample = make_contexts(1200)
best = (sample.contexts @ dense.weight.T + np.where(np.isin(np.arange(CLASSES), [5, 17]), -np.inf, 0)).argmax(axis=1)
contexts = Contexts(sample.contexts, best.astype(np.int64))
rows = contexts.contexts[-60:]


def make_module(seed=0, sizes=(40, 90, 25, 60), **options):
    random = torch.Generator().manual_seed(seed)
    ids = [torch.randperm(CLASSES, generator=random)[:size].sort().values for size in sizes]
    weight, bias = torch.randn(sum(sizes), DIM, generator=random), torch.randn(sum(sizes), generator=random)
    return DSSoftmax(weight, bias, torch.randn(len(sizes), DIM, generator=random), ids, CLASSES, DSOptions(**options))


def exported(folder, module, method="ds", options=None, **request):
    return make_head(
        folder, dense, contexts, method=method, options=options or {}, head=module, fallback=True, **request
    )
