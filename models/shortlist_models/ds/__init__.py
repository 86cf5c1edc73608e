"""Doubly Sparse Softmax (Liao et al., 2019): the module, its training, its experts."""

from __future__ import annotations

from .softmax import DSOptions, DSSoftmax

__all__ = ["DSOptions", "DSSoftmax"]
