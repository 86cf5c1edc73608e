"""Windows of tokens out of texts: one text after another, or each in proportion to its weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from shortlist.errors import BadInput
from shortlist.evaluation.kinds import Kinds

from .texts import Text, read_texts

Ids = npt.NDArray[np.int64]
Tokenizer = Callable[..., Any]


@dataclass(frozen=True)
class Windows:
    """Windows of a text. tokens: [w, t + 1] int64, a window and the token after it. documents: [w] int32.

    kinds: by the name of each text, the numbers of its documents.
    """

    tokens: Ids
    documents: npt.NDArray[np.int32]
    kinds: Kinds = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Tokens of a window, each of which gives a context."""
        return int(self.tokens.shape[1]) - 1

    @property
    def rows(self) -> int:
        """Context vectors that the windows give."""
        return int(self.tokens.shape[0]) * self.length

    def select(self, indices: Ids) -> Windows:
        """The windows at `indices` [m], in that order."""
        return replace(self, tokens=self.tokens[indices], documents=self.documents[indices])


def cut_texts(texts: Sequence[Text], tokenizer: Tokenizer, length: int, rows: int | None) -> Windows:
    """Cut texts into windows of `length` tokens, for `rows` contexts (whole windows) or as many as there are.

    Texts without weights are one text, of which the first `rows` contexts are taken. Texts with weights take turns,
    each by itself, and give contexts in proportion to their weights from all over the text; one that is too short
    gives all that it has. Raises BadInput where a text is shorter than a window, and what `read_texts` raises.
    """
    documents, names = read_texts(texts), [text.path.stem for text in texts]
    weights = [text.weight for text in texts if text.weight is not None]
    limit = None if rows is None else -(-rows // length)
    if not weights:
        windows = cut_windows([part for parts in documents for part in parts], tokenizer, length, "the text")
        windows = replace(windows, kinds=number_kinds(names, [len(parts) for parts in documents]))
        return windows if limit is None else windows.select(np.arange(min(limit, len(windows.tokens))))
    every = [
        cut_windows(parts, tokenizer, length, str(text.path)) for text, parts in zip(texts, documents, strict=True)
    ]
    counts = share_windows([len(windows.tokens) for windows in every], weights, limit)
    return interleave_windows([spread_windows(*pair) for pair in zip(every, counts, strict=True)], names)


def cut_windows(documents: Sequence[str], tokenizer: Tokenizer, length: int, name: str) -> Windows:
    """Cut the documents of the text `name` in order into windows of `length` tokens.

    A window belongs to the document in which it begins, so that no window is in two.
    Raises BadInput when the text is shorter than one window.
    """
    tokens, owner = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    for index, document in enumerate(documents):
        ids = np.asarray(tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"], np.int64)
        tokens.append(ids)
        owner.append(np.full(len(ids), index, np.int32))
    stream, owners = np.concatenate(tokens), np.concatenate(owner)
    count = (len(stream) - 1) // length
    if count < 1:
        raise BadInput(f"{name} has {len(stream)} tokens, fewer than one window of {length}: give more, or --window")
    starts = np.arange(count) * length
    return Windows(stream[starts[:, None] + np.arange(length + 1)], owners[starts])


def share_windows(available: Sequence[int], weights: Sequence[float], limit: int | None) -> list[int]:
    """How many windows each text gives of those `available`, in proportion to `weights`, `limit` altogether.

    Where a text has fewer than its share the others give more. Without a limit: as many as the weights allow.
    """
    has, weight = np.asarray(available, np.float64), np.asarray(weights, np.float64)
    if limit is None:
        return [max(1, int(share)) for share in np.floor(weight * (has / weight).min() + 1e-9)]
    share = np.zeros(len(has))
    while (is_open := share < has).any() and limit - share.sum() > 1e-9:
        share = np.minimum(has, share + is_open * weight * (limit - share.sum()) / weight[is_open].sum())
    counts = np.floor(share + 1e-9)
    rest = min(limit, sum(available)) - int(counts.sum())
    counts[np.argsort(counts - share, kind="stable")[:rest]] += 1  # the largest parts of a window that were cut off
    return [int(count) for count in counts]


def spread_windows(windows: Windows, count: int) -> Windows:
    """`count` of the windows, at even distances."""
    return windows.select(np.arange(count) * len(windows.tokens) // max(1, count))


def interleave_windows(parts: Sequence[Windows], names: Sequence[str]) -> Windows:
    """The windows of several texts of these names by turns, so that the texts begin and end together.

    Each has documents of its own. What is held out by document, which are the last ones, is then of all texts.
    """
    places = np.concatenate([(np.arange(len(part.tokens)) + 0.5) / max(1, len(part.tokens)) for part in parts])
    owners = np.concatenate([np.full(len(part.tokens), index) for index, part in enumerate(parts)])
    documents = np.concatenate([part.documents for part in parts])
    pairs, numbers = np.unique(np.stack([owners, documents], axis=1), axis=0, return_inverse=True)
    kinds = number_kinds(names, np.bincount(pairs[:, 0], minlength=len(parts)).tolist())
    windows = Windows(np.concatenate([part.tokens for part in parts]), numbers.reshape(-1).astype(np.int32), kinds)
    return windows.select(np.argsort(places, kind="stable"))


def number_kinds(names: Sequence[str], counts: Sequence[int]) -> Kinds:
    """The numbers of the documents of each text, which come one text after the other; texts of one name are one."""
    kinds: Kinds = {}
    for name, count, end in zip(names, counts, np.cumsum(counts).tolist(), strict=True):
        kinds.setdefault(name, []).extend(range(end - count, end))
    return kinds
