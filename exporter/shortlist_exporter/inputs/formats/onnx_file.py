"""The output layer of an ONNX model: the last MatMul or Gemm before its outputs, by its weights alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from onnx.external_data_helper import ExternalDataInfo, uses_external_data
from shortlist.errors import BadInput, NotFound

from .base import Choice, Layer, dtype_name, join_names
from .onnx_graph import ARITHMETIC_OPERATORS, PRODUCT_OPERATORS, SHAPE_OPERATORS, Graph, open_graph
from .onnx_shapes import read_attribute

QUANTISED_OPERATORS = (
    "DequantizeLinear", "DynamicQuantizeMatMul", "MatMulBnb4", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits",
    "QGemm", "QLinearMatMul",
)  # fmt: skip
AFTER_LOGITS = ("Softmax", "LogSoftmax", "TopK", "ArgMax")  # made of the logits
SHAPE_READERS = ("Shape", "Size")
CHANGING_OPERATORS = (  # of the logits themselves, which no head does, but behind a softmax
    *ARITHMETIC_OPERATORS, "Clip", "Exp", "Neg", "Pow", "ScatterElements", "ScatterND", "Where",
)  # fmt: skip
LOGITS_OUTPUT = "logits"  # the output that is meant where a model has others


@dataclass
class Logits:
    """The arithmetic between a product W h and the output: cap(scale * (W h) + bias)."""

    scale: float = 1.0
    bias: torch.Tensor | None = None
    bias_name: str = ""
    cap: float | None = None
    inputs: list[str] = field(default_factory=list)

    def add(self, name: str, values: torch.Tensor) -> None:
        """Add a bias to the scaled product; raises BadInput where it does not fit the one that it is added to."""
        values = values.reshape(-1)
        if self.bias is not None and 1 not in (lengths := {len(values), len(self.bias)}) and len(lengths) > 1:
            raise BadInput(
                f"the biases {self.bias_name} and {name} have {len(self.bias)} and {len(values)} entries: write the "
                "model again with one for each class"
            )
        self.bias = values if self.bias is None else self.bias + values
        self.bias_name = name

    def multiply(self, factor: float) -> None:
        """Multiply by a factor, before the soft-cap, where it scales the bias too, or after it."""
        if self.cap is not None:
            self.cap *= factor
            return
        self.scale *= factor
        self.bias = None if self.bias is None else self.bias * factor


def read_onnx_layer(path: Path, choice: Choice) -> Layer:
    """Read the layer before the output, or the initializer chosen.

    Raises BadInput where there are two layers or none.
    """
    graph = open_graph(path)
    node = find_product(graph, choice.weight) if choice.weight else find_only_head(graph)
    if node is None:
        return make_plain_layer(graph, str(choice.weight), choice)
    logits = follow_logits(graph, node)
    if choice.bias:
        logits.bias, logits.bias_name = read_bias(graph, choice.bias) * logits.scale, choice.bias
    return make_onnx_layer(graph, node, logits)


def find_weight_input(graph: Graph, node: Any) -> str | None:
    """The name of the constant second input of a MatMul or Gemm, or None."""
    if (
        node.op_type not in PRODUCT_OPERATORS
        or graph.find_source(node.input[1]) is None
        or graph.find_source(node.input[0]) is not None
    ):
        return None
    return str(node.input[1])


def find_only_head(graph: Graph) -> Any:
    """The one product that the outputs are made of; raises BadInput."""
    outputs = [LOGITS_OUTPUT] if LOGITS_OUTPUT in graph.outputs else graph.outputs
    heads = [head for output in outputs if (head := find_head_before(graph, output)) is not None]
    heads = list({id(head): head for head in heads}.values())
    if not heads:
        refuse_quantised(graph)
        raise BadInput(
            f"{graph.path} has no MatMul or Gemm by constant weights before its outputs: {graph.describe_choice()}"
        )
    if len(heads) > 1:
        names = [str(graph.find_source(head.input[1])) for head in heads]
        raise BadInput(f"{graph.path} has {len(heads)} output layers: choose by --tensor among {join_names(names)}")
    return heads[0]


def refuse_quantised(graph: Graph) -> None:
    """Raise BadInput where products are by quantised weights, of which no matrix of the graph is the layer."""
    operators = sorted({node.op_type for node in graph.makers.values()} & set(QUANTISED_OPERATORS))
    if operators:
        raise BadInput(
            f"{graph.path} holds quantised weights ({join_names(operators)}) and no MatMul or Gemm by plain ones "
            "before its outputs: give the model from before it was quantised, or its weights as safetensors"
        )


def find_head_before(graph: Graph, name: str) -> Any:
    """The product from which the value `name` comes by bias, scale, soft-cap, softmax and reshaping alone, or None.

    None, too, where a softmax is changed by arithmetic.
    """
    steps: tuple[str, ...] = SHAPE_OPERATORS + AFTER_LOGITS + ARITHMETIC_OPERATORS
    while (node := graph.makers.get(name)) is not None:
        if find_weight_input(graph, node) is not None:
            return node
        if node.op_type not in steps or len(variables := graph.list_variables(node)) != 1:
            return None
        if node.op_type in ARITHMETIC_OPERATORS:
            steps = SHAPE_OPERATORS + ARITHMETIC_OPERATORS
        name = variables[0]
    return None


def find_product(graph: Graph, name: str) -> Any:
    """The product by the initializer or constant `name`, or None where there is none; raises BadInput."""
    require_constant(graph, name)
    products = (node for users in graph.users.values() for node in users if find_weight_input(graph, node) is not None)
    return next((node for node in products if graph.find_source(node.input[1]) == name), None)


def require_constant(graph: Graph, name: str) -> None:
    """Raise BadInput with the names that there are unless an initializer or a constant has this name."""
    if not graph.is_constant(name):
        raise BadInput(f"{graph.path} has no initializer or constant '{name}': {graph.describe_choice()}")


def read_bias(graph: Graph, name: str) -> torch.Tensor:
    """The initializer or constant `name` as a bias [V]; raises BadInput."""
    require_constant(graph, name)
    return graph.read_value(name).reshape(-1)


def follow_logits(graph: Graph, node: Any) -> Logits:
    """Follow the product of `node` up to the model's output, a softmax, or a value with more than one use."""
    logits = Logits()
    if node.op_type == "Gemm":
        logits.multiply(read_attribute(node, "alpha", 1.0))
        if len(node.input) > 2 and node.input[2]:
            refuse_if(graph, node, graph.find_source(node.input[2]) is None)
            logits.add(str(node.input[2]), graph.read_value(node.input[2]) * read_attribute(node, "beta", 1.0))
    value = node.output[0]
    while value not in graph.outputs and len(users := list_readers(graph, value)) == 1:
        user = users[0]
        if user.op_type not in SHAPE_OPERATORS and not (
            user.op_type in ARITHMETIC_OPERATORS and apply_step(graph, user, value, logits)
        ):
            break
        value = user.output[0]
    for user in list_readers(graph, value) if value not in graph.outputs else ():
        refuse_if(graph, user, changes_classes(graph, user, is_matrix=node.op_type == "Gemm"))
    return logits


