"""Hidden states of a language model over text that it makes up itself, streamed to disk.

Each window is a document of its own. It starts with a token drawn evenly from the vocabulary, so that many starts lead
to many kinds of text, and goes on with tokens drawn from what the model expects, at temperature 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from shortlist_exporter.core.types import Progress, quiet

from .language_model import LanguageModel
from .spool import Columns
from .stream import Batch, Notice, Source, check_window, compute_key, ignore, write_contexts

SAMPLED_ROWS = 60_000
SAMPLED_WINDOW = 128  # tokens: short windows are many starts
SAMPLED_WINDOWS = 32  # at a time

Ids = npt.NDArray[np.int64]
Draws = npt.NDArray[np.float64]


def capture_samples(
    model: LanguageModel,
    out: Path,
    *,
    rows: int = SAMPLED_ROWS,
    window: int = SAMPLED_WINDOW,
    batch: int = SAMPLED_WINDOWS,
    dtype: str = "float32",
    seed: int = 0,
    progress: Progress = quiet,
    notice: Notice = ignore,
) -> int:
    """Write `contexts`, `targets` and `documents` to `out` (safetensors); returns the number of rows.

    rows: so many contexts, rounded up to whole windows. window: tokens. batch: windows at a time, which does not change
    what is drawn but for rounding. dtype: of the stored contexts, `float32` or `float16`.
    Raises BadInput, ShortlistError (disk full).
    """
    check_window(model, window)
    count = -(-rows // window)
    columns: Columns = {
        "targets": np.zeros(count * window, np.int64),  # known once they are drawn
        "documents": np.repeat(np.arange(count, dtype=np.int32), window),
    }
    key = compute_key(model, "samples", count, window, dtype, seed)
    source = Source(key, columns, lambda first: sample_windows(model, count, window, batch, seed, first // window))
    return write_contexts(model, source, out, dtype, progress, notice)


def sample_windows(model: LanguageModel, count: int, length: int, batch: int, seed: int, first: int) -> Iterator[Batch]:
    """Batches of `batch` windows of `length` tokens, from the window `first` to `count`."""
    for start in range(first, count, batch):
        numbers = range(start, min(start + batch, count))
        # numbers of each window's own, whatever the batch
        draws = np.stack([np.random.default_rng([seed, number]).random(length + 1) for number in numbers])
        states, tokens = sample_texts(model, draws)
        yield Batch(states.reshape(-1, states.shape[-1]), {"targets": tokens[:, 1:].reshape(-1)})


def sample_texts(model: LanguageModel, draws: Draws) -> tuple[npt.NDArray[np.float32], Ids]:
    """States [b, t, d] and tokens [b, t + 1] of texts drawn with `draws` [b, t + 1], which are from 0 to under 1.

    After a token that ends a text comes a new start.
    """
    starts, padded = list_starts(model), torch.from_numpy(model.dense.padded)
    tokens, states, cache = [draw_start(starts, draws[:, 0])], [], None
    unread = torch.tensor([model.prefix] * len(draws), dtype=torch.int64).reshape(len(draws), -1)
    for draw in draws.T[1:]:
        unread = torch.cat([unread, torch.from_numpy(tokens[-1])[:, None]], dim=1)
        state, logits, cache = model.read_on(unread, cache)
        unread = unread[:, :0]
        states.append(state.numpy())
        following = draw_next(logits.index_fill(1, padded, -torch.inf), draw)
        tokens.append(np.where(np.isin(tokens[-1], model.ends), draw_start(starts, draw), following))
    return np.stack(states, axis=1), np.stack(tokens, axis=1)


def list_starts(model: LanguageModel) -> Ids:
    """The tokens that a text may start with: all but padding and those that are no text."""
    apart = [*model.dense.padded, *model.tokenizer.all_special_ids, *model.ends]
    return np.setdiff1d(np.arange(model.dense.classes), apart)


def draw_start(starts: Ids, draw: Draws) -> Ids:
    """A token of `starts` for each entry of `draw` [b], each as likely as any other."""
    return starts[(draw * len(starts)).astype(np.int64)]


def draw_next(logits: torch.Tensor, draw: Draws) -> Ids:
    """A token for each row of `logits` [b, V] by its probability, as `draw` [b] says; never one that has none."""
    sums = (logits - logits.amax(dim=1, keepdim=True)).exp_().cumsum(dim=1)
    total = sums[:, -1:]
    level = torch.minimum(torch.from_numpy(draw).float()[:, None] * total, total.nextafter(torch.zeros(1)))
    return torch.searchsorted(sums, level, right=True)[:, 0].numpy()
