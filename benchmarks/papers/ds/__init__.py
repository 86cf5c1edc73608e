"""Doubly Sparse Softmax (Liao et al., 2019)."""
