"""Data sets by name. A new one is a module with `load(place) -> DataSet` and a line here."""

from __future__ import annotations

from collections.abc import Callable

from . import characters, files, ptb, smollm2, synthetic
from .base import DataSet, Place

DATASETS: dict[str, Callable[[Place], DataSet]] = {
    "smollm2": smollm2.load,
    "ptb": ptb.load,
    "synthetic": synthetic.load,
    "characters": characters.load,
    "files": files.load,
}

__all__ = ["DATASETS", "DataSet", "Place"]
