"""Hidden states of a language model over text files, streamed to disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from shortlist.bundle.reader import sha256

from shortlist_exporter.core.types import Progress, quiet

from .language_model import LanguageModel
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

    rows: at most so many contexts (whole windows), shared among the texts as `cut_texts` says. window: tokens.
    batch: windows at a time. dtype: of the stored contexts, `float32` or `float16`.
    Raises NotFound, BadInput, ShortlistError (disk full).
    """
    check_window(model, window)
    files = list_texts(texts)
    windows = cut_texts(files, model.tokenizer, window, rows)
    parts = [[sha256(text.path), text.weight] for text in files]
    key = compute_key(model, parts, list(windows.tokens.shape), dtype)
    source = Source(key, make_columns(windows), lambda first: run_model(model, windows, batch, first // window))
    return write_contexts(model, source, out, dtype, progress, notice)


def run_model(model: LanguageModel, windows: Windows, batch: int, first: int) -> Iterator[Batch]:
    """Hidden states [batch * t, d] of the windows from `first` on."""
    for start in range(first, len(windows.tokens), batch):
        states = model.hidden_states(torch.from_numpy(windows.tokens[start : start + batch, :-1]))
        yield Batch(states.reshape(-1, states.shape[-1]).numpy(), {})


def make_columns(windows: Windows) -> dict[str, npt.NDArray[Any]]:
    """The next token, which is the target, and the document of every row."""
    return {
        "targets": np.ascontiguousarray(windows.tokens[:, 1:]).reshape(-1),
        "documents": np.repeat(windows.documents, windows.length),
    }
