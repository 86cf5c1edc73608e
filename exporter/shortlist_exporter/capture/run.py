"""Hidden states of a language model over text files, streamed to disk; a killed run continues where it was."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from shortlist.bundle.files import sha256
from shortlist.errors import BadInput, NotFound, ShortlistError

from shortlist_exporter.core.types import Progress, quiet
from shortlist_exporter.inputs.sources import Dense

from .language_model import LanguageModel
from .spool import Spool

HEADING_PATTERN = re.compile(
    r"^(?= = [^=].* = \n)|^(?=Chapter \w+\n)", re.MULTILINE
)  # WikiText's titles, a novel's chapters
CAPTURE_STAGE = "contexts"
METADATA_KEY = "capture"  # metadata: what the file was made from

Ids = npt.NDArray[np.int64]
Notice = Callable[[str], None]


@dataclass(frozen=True)
class Windows:
    """Windows of a text. tokens: [w, t + 1] int64, a window and the token after it. documents: [w] int32."""

    tokens: Ids
    documents: npt.NDArray[np.int32]

    @property
    def length(self) -> int:
        """Tokens of a window, each of which gives a context."""
        return int(self.tokens.shape[1]) - 1

    @property
    def rows(self) -> int:
        """Context vectors that the windows give."""
        return int(self.tokens.shape[0]) * self.length


def read_texts(paths: Sequence[Path]) -> list[str]:
    """The documents of all files: parts that begin at a heading, or the whole file; raises NotFound, BadInput."""
    documents: list[str] = []
    for path in paths:
        if not path.is_file():
            raise NotFound(f"there is no text file {path}")
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is not UTF-8 text (byte {error.start}): convert it first") from error
        documents += [part for part in HEADING_PATTERN.split(text) if part.strip()]
    if not documents:
        raise BadInput(f"{', '.join(map(str, paths))} holds no text: give a file with words in it")
    return documents


def cut_windows(documents: Sequence[str], tokenizer: Callable[..., Any], length: int, rows: int | None) -> Windows:
    """Cut the documents in order into windows of `length` tokens, for at most `rows` contexts.

    A window belongs to the document in which it begins, so that no window is in two.
    Raises BadInput when the text is shorter than one window.
    """
    tokens, owner = [], []
    for index, document in enumerate(documents):
        ids = np.asarray(tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"], np.int64)
        tokens.append(ids)
        owner.append(np.full(len(ids), index, np.int32))
    stream, owners = np.concatenate(tokens), np.concatenate(owner)
    count = (len(stream) - 1) // length
    if rows is not None:
        count = min(count, -(-rows // length))
    if count < 1:
        raise BadInput(f"the text has {len(stream)} tokens, fewer than one window of {length}: give more, or --window")
    starts = np.arange(count) * length
    return Windows(stream[starts[:, None] + np.arange(length + 1)], owners[starts])


def capture(
    model: LanguageModel,
    texts: Sequence[Path],
    out: Path,
    *,
    rows: int | None = None,
    window: int = 512,
    batch: int = 4,
    dtype: str = "float32",
    progress: Progress = quiet,
    notice: Notice = lambda sentence: None,
) -> int:
    """Write `contexts`, `targets` and `documents` to `out` (safetensors); returns the number of rows.

    rows: at most so many contexts (whole windows). window: tokens. batch: windows at a time.
    dtype: of the stored contexts, `float32` or `float16`. `notice` gets a sentence where earlier work is kept or left.
    Raises NotFound, BadInput, ShortlistError (disk full).
    """
    if model.max_window is not None and window > model.max_window:
        raise BadInput(f"--window {window} is over the {model.max_window} tokens that the model can read: give fewer")
    windows = cut_windows(read_texts(texts), model.tokenizer, window, rows)
    key = compute_key(model, texts, windows, dtype)
    if read_key(out) == key:
        notice(f"{out} holds this capture already")
        return windows.rows
    with report_disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        shape, metadata = (windows.rows, model.dense.dim), {METADATA_KEY: key, "model": model.source.name}
        with closing(Spool(out, key, make_columns(windows), shape, dtype, metadata)) as spool:
            report_earlier(spool, notice)
            fill_spool(spool, model, windows, batch, progress)
            spool.finish()
    return windows.rows


def fill_spool(spool: Spool, model: LanguageModel, windows: Windows, batch: int, progress: Progress) -> None:
    """Run the model over every window that the spool lacks."""
    progress(CAPTURE_STAGE, spool.row_count, windows.rows)
    for states in run_model(model, windows, batch, spool.row_count // windows.length):
        spool.add(check_states(states, spool.dtype))
        progress(CAPTURE_STAGE, spool.row_count, windows.rows)


def run_model(model: LanguageModel, windows: Windows, batch: int, first: int) -> Iterator[npt.NDArray[np.float32]]:
    """Hidden states [batch * t, d] of the windows from `first` on."""
    for start in range(first, len(windows.tokens), batch):
        states = model.hidden_states(torch.from_numpy(windows.tokens[start : start + batch, :-1]))
        yield states.reshape(-1, states.shape[-1]).numpy()


def check_states(states: npt.NDArray[np.float32], dtype: np.dtype[Any]) -> npt.NDArray[np.float32]:
    """`states`, or BadInput where they are not finite or do not fit `dtype`."""
    largest = float(np.abs(states).max())
    if not np.isfinite(largest):
        raise BadInput("the model gives hidden states that are NaN or infinite: its weights are damaged")
    if largest > float(np.finfo(dtype).max):
        raise BadInput(f"a hidden state of {largest:.3g} does not fit {dtype}: give --dtype float32")
    return states


def make_columns(windows: Windows) -> dict[str, npt.NDArray[Any]]:
    """The next token, which is the target, and the document of every row."""
    return {
        "targets": np.ascontiguousarray(windows.tokens[:, 1:]).reshape(-1),
        "documents": np.repeat(windows.documents, windows.length),
    }


def report_earlier(spool: Spool, notice: Notice) -> None:
    """Notify whether an earlier run's work is kept or left."""
    if spool.row_count:
        notice(f"continuing after {spool.row_count:,} contexts of an earlier run")
    elif spool.discards_earlier_run:
        notice("an earlier run had other arguments: starting again")