def list_readers(graph: Graph, value: str) -> list[Any]:
    """The nodes that take `value`, but those that ask for its shape alone."""
    return [user for user in graph.users.get(value, []) if user.op_type not in SHAPE_READERS]


def changes_classes(graph: Graph, node: Any, *, is_matrix: bool) -> bool:
    """Whether a step changes logits by the class, or leaves out some. is_matrix: they are [rows, V]."""
    if node.op_type == "Slice":
        is_known = len(node.input) > 3 and graph.is_constant(node.input[3])
        axes = graph.read_value(node.input[3]).reshape(-1).tolist() if is_known else []
        return bool({-1, 1 if is_matrix else 2} & set(axes))
    return node.op_type in CHANGING_OPERATORS


def apply_step(graph: Graph, node: Any, value: str, logits: Logits) -> bool:
    """Record one step in `logits` where it is bias, scale or soft-cap, and return whether it was. Raises BadInput."""
    others = [name for name in node.input if name != value]
    if any(graph.find_source(name) is None for name in others):
        return False
    if node.op_type == "Tanh":
        refuse_if(graph, node, logits.cap is not None)
        logits.cap = 1.0
        return True
    constant_value = graph.read_value(others[0])
    if node.op_type in ("Add", "Sub"):
        refuse_if(graph, node, logits.cap is not None or (node.op_type == "Sub" and node.input[0] != value))
        logits.add(others[0], constant_value if node.op_type == "Add" else -constant_value)
        return True
    number = float(constant_value) if constant_value.numel() == 1 else 0.0
    refuse_if(graph, node, number <= 0 or (node.op_type == "Div" and node.input[0] != value))
    logits.multiply(number if node.op_type == "Mul" else 1 / number)
    return True


def refuse_if(graph: Graph, node: Any, condition: bool) -> None:
    """Raise BadInput where a step is not what an output layer does."""
    if condition:
        raise BadInput(
            f"the {node.op_type} that makes {node.output[0]} in {graph.path} is not a bias, a positive scale or a "
            "soft-cap of the logits: export the weights by hand"
        )


def make_onnx_layer(graph: Graph, node: Any, logits: Logits) -> Layer:
    """The layer, with the weight [V, d] as stored where that is its transposition: logits = cap(scale (W h + bias))."""
    name = str(node.input[1])
    weight = graph.read_value(name)
    transposed = node.op_type == "Gemm" and read_attribute(node, "transB", 0)
    weight = weight if transposed or weight.ndim != 2 else weight.T
    scale = logits.scale if logits.cap is None else logits.scale * logits.cap
    bias = None if logits.bias is None else logits.bias.float() / logits.scale
    source = str(graph.find_source(name))
    return Layer(
        weight,
        source,
        dtype_name(weight),
        list_files(graph, source),
        bias.expand(len(weight)) if bias is not None and len(bias) == 1 and weight.ndim else bias,
        logits.bias_name,
        logit_scale=scale,
        soft_cap=logits.cap,
    )


def make_plain_layer(graph: Graph, name: str, choice: Choice) -> Layer:
    """An initializer or constant that no product takes, such as tied embeddings, as it stands."""
    weight = graph.read_value(name)
    bias = read_bias(graph, choice.bias) if choice.bias else None
    return Layer(weight, name, dtype_name(weight), list_files(graph, name), bias, choice.bias or "")


def list_files(graph: Graph, name: str) -> tuple[Path, ...]:
    """The model's file, and the file beside it that holds the initializer, where there is one."""
    initializer = graph.initializers.get(name)
    if initializer is None or not uses_external_data(initializer):
        return (graph.path,)
    data = graph.path.parent / ExternalDataInfo(initializer).location
    if not data.is_file():
        raise NotFound(f"there is no file {data}, which holds {name} of {graph.path}")
    return (graph.path, data)
