"""Torch modules of every head, with their losses and their training. Depends on torch alone."""

from __future__ import annotations

from .full import FullSoftmax
from .svd import SVDSoftmax, context_basis, weight_basis

__all__ = ["FullSoftmax", "SVDSoftmax", "context_basis", "weight_basis"]
