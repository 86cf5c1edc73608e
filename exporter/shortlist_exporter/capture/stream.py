"""Contexts that are written to their file as they are computed; a killed run continues where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from shortlist.errors import BadInput
from shortlist.evaluation.kinds import KINDS, Kinds

from shortlist_exporter.core.types import Progress

from .files import report_disk_errors
from .language_model import LanguageModel
from .spool import Columns, Spool

CAPTURE_STAGE = "contexts"
METADATA_KEY = "capture"  # metadata: what the file was made from

Notice = Callable[[str], None]


def ignore(sentence: str) -> None:
    """A notice that nobody reads."""


@dataclass(frozen=True)
class Batch:
    """Some rows. contexts: [m, d] float32. columns: their entries of the columns that were not known beforehand."""

    contexts: npt.NDArray[np.float32]
    columns: Columns


@dataclass(frozen=True)
class Source:
    """Where contexts come from. key: a hash of all that they depend on. columns: n entries of each column.

    batches: from the first row that is wanted to the rest, batch by batch. kinds: of text, and their documents.
    """

    key: str
    columns: Columns
    batches: Callable[[int], Iterator[Batch]]
    kinds: Kinds = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many contexts there are, n."""
        return len(next(iter(self.columns.values())))


def write_contexts(
    model: LanguageModel, source: Source, out: Path, dtype: str, progress: Progress, notice: Notice
) -> int:
    """Write all contexts of `source` to `out` as `dtype`, `float32` or `float16`; returns the number of rows.

    `notice` gets a sentence where earlier work is kept or left.
    """
    if read_key(out) == source.key:
        notice(f"{out} holds this capture already")
        return source.rows
    with report_disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        shape, metadata = (source.rows, model.dense.dim), {METADATA_KEY: source.key, "model": model.source.name}
        metadata |= {KINDS: json.dumps(source.kinds)} if source.kinds else {}
        with closing(Spool(out, source.key, source.columns, shape, dtype, metadata)) as spool:
            report_earlier(spool, notice)
            fill_spool(spool, source, progress)
            spool.finish()
    return source.rows


def fill_spool(spool: Spool, source: Source, progress: Progress) -> None:
    """Add every row that the spool lacks."""
    progress(CAPTURE_STAGE, spool.row_count, source.rows)
    for batch in source.batches(spool.row_count):
        spool.add(check_states(batch.contexts, spool.dtype), batch.columns)
        progress(CAPTURE_STAGE, spool.row_count, source.rows)


def check_states(states: npt.NDArray[np.float32], dtype: np.dtype[Any]) -> npt.NDArray[np.float32]:
    """`states`, or BadInput where they are not finite or do not fit `dtype`."""
    largest = float(np.abs(states).max())
    if not np.isfinite(largest):
        raise BadInput("the model gives hidden states that are NaN or infinite: its weights are damaged")
    if largest > float(np.finfo(dtype).max):
        raise BadInput(f"a hidden state of {largest:.3g} does not fit {dtype}: give --dtype float32")
    return states


def report_earlier(spool: Spool, notice: Notice) -> None:
    """Notify whether an earlier run's work is kept or left."""
    if spool.row_count:
        notice(f"continuing after {spool.row_count:,} contexts of an earlier run")
    elif spool.discards_earlier_run:
        notice("an earlier run had other arguments: starting again")


def check_window(model: LanguageModel, window: int) -> None:
    """Raise BadInput where the model cannot read so many tokens."""
    if model.max_window is not None and window > model.max_window:
        raise BadInput(f"--window {window} is over the {model.max_window} tokens that the model can read: give fewer")


def compute_key(model: LanguageModel, *parts: Any) -> str:
    """A hash of the model's files and of `parts`, which are JSON values."""
    folder = model.source.resolve()
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else [folder]
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]  # hashing takes minutes
    return hashlib.sha256(json.dumps([str(folder), stamps, *parts]).encode()).hexdigest()


def read_key(out: Path) -> str | None:
    """The key of a finished capture at `out`, or None."""
    try:
        with safe_open(out, framework="numpy") as file:
            return (file.metadata() or {}).get(METADATA_KEY)
    except (OSError, SafetensorError):
        return None
