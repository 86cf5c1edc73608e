"""Dot products of float32, summed in any order."""

from __future__ import annotations

SUM_FLAGS = {"reassoc", "contract", "nsz"}  # LLVM may reorder float sums: else it vectorises no loop over them
