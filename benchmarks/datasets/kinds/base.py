"""What a kind of text is, and how one is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .packages import Packages


@dataclass(frozen=True)
class Kind:
    """Documents of one genre and one language.

    contexts: [n, d] float32. documents: [n] int32, the document of every row. in_mixture: whether the shipped texts
    have the kind, in other documents.
    """

    name: str
    contexts: npt.NDArray[np.float32]
    documents: npt.NDArray[np.int32]
    in_mixture: bool


@dataclass(frozen=True)
class Place:
    """Where documents come from. data: the folder DATA, or None. packages: downloads what the machine lacks."""

    data: Path | None
    packages: Packages


@dataclass(frozen=True)
class Recipe:
    """How documents of a kind are found: `find` gives their texts, or raises NotFound with a sentence."""

    name: str
    find: Callable[[Place], Iterable[str]]
    in_mixture: bool = False