def compute_key(model: LanguageModel, texts: Sequence[Path], windows: Windows, dtype: str) -> str:
    """A hash of all that the rows depend on: the model's files, the texts, the windows, the dtype."""
    folder = model.source.resolve()
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else [folder]
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]  # hashing takes minutes
    parts = [str(folder), stamps, [sha256(path) for path in texts], list(windows.tokens.shape), dtype]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read_key(out: Path) -> str | None:
    """The key of a finished capture at `out`, or None."""
    try:
        with safe_open(out, framework="numpy") as file:
            return (file.metadata() or {}).get(METADATA_KEY)
    except (OSError, SafetensorError):
        return None


def write_head(out: Path, dense: Dense, source: str) -> None:
    """Write `weight`, `bias`, `padded` (safetensors), with scale and soft-cap in the metadata."""
    tensors: dict[str, npt.NDArray[Any]] = {"weight": dense.weight, "padded": dense.padded}
    if dense.bias is not None:
        tensors["bias"] = dense.bias
    metadata = {"logit_scale": repr(dense.logit_scale), "model": source}
    if dense.soft_cap is not None:
        metadata["soft_cap"] = repr(dense.soft_cap)
    with write_whole(out) as temporary:
        temporary.write_bytes(save(tensors, metadata))  # save_file would hide it from all other users


def write_labels(out: Path, labels: list[str]) -> None:
    """Write a JSON list of V strings."""
    with write_whole(out) as temporary:
        temporary.write_text(json.dumps(labels), "utf-8")


@contextmanager
def write_whole(out: Path) -> Iterator[Path]:
    """Give a path to write to that becomes `out` at the end, or is deleted; raises ShortlistError."""
    temporary = out.with_name(f".{out.name}.unfinished")
    with report_disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def report_disk_errors(out: Path) -> Iterator[None]:
    """Turn a full disk or a folder that cannot be written into a ShortlistError."""
    try:
        yield
    except OSError as error:
        raise ShortlistError(
            f"{out} cannot be written ({error.strerror or error}): mend that, then run the same command again"
        ) from error
