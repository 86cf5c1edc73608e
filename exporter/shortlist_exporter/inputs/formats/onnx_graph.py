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
from .onnx_shapes import KEEPING_OPERATORS, SHAPING_OPERATORS, apply_shaping

ARITHMETIC_OPERATORS = ("Add", "Sub", "Mul", "Div", "Tanh")  # bias, scale and soft-cap
PRODUCT_OPERATORS = ("MatMul", "Gemm")
# These leave the logits as they are.
SHAPE_OPERATORS = ("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Dropout")
LEAST_INPUTS = dict.fromkeys((*ARITHMETIC_OPERATORS, *PRODUCT_OPERATORS), 2) | dict.fromkeys(
    ("Tanh", "Transpose", *SHAPE_OPERATORS), 1
)
NUMBER_ATTRIBUTES = ("value_float", "value_floats", "value_int", "value_ints")  # of a Constant without a tensor


@dataclass(frozen=True)
class Graph:
    """A model's nodes and initializers."""

    path: Path
    outputs: list[str]
    initializers: dict[str, Any]
    makers: dict[str, Any]  # a value's name -> the node that makes it
    users: dict[str, list[Any]]  # a value's name -> the nodes that take it

    def find_source(self, name: str) -> str | None:
        """The initializer or constant that `name` is made of by changes of type, shape and order of axes; else None."""
        node = self.makers.get(name)
        if self.is_constant(name):
            return name
        if node is None or node.op_type not in KEEPING_OPERATORS + SHAPING_OPERATORS or not node.input:
            return None
        return self.find_source(node.input[0]) if all(map(self.is_constant, node.input[1:])) else None

    def is_constant(self, name: str) -> bool:
        """Whether `name` is an initializer, or what a Constant node makes."""
        node = self.makers.get(name)
        return name in self.initializers or (node is not None and node.op_type == "Constant")

    def read_value(self, name: str) -> torch.Tensor:
        """The constant value of `name`, in the shape and order of axes that the model gives it; raises BadInput."""
        if name in self.initializers:
            return self.read_tensor(name, self.initializers[name])
        node = self.makers[name]
        if node.op_type == "Constant":
            return self.read_constant(name, node)
        value = self.read_value(node.input[0])
        if node.op_type in KEEPING_OPERATORS:
            return value
        numbers = self.read_value(node.input[1]).tolist() if len(node.input) > 1 else None
        try:
            return apply_shaping(node, value, numbers)
        except (ValueError, IndexError, RuntimeError, TypeError) as error:
            raise BadInput(
                f"the {node.op_type} that makes {name} in {self.path} does not fit {node.input[0]} "
                f"{list(value.shape)}: write the model again, or give the weights as safetensors"
            ) from error

    def read_constant(self, name: str, node: Any) -> torch.Tensor:
        """The numbers of a Constant node; raises BadInput where it holds none."""
        tensor = find_tensor(node)
        if tensor is not None:
            return self.read_tensor(name, tensor)
        numbers = read_numbers(node)
        if numbers is None:
            raise BadInput(
                f"the constant {name} of {self.path} is not of plain numbers: give the weights as safetensors"
            )
        return torch.from_numpy(numbers)

    def read_tensor(self, name: str, tensor: Any) -> torch.Tensor:
        """The numbers of an initializer or constant, from beside the model where it says so; raises BadInput."""
        try:
            array = numpy_helper.to_array(tensor, str(self.path.parent))
        except (OSError, ValueError, TypeError, KeyError, onnx.checker.ValidationError) as error:
            raise BadInput(
                f"{name} of {self.path} cannot be read as {list(tensor.dims)}: write the model again, and keep its "
                "external data, if any, whole beside it"
            ) from error
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        try:
            return torch.from_numpy(np.array(array))
        except TypeError as error:
            raise BadInput(f"{name} of {self.path} is {array.dtype}: give floats") from error

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
    check_nodes(path, graph)
    makers = {name: node for node in graph.node for name in node.output}
    if not graph.output:
        raise BadInput(f"{path} is an ONNX model without outputs: write it again")
    return Graph(path, [x.name for x in graph.output], {x.name: x for x in graph.initializer}, makers, users)


def check_nodes(path: Path, graph: Any) -> None:
    """Raise BadInput where a node lacks inputs or outputs that its operator must have, as in a damaged file."""
    for node in graph.node:
        if len(node.input) < LEAST_INPUTS.get(node.op_type, 0) or not node.output:
            raise BadInput(f"the {node.op_type} '{node.name}' of {path} lacks inputs or outputs: write the model again")


def find_tensor(node: Any) -> Any:
    """The tensor of a Constant node; None where it holds something else, or nothing."""
    value = onnx.helper.get_attribute_value(node.attribute[0]) if node.attribute else None
    return value if isinstance(value, onnx.TensorProto) else None


def read_numbers(node: Any) -> np.ndarray[Any, np.dtype[Any]] | None:
    """The numbers that a Constant node names itself, without a tensor; None for text, sparse tensors and nothing."""
    attribute = node.attribute[0] if node.attribute else None
    if attribute is None or attribute.name not in NUMBER_ATTRIBUTES:
        return None
    values = np.asarray(onnx.helper.get_attribute_value(attribute))
    return values.astype(np.int64 if attribute.name.startswith("value_int") else np.float32)
