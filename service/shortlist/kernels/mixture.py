"""The front of plan `mixture` by the native library, in one pass over its weights; and whole answers of single rows."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_int64, c_void_p, pointer
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, IdArray
from shortlist.runtime.parallel import ThreadedRows
from shortlist.runtime.shared_tables import share_table

from .grouped.effort import Search, make_search
from .grouped.runner import CompiledSearch
from .grouped.tables import GroupedStruct
from .native.arguments import get_address, point_at
from .native.library import open_kernels, require_kernels
from .primitives.arrays import as_carray
from .primitives.layout import LANES, arrange_float_blocks
from .row_answers import RowAnswers

MAX_COMPONENTS = 64  # as in kernels.h; graphs mix more
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

    _fields_ = [("front", POINTER(MixtureStruct)), ("rare", POINTER(GroupedStruct)), ("frequent_ids", c_void_p)]
    parts: Any


class CompiledFront:
    """Mixes contexts by compiled loops. Threads may share it."""

    def __init__(self, bundle: Bundle, threads: int) -> None:
        """Lay the arrays out in blocks of classes, after index.safetensors was read. Raises NoLibrary, BundleError."""
        self.kernels, self.threaded_rows = require_kernels(), ThreadedRows(threads)
        arrays, digest = map_arrays(bundle), bundle.manifest.digest
        self.sizes = find_sizes(arrays)
        self.tables = {role: share_table(digest, role, partial(lay_out, arrays[role])) for role in ROLES}
        addresses = (get_address(table, np.float32, role) for role, table in self.tables.items())
        self.struct = MixtureStruct(*addresses, *self.sizes)
        self.pointer = byref(self.struct)

    @classmethod
    def open(cls, bundle: Bundle, threads: int) -> Self | None:
        """Open the loops; None without a library, without arrays for them, and for very many components."""
        if open_kernels() is None or not bundle.has_arrays(*ROLES):
            return None
        return cls(bundle, threads) if find_sizes(map_arrays(bundle)).components <= MAX_COMPONENTS else None

    def __call__(self, contexts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Vectors [B, d] that score rare classes, and logits [B, S] of the frequent ones, of contexts [B, d]."""
        rows = len(contexts)
        means, logits = np.empty_like(contexts, order="C"), np.empty((rows, self.sizes.frequent), np.float32)
        if rows:
            arrays = point_at(as_carray(contexts)), point_at(means), point_at(logits)
            self.threaded_rows(lambda some: self.fill(*arrays, int(some[0]), int(some[-1]) + 1), np.arange(rows))
        return means, logits

    def open_row_answers(
        self, rare: CompiledSearch, frequent: IdArray, max_k: int, plan_search: Callable[[int], Search]
    ) -> RowAnswers:
        """What answers single rows for k up to `max_k`, searching among the rare classes as `plan_search` says for k.

        frequent: [S], ascending ids of the frequent classes.
        """
        head = HeadStruct(pointer(self.struct), pointer(rare.struct), get_address(frequent, np.int64, "frequent"))
        head.parts = self, rare, frequent
        function = self.kernels.answer_row_of_mixture
        return RowAnswers(function, byref(head), self.sizes.dim, lambda k: make_search(plan_search(k)), max_k)

    def fill(self, *arguments: Any) -> None:
        if not self.kernels.mix_rows(self.pointer, *arguments):
            raise MemoryError("there is no memory to mix components")


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
