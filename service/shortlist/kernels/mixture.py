"""The front of plan `mixture` by the native library, in one pass over its weights; and whole answers of single rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, byref, c_int64, c_void_p, pointer
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, IdArray, IntArray
from shortlist.runtime.parallel import ThreadedRows
from shortlist.runtime.shared_tables import share_table

from .grouped.effort import Search, make_search
from .grouped.runner import CompiledSearch
from .grouped.tables import GroupedStruct
from .mixture_previews import FrequentPreviews, PreviewsStruct
from .native.arguments import check_memory, get_address, point_at
from .native.library import Function, open_kernels, require_kernels
from .primitives.arrays import as_carray
from .primitives.layout import LANES, arrange_float_blocks
from .row_answers import RowAnswers

MAX_COMPONENTS = 64  # as in kernels.h; graphs mix more
SLOW_TARGETS = "avx2", "portable"  # whose products of bytes take as long as those of floats: no previews
# Roles of the bundle's arrays: columns [n, m], biases [m] or [G, m]. Those of the gates settle sizes for others
GATE_ROLES = "mixture_gates", "mixture_gate_bias"
ROLES = "mixture_layers", "mixture_layers_bias", *GATE_ROLES, "mixture_columns", "mixture_bias"


class FrontSizes(NamedTuple):
    """Sizes of `struct mixture`, in its order: S frequent classes, of K components with G gates of width W."""

    dim: int
    components: int
    gate_count: int
    gate_width: int
    layer_blocks: int
    blocks: int
    frequent: int
    is_tree: bool


class MixtureStruct(Structure):
    """`struct mixture` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [
        *((name, c_void_p) for name in ROLES),
        *((name, c_int64) for name in FrontSizes._fields),
    ]


class HeadStruct(Structure):
    """`struct mixture_head` of kernels.h; it keeps what it points at."""

    _fields_ = [
        ("front", POINTER(MixtureStruct)),
        ("previews", POINTER(PreviewsStruct)),
        ("rare", POINTER(GroupedStruct)),
        ("frequent_ids", c_void_p),
    ]
    parts: Any


class Previewed(NamedTuple):
    """What previews say of B contexts: vectors `means` [B, d] that score rare classes; `logits` [B, S] of the frequent.

    A logit is exact where its class may be among the best, else off by its `reach` [B, S] at most. scored: [B], how
    many are exact. errors: [B], by how many nats the log of the sum of exp(logit) may be off at most.
    """

    means: FloatArray
    logits: FloatArray
    scored: IntArray
    reaches: FloatArray | None
    errors: npt.NDArray[np.float64] | None


class CompiledFront:
    """Mixes contexts by compiled loops. Threads may share it."""

    def __init__(self, bundle: Bundle, threads: int, frequent: IdArray) -> None:
        """Lay the arrays out in blocks of classes, after index.safetensors was read. Raises NoLibrary, BundleError.

        frequent: [S], ascending ids of the frequent classes.
        """
        self.kernels, self.threaded_rows = require_kernels(), ThreadedRows(threads)
        arrays, digest = map_arrays(bundle), bundle.manifest.digest
        self.sizes = find_sizes(arrays)
        self.tables = {role: share_table(digest, role, partial(lay_out, arrays[role])) for role in ROLES}
        addresses = (get_address(table, np.float32, role) for role, table in self.tables.items())
        self.struct = MixtureStruct(*addresses, *self.sizes)
        self.pointer, self.frequent = byref(self.struct), frequent
        is_slow = self.kernels.target in SLOW_TARGETS
        self.previews = None if is_slow else FrequentPreviews.open(bundle, frequent)

    @classmethod
    def open(cls, bundle: Bundle, threads: int, frequent: IdArray) -> Self | None:
        """Open the loops; None without a library, without arrays for them, and for very many components."""
        if open_kernels() is None or not bundle.has_arrays(*ROLES):
            return None
        fits = find_sizes(map_arrays(bundle)).components <= MAX_COMPONENTS
        return cls(bundle, threads, frequent) if fits else None

    def __call__(self, contexts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Vectors [B, d] that score rare classes, and logits [B, S] of the frequent ones, of contexts [B, d]."""
        means, logits = self.make_results(len(contexts))
        self.fill(self.kernels.mix_rows, contexts, (means, logits), self.pointer)
        return means, logits

    def preview(self, contexts: FloatArray, k: int, *, reaches: bool = False, errors: bool = False) -> Previewed:
        """As a call, by previews, but for the classes that may be among the k best; exact without previews, and many k.

        reaches, errors: whether these are asked for. k = 0: all logits are previews.
        """
        rows = len(contexts)
        means, logits = self.make_results(rows)
        scored = np.empty(rows, np.int32)
        some = np.empty_like(logits) if reaches else None, np.empty(rows) if errors else None
        struct = None if self.previews is None else self.previews.pointer
        arrays = means, logits, scored, *some
        self.fill(self.kernels.mix_rows_by_previews, contexts, arrays, self.pointer, struct, k)
        return Previewed(*arrays)

    def make_results(self, rows: int) -> tuple[FloatArray, FloatArray]:
        """Arrays for means [B, d] and logits [B, S], uninitialised."""
        return np.empty((rows, self.sizes.dim), np.float32), np.empty((rows, self.sizes.frequent), np.float32)

    def fill(self, function: Function, contexts: FloatArray, arrays: Sequence[Any], *parts: Any) -> None:
        """Let `function` fill `arrays` for all rows, by several threads where they are worth that."""
        if not len(contexts):
            return
        pointers = [None if array is None else point_at(array) for array in (as_carray(contexts), *arrays)]

        def fill_some(first: int, last: int) -> None:
            check_memory(function(*parts, *pointers, first, last), "to mix components")

        self.threaded_rows(fill_some, len(contexts))

    def open_row_answers(self, rare: CompiledSearch, max_k: int, plan_search: Callable[[int], Search]) -> RowAnswers:
        """What answers single rows for k up to `max_k`, searching the rare classes as `plan_search` says for k."""
        previews = None if self.previews is None else pointer(self.previews.struct)
        ids = get_address(self.frequent, np.int64, "frequent")
        head = HeadStruct(pointer(self.struct), previews, pointer(rare.struct), ids)
        head.parts = self, rare
        function = self.kernels.answer_row_of_mixture
        return RowAnswers(function, byref(head), self.sizes.dim, lambda k: make_search(plan_search(k)), max_k)


def lay_out(array: npt.NDArray[Any]) -> FloatArray:
    """Lay columns [n, m], or the biases [m] of one, out in blocks of rows."""
    return arrange_float_blocks(array if array.ndim == 2 else array[None])


def map_arrays(bundle: Bundle) -> dict[str, FloatArray]:
    """The bundle's arrays by role; raises BundleError where they do not fit each other."""
    return {role: bundle.map_array(role) for role in (*GATE_ROLES, *ROLES)}


def find_sizes(arrays: dict[str, FloatArray]) -> FrontSizes:
    """The sizes of a front, by the shapes of its arrays."""
    shapes = {role: array.shape for role, array in arrays.items()}
    (dim, layers), (gate_width, _) = shapes["mixture_layers"], shapes["mixture_gates"]
    gates, frequent = shapes["mixture_gate_bias"][0], shapes["mixture_bias"][0]
    components = (layers - gates * (gate_width + 1)) // dim
    blocks = -(-layers // LANES), -(-frequent // LANES)
    return FrontSizes(dim, components, gates, gate_width, *blocks, frequent, gates < components)
