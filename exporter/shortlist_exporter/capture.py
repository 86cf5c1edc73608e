"""Hidden states of a language model over text files, streamed to disk; a killed run continues where it was.

Rows go to a memory-mapped file in a hidden folder beside the output; what is done is noted after every batch.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save_file
from shortlist.bundle import sha256
from shortlist.errors import BadInput, NotFound, ShortlistError

from .language_model import LanguageModel
from .sources import Dense

HEADING = re.compile(r"^(?= = [^=].* = \n)|^(?=Chapter \w+\n)", re.MULTILINE)  # WikiText's titles, a novel's chapters
STATE = "state.json"
ROWS = "rows.f32"

Ids = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Windows:
    """tokens: [w, t + 1] int64, a window and the token after it. documents: [w] int32."""

    tokens: Ids
    documents: npt.NDArray[np.int32]

    @property
    def rows(self) -> int:
        """Context vectors that the windows give."""
        return int(self.tokens.shape[0] * (self.tokens.shape[1] - 1))


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
        documents += [part for part in HEADING.split(text) if part.strip()]
    if not documents:
        raise BadInput(f"{', '.join(map(str, paths))} holds no text: give a file with words in it")
    return documents


def windows_of(documents: Sequence[str], tokenizer: Callable[..., object], length: int, rows: int | None) -> Windows:
    """Consecutive windows of `length` tokens over the documents in order, for at most `rows` contexts.

    A window belongs to the document in which it begins, so that no window is in two.
    Raises BadInput when the text is shorter than one window.
    """
    tokens, owner = [], []
    for index, document in enumerate(documents):
        ids = np.asarray(tokenizer(document)["input_ids"], np.int64)  # type: ignore[index]
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


class Parts:
    """The unfinished rows of one capture, in a hidden folder beside `out`."""

    def __init__(self, out: Path, key: dict[str, object], rows: int, dim: int) -> None:
        """Open what an earlier run with the same `key` left, or start again."""
        self.folder = out.parent / f".{out.name}.parts"
        self.key = key
        state = self.read_state()
        self.done = int(str(state["done"])) if state.get("key") == key else 0
        self.discarded = bool(state) and state.get("key") != key
        if not self.done:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
        self.rows = np.memmap(self.folder / ROWS, np.float32, "r+" if self.done else "w+", shape=(rows, dim))

    def read_state(self) -> dict[str, object]:
        """What an earlier run noted; empty where there is nothing whole."""
        try:
            state = json.loads((self.folder / STATE).read_text())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def add(self, rows: npt.NDArray[np.float32]) -> None:
        """Append rows [m, d] and note it: first the data, then the note."""
        self.rows[self.done : self.done + len(rows)] = rows
        self.rows.flush()
        self.done += len(rows)
        note = self.folder / f"{STATE}.new"
        note.write_text(json.dumps({"key": self.key, "done": self.done}))
        note.replace(self.folder / STATE)

    def remove(self) -> None:
        """Delete the folder: the capture is whole."""
        del self.rows
        shutil.rmtree(self.folder, ignore_errors=True)


def capture(
    model: LanguageModel,
    texts: Sequence[Path],
    out: Path,
    *,
    rows: int | None = None,
    window: int = 512,
    batch: int = 4,
    dtype: str = "float32",
    progress: Progress = lambda done, total: None,
) -> int:
    """Write `contexts`, `targets` and `documents` to `out` (safetensors); returns the number of rows.

    rows: at most so many contexts (whole windows). window: tokens. batch: windows at a time.
    dtype: of the stored contexts, `float32` or `float16`. Raises NotFound, BadInput, ShortlistError (disk full).
    """
    windows = windows_of(read_texts(texts), model.tokenizer, window, rows)
    key: dict[str, object] = {
        "model": str(model.source.resolve()),
        "texts": [sha256(path) for path in texts],
        "windows": list(windows.tokens.shape),
        "batch": batch,
    }
    try:
        parts = Parts(out, key, windows.rows, model.dense.dim)
        progress(parts.done, windows.rows)
        for states in forward(model, windows, batch, parts.done // window):
            parts.add(states)
            progress(parts.done, windows.rows)
        write_contexts(out, parts.rows.astype(dtype), windows)
        parts.remove()
    except OSError as error:
        raise ShortlistError(
            f"{out} cannot be written ({error.strerror or error}): free some space, run it again"
        ) from error
    return windows.rows


def forward(model: LanguageModel, windows: Windows, batch: int, first: int) -> Iterator[npt.NDArray[np.float32]]:
    """Hidden states [batch * t, d] of the windows from `first` on."""
    for start in range(first, len(windows.tokens), batch):
        states = model.hidden_states(torch.from_numpy(windows.tokens[start : start + batch, :-1]))
        yield states.reshape(-1, states.shape[-1]).numpy()


def write_contexts(out: Path, contexts: npt.NDArray[np.generic], windows: Windows) -> None:
    """The finished file, in one rename."""
    length = windows.tokens.shape[1] - 1
    write_whole(
        out,
        {
            "contexts": contexts,
            "targets": np.ascontiguousarray(windows.tokens[:, 1:]).reshape(-1),
            "documents": np.repeat(windows.documents, length),
        },
        {},
    )


def write_head(out: Path, dense: Dense, source: str) -> None:
    """`weight`, `bias`, `padded`, with scale and soft-cap in the metadata."""
    tensors: dict[str, npt.NDArray[np.generic]] = {"weight": dense.weight, "padded": dense.padded}
    if dense.bias is not None:
        tensors["bias"] = dense.bias
    metadata = {"logit_scale": repr(dense.logit_scale), "model": source}
    if dense.soft_cap is not None:
        metadata["soft_cap"] = repr(dense.soft_cap)
    write_whole(out, tensors, metadata)


def write_whole(out: Path, tensors: dict[str, npt.NDArray[np.generic]], metadata: dict[str, str]) -> None:
    """A safetensors file that is there whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(f".{out.name}.unfinished")
    try:
        save_file(tensors, unfinished, metadata)
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
