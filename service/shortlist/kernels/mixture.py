"""The front of plan `mixture` by the native library: what front.onnx computes, in one pass over its weights."""

from __future__ import annotations

from ctypes import Structure, byref, c_int64, c_void_p
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray
from shortlist.runtime.parallel import ThreadedRows
from shortlist.runtime.shared_tables import share_table

from .native.arguments import get_address, point_at
from .native.library import open_kernels, require_kernels
from .primitives.arrays import as_carray
from .primitives.layout import LANES, arrange_float_blocks

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


class CompiledFront:
    """Mixes contexts by compiled loops. Threads may share it."""

    def __init__(self, bundle: Bundle, threads: int) -> None:
        """Lay the arrays out in blocks of classes, after index.safetensors was read. Raises NoLibrary, BundleError."""
        self.kernels, self.threaded_rows = require_kernels(), ThreadedRows(threads)
        arrays, digest = map_arrays(bundle), bundle.manifest.digest
        self.sizes = find_sizes(arrays)
        self.tables = {role: share_table(digest, role, partial(lay_out, arrays[role])) for role in ROLES}
        addresses = (get_address(table, np.float32, role) for role, table in self.tables.items())
        self.pointer = byref(MixtureStruct(*addresses, *self.sizes))

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
