"""Compiled loops in the place of graphs, where numba, the processor and the bundle have what they need.

Each class of loops has `open(bundle, ...)`, which gives None where it cannot serve the bundle.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def open_kernel(module: str, name: str, *arguments: Any) -> Any | None:
    """`name.open(*arguments)` of `shortlist.kernels.<module>`; None without numba for this numpy, or where that is."""
    try:
        kernel = getattr(import_module(f"shortlist.kernels.{module}"), name)
    except ImportError:
        return None
    return kernel.open(*arguments)
