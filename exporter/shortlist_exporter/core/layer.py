"""The dense layer as a torch module."""

from __future__ import annotations

import torch
from shortlist_models import FullSoftmax

from shortlist_exporter.inputs.sources import Dense


def torch_dense(dense: Dense) -> FullSoftmax:
    """The dense layer as a torch module over the same memory."""
    return FullSoftmax(
        torch.from_numpy(dense.weight),
        None if dense.bias is None else torch.from_numpy(dense.bias),
        logit_scale=dense.logit_scale,
        soft_cap=dense.soft_cap,
        padded=torch.from_numpy(dense.padded),
    )
