"""Hidden states of a language model over text files, streamed to disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from shortlist_exporter.core.types import Progress, quiet

from .language_model import LanguageModel
from .spool import Columns
from .stream import Batch, Notice, Source, check_window, compute_key, ignore, write_contexts
from .texts import Text, list_texts
from .windows import Windows, cut_texts

WINDOW = 512  # tokens
BATCH_WINDOWS = 4  # at a time


def capture(
    model: LanguageModel,
    texts: Sequence[Text],
    out: Path,
    *,
    rows: int | None = None,
    window: int = WINDOW,
    batch: int = BATCH_WINDOWS,
    dtype: str = "float32",
    progress: Progress = quiet,
    notice: Notice = ignore,
) -> int:
    """Write `contexts`, `targets` and `documents` to `out` (safetensors); returns the number of rows.

    The metadata `kinds` say which documents are of which text, by the name of its file.

    rows: at most so many contexts (whole windows), shared among the texts as `cut_texts` says. window: tokens.
    batch: windows at a time. dtype: of the stored contexts, `float32` or `float16`.
    Raises NotFound, BadInput, ShortlistError (disk full).
    """
    check_window(model, window)
    windows = cut_texts(list_texts(texts), model.tokenizer, window, rows)
    return capture_windows(model, windows, out, batch=batch, dtype=dtype, progress=progress, notice=notice)


def capture_windows(
    model: LanguageModel,
    windows: Windows,
    out: Path,
    *,
    batch: int = BATCH_WINDOWS,
    dtype: str = "float32",
    progress: Progress = quiet,
    notice: Notice = ignore,
) -> int:
    """Write what `capture` does, of windows that are cut already."""
    columns = make_columns(windows)
    digests = [hashlib.sha256(values.tobytes()).hexdigest() for values in columns.values()]
    key = compute_key(model, windows.tokens[:, 0].tolist(), digests, windows.kinds, windows.length, dtype)
    batches = partial(run_model, model, windows, batch)
    source = Source(key, columns, lambda first: batches(first // windows.length), windows.kinds)
    return write_contexts(model, source, out, dtype, progress, notice)


def run_model(model: LanguageModel, windows: Windows, batch: int, first: int) -> Iterator[Batch]:
    """Hidden states [batch * t, d] of the windows from `first` on."""
    for start in range(first, len(windows.tokens), batch):
        states = model.hidden_states(torch.from_numpy(windows.tokens[start : start + batch, :-1]))
        yield Batch(states.reshape(-1, states.shape[-1]).numpy(), {})


def make_columns(windows: Windows) -> Columns:
    """The next token, which is the target, and the document of every row."""
    return {
        "targets": np.ascontiguousarray(windows.tokens[:, 1:]).reshape(-1),
        "documents": np.repeat(windows.documents, windows.length),
    }
