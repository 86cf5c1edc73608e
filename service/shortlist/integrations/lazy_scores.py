"""A tensor of log-probabilities [..., V] that knows the k best of each row, and writes all V only if they are read.

What greedy and beam search of transformers do with logits is done on the k best: to take the last position, to copy, a
log-softmax, to add the score of each beam, to put the beams of a text side by side, the best of them. A row of V =
262,144 is then never written. The log-softmax of log-probabilities is themselves: computed, as the float32 sum of so
many equal shares, it would be off by up to 1e-3 nats, which changes beams. All else is done on an ordinary tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .scores import ScoreMemory

Tensor = torch.Tensor
Call = Callable[..., Any]
Alias = Callable[[Tensor], Tensor]


@dataclass
class Rows:
    """Rows of V scores, and whether they were written.

    ids [n, k] int64; scores [n, k] float32, best first; rest [n, 1] float32 of each other class, no more than the least
    of those. memory: what they are written to. normalized: whether exp of a row sums to 1. table: [n, V] float32, once
    written; from then on it alone counts, since it may have been changed.
    """

    ids: Tensor
    scores: Tensor
    rest: Tensor
    memory: ScoreMemory
    normalized: bool = True
    table: Tensor | None = None

    @property
    def classes(self) -> int:
        """V."""
        return self.memory.classes

    def write(self) -> Tensor:
        """The table [n, V], written when it is first asked for."""
        if self.table is None:
            arrays = (self.ids.numpy(), self.scores.numpy(), self.rest.numpy())
            self.table = torch.from_numpy(self.memory.write(*arrays))
        return self.table


class LazyScores(torch.Tensor):
    """A tensor [..., g V] float32 on the CPU, whose last dimension holds g rows of `Rows` side by side.

    Its own storage is one NaN, so that what reads it without asking torch finds no numbers that look right.
    """

    held: Rows
    numbers: Tensor  # [..., g] int64, of the rows held
    alias: Alias  # what makes this tensor of the table of the rows

    @classmethod
    def __torch_function__(cls, func: Call, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do `func` on the k best where that is known to suffice, else on the written scores."""
        del types
        kwargs = kwargs or {}
        if func in DESCRIPTIONS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        shortcut = SHORTCUTS.get(func)
        if shortcut is not None and args and isinstance(args[0], LazyScores) and args[0].held.table is None:
            result = shortcut(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return func(*write_all(args), **dict(zip(kwargs, write_all(kwargs.values()), strict=True)))


def make_scores(held: Rows, numbers: Tensor | None = None, alias: Alias | None = None) -> LazyScores:
    """Scores in the shape of the rows' numbers [..., g], by default of all [n, V]; `alias` where they are another's."""
    numbers = torch.arange(len(held.ids))[:, None] if numbers is None else numbers
    shape = (*numbers.shape[:-1], numbers.shape[-1] * held.classes)
    scores: LazyScores = torch.full((1,), torch.nan).expand(shape).as_subclass(LazyScores)
    scores.held, scores.numbers = held, numbers
    scores.alias = alias or (lambda table: table.view(shape))
    return scores


def write_scores(scores: LazyScores) -> Tensor:
    """All of them, in an ordinary tensor that shares the memory of the rows held."""
    return scores.alias(scores.held.write())


def copy_scores(scores: LazyScores, added: Tensor | None = None) -> LazyScores:
    """Scores of the same shape that are held by themselves. added: [..., 1], what is added to each row."""
    held, numbers = scores.held, scores.numbers.flatten()
    known, rest, normalized = held.scores[numbers], held.rest[numbers], held.normalized
    if added is not None:
        known, rest, normalized = known + added.reshape(-1, 1), rest + added.reshape(-1, 1), False
    rows = Rows(held.ids[numbers], known, rest, held.memory, normalized)
    return make_scores(rows, torch.arange(numbers.numel()).view(scores.numbers.shape))


def write_all(values: Iterable[Any]) -> list[Any]:
    """Arguments of a function of torch, with ordinary tensors in the place of lazy ones, in sequences too."""
    return [write_one(value) for value in values]


def write_one(value: Any) -> Any:
    """An argument of a function of torch, likewise."""
    if type(value) in (list, tuple):
        return type(value)(write_all(value))
    return write_scores(value) if isinstance(value, LazyScores) else value


def has_one_row(scores: LazyScores, dim: Any) -> bool:
    """Whether `dim` is the last dimension, and that one row."""
    return dim in (-1, scores.ndim - 1) and scores.numbers.shape[-1] == 1


def index_scores(scores: LazyScores, index: Any) -> Any:
    """`scores[index]`, by whole numbers and slices, that of the classes a whole one."""
    parts = index if isinstance(index, tuple) else (index,)
    whole = parts[scores.ndim - 1 :] in ((), (slice(None),))
    if not (whole and all(type(part) in (int, slice) for part in parts)):
        return NotImplemented
    return make_scores(scores.held, scores.numbers[parts], lambda table: scores.alias(table)[index])


def reshape_scores(scores: LazyScores, *shape: Any) -> Any:
    """`scores.reshape(*shape)`, where that parts no row."""
    with torch._C.DisableTorchFunctionSubclass():
        sizes = tuple(torch.Tensor.reshape(scores, *shape).shape)
    if not sizes or sizes[-1] % scores.held.classes:
        return NotImplemented
    numbers = scores.numbers.reshape(*sizes[:-1], sizes[-1] // scores.held.classes)
    return make_scores(scores.held, numbers, lambda table: scores.alias(table).reshape(sizes))


def convert_scores(scores: LazyScores, *args: Any, copy: bool = False, dtype: Any = None, device: Any = None) -> Any:
    """`scores.to(...)`, where dtype and device stay what they are."""
    if args or dtype not in (None, torch.float32) or (device is not None and torch.device(device).type != "cpu"):
        return NotImplemented
    return copy_scores(scores) if copy else scores


def normalize_scores(scores: LazyScores, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    """Their log-softmax, which is a copy of them."""
    del _stacklevel
    known = scores.held.normalized and has_one_row(scores, dim) and dtype is None
    return copy_scores(scores) if known else NotImplemented


def add_scores(scores: LazyScores, other: Any) -> Any:
    """`scores + other`, where that is one number float32 for each row."""
    plain = isinstance(other, Tensor) and not isinstance(other, LazyScores)
    if not (plain and other.dtype == torch.float32 and other.shape == (*scores.shape[:-1], 1)):
        return NotImplemented
    return copy_scores(scores, other) if has_one_row(scores, -1) else NotImplemented


def choose_best(scores: LazyScores, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """`scores.topk(k)`, where no class beside the k best of each row can be among them."""
    held, numbers = scores.held, scores.numbers
    if not (dim in (-1, scores.ndim - 1) and largest and k <= numbers.shape[-1] * held.ids.shape[1]):
        return NotImplemented
    before = torch.arange(numbers.shape[-1])[:, None] * held.classes
    best, places = held.scores[numbers].flatten(-2).topk(k, sorted=sorted)
    if not bool((best.amin(dim=-1) >= held.rest[numbers].amax(dim=(-1, -2))).all()):
        return NotImplemented
    return torch.return_types.topk((best, (held.ids[numbers] + before).flatten(-2).gather(-1, places)))


def choose_first(scores: LazyScores, dim: Any = None, keepdim: bool = False) -> Any:
    """`scores.argmax(-1)`: the lowest of equal ids, since a head puts that first."""
    if not has_one_row(scores, dim):
        return NotImplemented
    ids = scores.held.ids[scores.numbers, 0]
    return ids if keepdim else ids[..., 0]


DESCRIPTIONS = {
    *(getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "is_cuda", "requires_grad")),
    *(torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.__len__),
}  # what the shape alone answers
SHORTCUTS: dict[Call, Call] = {
    torch.Tensor.__getitem__: index_scores,
    torch.Tensor.to: convert_scores,
    **dict.fromkeys((torch.nn.functional.log_softmax, torch.log_softmax, torch.Tensor.log_softmax), normalize_scores),
    **dict.fromkeys((torch.Tensor.add, torch.Tensor.__add__, torch.add), add_scores),
    **dict.fromkeys((torch.reshape, torch.Tensor.reshape, torch.Tensor.view), reshape_scores),
    **dict.fromkeys((torch.topk, torch.Tensor.topk), choose_best),
    **dict.fromkeys((torch.argmax, torch.Tensor.argmax), choose_first),
}
