"""An ONNX model's nodes and its constant values: initializers, and what Constant nodes make."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import numpy_helper
from shortlist.errors import BadInput

from .base import join_names

ARITHMETIC_OPERATORS = ("Add", "Sub", "Mul", "Div", "Tanh")  # bias, scale and soft-cap


@dataclass(frozen=True)
class Graph:
    """A model's nodes and initializers."""

    path: Path
    outputs: list[str]
    initializers: dict[str, Any]
    makers: dict[str, Any]  # a value's name -> the node that makes it
    users: dict[str, list[Any]]  # a value's name -> the nodes that take it

    def find_source(self, name: str) -> str | None:
        """The initializer, or constant, that `name` is made of by Identity, Cast and Transpose; else None."""
        node = self.makers.get(name)
        if self.is_constant(name):
            return name
        if node is not None and node.op_type in ("Identity", "Cast", "Transpose"):
            return self.find_source(node.input[0])
        return None

    def is_constant(self, name: str) -> bool:
        """Whether `name` is an initializer, or what a Constant node makes."""
        node = self.makers.get(name)
        return name in self.initializers or (node is not None and node.op_type == "Constant")

    def read_value(self, name: str) -> torch.Tensor:
        """The constant value of `name`, transposed where the model does."""
        if name in self.initializers:
            return self.read_tensor(self.initializers[name])
        node = self.makers[name]
        if node.op_type == "Constant":
            return self.read_tensor(numpy_helper.from_array(read_constant(node)))
        value = self.read_value(node.input[0])
        if node.op_type != "Transpose":
            return value
        return value.permute(read_attribute(node, "perm", list(range(value.ndim))[::-1]))

    def read_tensor(self, initializer: Any) -> torch.Tensor:
        """An initializer's numbers, from beside the model where it says so; raises BadInput."""
        try:
            array = numpy_helper.to_array(initializer, str(self.path.parent))
        except (OSError, ValueError, TypeError, onnx.checker.ValidationError) as error:
            raise BadInput(
                f"{initializer.name} of {self.path} cannot be read: keep its external data whole beside it"
            ) from error
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        try:
            return torch.from_numpy(np.array(array))
        except TypeError as error:
            raise BadInput(f"{initializer.name} of {self.path} is {array.dtype}: give floats") from error

    def list_variables(self, node: Any) -> list[str]:
        """The inputs of `node` that are not constant; a new shape or a count does not matter."""
        inputs = node.input if node.op_type in ARITHMETIC_OPERATORS else node.input[:1]
        return [name for name in inputs if self.find_source(name) is None]

    def describe_choice(self) -> str:
        """What may be chosen: the initializers and constants of two axes, with their shapes."""
        constants = {name: find_tensor(node) for name, node in self.makers.items() if node.op_type == "Constant"}
        tensors = self.initializers | {name: tensor for name, tensor in constants.items() if tensor is not None}
        matrices = [f"{name} {list(x.dims)}" for name, x in tensors.items() if len(x.dims) == 2]
        if not matrices:
            return "it holds no matrix of constants, give another model"
        return f"choose by --tensor among {join_names(matrices)}"


def open_graph(path: Path) -> Graph:
    """The model's graph, its external data left where they are; raises BadInput."""
    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except (DecodeError, ValueError, OSError) as error:
        raise BadInput(f"{path} is not a whole ONNX model: write it again") from error
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    makers = {name: node for node in graph.node for name in node.output}
    if not graph.output:
        raise BadInput(f"{path} is an ONNX model without outputs: write it again")
    return Graph(path, [x.name for x in graph.output], {x.name: x for x in graph.initializer}, makers, users)


def read_attribute(node: Any, name: str, default: Any) -> Any:
    return next((onnx.helper.get_attribute_value(x) for x in node.attribute if x.name == name), default)


def find_tensor(node: Any) -> Any:
    """The tensor of a Constant node; None where it holds numbers of another kind."""
    value = onnx.helper.get_attribute_value(node.attribute[0])
    return value if isinstance(value, onnx.TensorProto) else None


def read_constant(node: Any) -> np.ndarray[Any, np.dtype[Any]]:
    value, tensor = onnx.helper.get_attribute_value(node.attribute[0]), find_tensor(node)
    return np.asarray(value, np.float32) if tensor is None else numpy_helper.to_array(tensor)
