"""ONNX graphs over weights kept in raw files beside them, so that a runtime maps them instead of copying.

ONNX and ONNX Runtime refuse external data outside a graph's own folder; hence graphs and weights share one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from shortlist.bundle.manifest import RawArray

OPSET = 21
IR_VERSION = 10
INLINE_BYTES = 1 << 12  # smaller tensors live in the graph itself
WRITTEN_NUMBERS = 1 << 24  # of a transposed array, which are copied at once

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class GraphFiles:
    """Graphs by role, and raw arrays by the role that the service's compiled loops map them for, in some folder."""

    graphs: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, RawArray] = field(default_factory=dict)

    def __or__(self, other: GraphFiles) -> GraphFiles:
        return GraphFiles(self.graphs | other.graphs, self.arrays | other.arrays)

    def below(self, folder: str) -> GraphFiles:
        """These files, as seen from the folder that `folder` is in."""
        arrays = {
            role: array.model_copy(update={"file": f"{folder}/{array.file}"}) for role, array in self.arrays.items()
        }
        return GraphFiles({role: f"{folder}/{file}" for role, file in self.graphs.items()}, arrays)


@dataclass
class GraphBuilder:
    """Nodes and weights of one graph, written with `save`."""

    folder: Path
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)

    def node(self, operator: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        """Append one node; returns its output's name."""
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def tensor(self, name: str, values: npt.ArrayLike) -> str:
        """Add a weight: inline where it is small, else in `<name>.bin`, shared by every graph that names it.

        A name that the graph has already keeps its values.
        """
        if any(initializer.name == name for initializer in self.initializers):
            return name
        array = np.asarray(values)
        if is_inline(array):
            self.initializers.append(numpy_helper.from_array(array, name))
        else:
            self.initializers.append(write_external_tensor(self.folder, name, array))
        return name

    def file(self, name: str, values: npt.ArrayLike) -> str:
        """Add a weight in `<name>.bin`, however small, since compiled loops read it too."""
        self.initializers.append(write_external_tensor(self.folder, name, np.asarray(values)))
        return name

    def part(self, name: str, file: str, shape: tuple[int, ...], start: int, dtype: npt.DTypeLike = np.float32) -> str:
        """Add numbers of `shape` and `dtype` from number `start` on of an existing `<file>.bin`, without a copy."""
        kind = np.dtype(dtype)
        offset, length = kind.itemsize * start, kind.itemsize * math.prod(shape)
        location = {"location": f"{file}.bin", "offset": str(offset), "length": str(length)}
        self.initializers.append(make_external_tensor(name, kind, shape, location))
        return name

    def save(self, name: str, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> Path:
        """Write `<name>.onnx` and let ONNX check it, shapes included."""
        graph = helper.make_graph(self.nodes, name, list(inputs), list(outputs), self.initializers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="shortlist"
        )
        path = self.folder / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        onnx.checker.check_model(str(path), full_check=True)
        return path


def add_row_products(graph: GraphBuilder, rows: str, contexts: str, suffix: str = "") -> str:
    """Add the products [B, n] of `rows` [B, n, d] with `contexts` [B, d]; returns their name.

    Equal rows give equal bits. A product with a single column sums the last rows of a block in another order than the
    others; with two columns every row is summed in one order, wherever it stands and however many threads there are.
    """
    last, one = add_indices(graph, "last_axis", [2]), add_indices(graph, "first_product", 0)
    column = graph.node("Unsqueeze", [contexts, last], f"row_factor{suffix}")
    columns = graph.node("Concat", [column, column], f"row_factors{suffix}", axis=2)
    products = graph.node("MatMul", [rows, columns], f"row_products_twice{suffix}")
    return graph.node("Gather", [products, one], f"row_products{suffix}", axis=2)


def add_ascending_best(graph: GraphBuilder, scores: str, count: str, name: str) -> str:
    """Add the positions of the `count` [1] best of `scores` [B, n], ascending, as `name`; returns it."""
    graph.nodes.append(helper.make_node("TopK", [scores, count], [f"{name}_scores", f"{name}_by_score"]))
    outputs = [name, f"{name}_order"]
    graph.nodes.append(helper.make_node("TopK", [f"{name}_by_score", count], outputs, largest=0))
    return name


def add_indices(graph: GraphBuilder, name: str, numbers: int | Sequence[int]) -> str:
    """Add int64 indices as a small weight; returns its name."""
    return graph.tensor(name, np.array(numbers, np.int64))


def is_inline(array: Array) -> bool:
    """Whether a tensor is so small that graphs hold it: no file is made of it."""
    return array.nbytes <= INLINE_BYTES


def write_external_tensor(folder: Path, name: str, array: Array) -> TensorProto:
    """A tensor whose bytes are in `<name>.bin`, which is written unless it exists; `name` may hold a folder."""
    path = folder / f"{name}.bin"
    if not path.exists():
        write_numbers(path, array)
    location = {"location": f"{name}.bin", "offset": "0", "length": str(array.nbytes)}
    return make_external_tensor(name, array.dtype, array.shape, location)


def write_numbers(path: Path, array: Array) -> None:
    """Write an array row by row, never copied whole: one that lies otherwise in memory goes some rows at a time."""
    if array.flags.c_contiguous:
        array.tofile(path)
        return
    step = max(1, WRITTEN_NUMBERS * len(array) // array.size)
    with path.open("wb") as file:
        for start in range(0, len(array), step):
            np.ascontiguousarray(array[start : start + step]).tofile(file)


def make_external_tensor(
    name: str, dtype: np.dtype[Any], shape: tuple[int, ...], location: dict[str, str]
) -> TensorProto:
    """A tensor whose bytes are in another file; `location` has ONNX' keys location, offset and length, in bytes."""
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    tensor = TensorProto(name=name, data_type=kind, data_location=TensorProto.EXTERNAL)
    tensor.dims.extend(shape)
    for key, value in location.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def make_value(name: str, kind: int, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    """The declaration of a graph's input or output."""
    return helper.make_tensor_value_info(name, kind, list(shape))
