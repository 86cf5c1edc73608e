"""What a data set gives: a layer, contexts to fit on, and others with exact answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shortlist_exporter.inputs.sources import Contexts, Dense

from benchmarks.common.truth import Truth


@dataclass(frozen=True)
class DataSet:
    """fit and test never share a document."""

    name: str
    dense: Dense
    fit: Contexts
    test: Truth

    @property
    def fingerprint(self) -> str:
        """What tells this data set from one made of other files."""
        return f"{self.dense.sha256[:16]}-{self.fit.sha256[:16]}-{len(self.test.contexts)}"


@dataclass(frozen=True)
class Place:
    """Where data comes from and where what is made of it stays.

    data: the folder DATA, or None. cache: below build/. model: a language model, or None for the packaged one.
    options: `name=value` of the data set, as on the command line.
    """

    cache: Path
    data: Path | None = None
    model: Path | None = None
    options: dict[str, str] | None = None
