"""Graphs of plan `mixture`, in a folder of their own; those of the search among rare classes are of `graphs.grouped`.

front.onnx: `context` [B, d] -> `mean` [B, d], the vector that rare classes are scored by, and `logits` [B, S] of the
frequent classes, by ascending id. rest.onnx: `context` [B, d], that is `mean`, -> `logits` [B, V - S] of the rare ones.
rows.onnx: as of any layer, over `mean` in the place of `context`; frequent classes are its padding.

The weights of front.onnx are in files of their own, which compiled loops read in its place.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from onnx import TensorProto, helper
from shortlist.bundle.manifest import RawArray
from shortlist_models.mixtures.mixtape import Mixtape
from torch import Tensor

from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.graphs.builder import GraphBuilder, GraphFiles, add_indices, make_value
from shortlist_exporter.graphs.dense import write_rows
from shortlist_exporter.inputs.sources import Dense

from .previews import write_previews

FLOAT = TensorProto.FLOAT
FOLDER = "mixture"


def list_frequent_ids(module: Mixtape) -> Tensor:
    """The ids [S] of the classes with gates of their own, ascending."""
    return module.order[: module.frequent].sort().values


def list_rare_ids(module: Mixtape) -> Tensor:
    """The ids [V - S] of the others, ascending."""
    return module.order[module.frequent :].sort().values


def write_mixture(folder: Path, module: Mixtape, rare: Dense) -> GraphFiles:
    """All but the graphs of the search, below `folder`."""
    weights = list_front_weights(module)
    roles = {"front": write_front(folder, module, weights), "rest": write_rest(folder, module)}
    arrays = {f"mixture_{name}": RawArray.describe(f"front_{name}.bin", array) for name, array in weights.items()}
    previews = write_previews(folder, np.ascontiguousarray(weights["columns"].T), module.components)
    return GraphFiles(roles, arrays) | previews | write_rows(folder, rare)


def list_front_weights(module: Mixtape) -> dict[str, FloatArray]:
    """The weights of front.onnx by name, of n numbers a row.

    layers: [d, n] of the three layers over a context, side by side; layers_bias: [n]. gates: [gate_width, S + 1] of the
    frequent classes, and zeros for the rare ones; gate_bias: [G, S + 1]. columns: [d, S]; bias: [S].
    """
    places, layers = module.ranks[list_frequent_ids(module)], list_layers(module)
    arrays = {
        "layers": torch.cat([layer.weight for layer in layers]).T,
        "layers_bias": torch.cat([layer.bias for layer in layers]),
        "gates": torch.nn.functional.pad(module.gate_weight[places].T, (0, 1)),
        "gate_bias": torch.nn.functional.pad(module.gate_bias[:, places], (0, 1)),
        "columns": module.weight[places].T,
        "bias": module.bias[places],
    }
    return {name: np.ascontiguousarray(values.detach().numpy()) for name, values in arrays.items()}


def list_layers(module: Mixtape) -> tuple[torch.nn.Linear, ...]:
    """The layers over a context: of components (3), of the gates' vectors, and of what all gates share (4)."""
    return module.hidden, module.gate_hidden, module.shared_gate


def write_front(folder: Path, module: Mixtape, weights: dict[str, FloatArray]) -> str:
    """All that every answer needs. Gates have one column more, without weights, for the rare classes.

    So all priors are made at once (5, 6), and the mean over components by each class's own (2).
    """
    graph = GraphBuilder(folder)
    names = {name: graph.file(f"front_{name}", values) for name, values in weights.items()}
    hidden, gates, shared = add_layers(graph, module, names)
    components = add_parts(graph, hidden, [-1, module.components, module.dim])
    gate_vectors = add_parts(graph, gates, [-1, len(module.gate_bias), module.gate_width])
    all_priors = add_priors(graph, module, names, gate_vectors, shared)
    sizes = add_indices(graph, "prior_sizes", [module.frequent, 1])
    graph.nodes.append(helper.make_node("Split", [all_priors, sizes], ["priors", "rare_priors"], axis=2))
    products = graph.node("MatMul", [components, names["columns"]], "products")
    add_sum(graph, graph.node("Mul", ["rare_priors", components], "rare_parts"), "mean", module.components)
    add_sum(graph, graph.node("Mul", ["priors", products], "frequent_parts"), "mixed", module.components)
    graph.node("Add", ["mixed", names["bias"]], "logits")
    outputs = [make_value("mean", FLOAT, ["B", module.dim]), make_value("logits", FLOAT, ["B", module.frequent])]
    return graph.save("front", [make_value("context", FLOAT, ["B", module.dim])], outputs).name


def write_rest(folder: Path, module: Mixtape) -> str:
    """The layer of the rare classes, by ascending id."""
    graph, places = GraphBuilder(folder), module.ranks[list_rare_ids(module)]
    weight, bias = (values.detach()[places].numpy() for values in (module.weight, module.bias))
    products = graph.node("MatMul", ["context", graph.tensor("rare_columns", weight.T)], "products")
    graph.node("Add", [products, graph.tensor("rare_bias", bias)], "logits")
    outputs = [make_value("logits", FLOAT, ["B", len(places)])]
    return graph.save("rest", [make_value("context", FLOAT, ["B", module.dim])], outputs).name


def add_layers(graph: GraphBuilder, module: Mixtape, names: dict[str, str]) -> list[str]:
    """Add the three linear layers of `context` by one product: tanh of components (3) and gates (4), shared logits."""
    products = graph.node("MatMul", ["context", names["layers"]], "layer_products")
    sums = graph.node("Add", [products, names["layers_bias"]], "layer_sums")
    parts = ["hidden", "gate_hidden", "shared"]
    sizes = add_indices(graph, "layer_sizes", [layer.out_features for layer in list_layers(module)])
    graph.nodes.append(helper.make_node("Split", [sums, sizes], parts, axis=1))
    return [*(graph.node("Tanh", [part], f"{part}_tanh") for part in parts[:2]), parts[2]]


def add_parts(graph: GraphBuilder, values: str, shape: list[int]) -> str:
    """Add `values` in this shape; returns the name."""
    return graph.node("Reshape", [values, add_indices(graph, f"{values}_shape", shape)], f"{values}_parts")


def add_sum(graph: GraphBuilder, values: str, name: str, components: int) -> None:
    """Add the sum [B, n] over components of `values` [B, K, n]: a product with ones, which is faster than ReduceSum."""
    ones = graph.tensor("ones", np.ones((1, components), np.float32))
    row = graph.node("MatMul", [ones, values], f"{name}_row")
    graph.node("Squeeze", [row, add_indices(graph, "components_axis", [1])], name)


def add_priors(graph: GraphBuilder, module: Mixtape, names: dict[str, str], vectors: str, shared: str) -> str:
    """Add the priors [B, K, S + 1] of the frequent classes and, last, of all others."""
    each = graph.node("MatMul", [vectors, names["gates"]], "gate_logits")
    each = graph.node("Add", [each, names["gate_bias"]], "gate_biased")
    column = graph.node("Unsqueeze", [shared, add_indices(graph, "last_axis", [2])], "shared_column")
    logits = graph.node("Add", [each, column], "all_gates")
    if not module.tree:
        return graph.node("Softmax", [logits], "all_priors", axis=1)
    return add_tree(graph, logits, module.components)


def add_tree(graph: GraphBuilder, logits: str, components: int) -> str:
    """Add the products [B, K, n] of the sigmoids on the way to each leaf, or of 1 less them."""
    gates = graph.node("Sigmoid", [logits], "gate_sigmoids")
    others = graph.node("Sub", [graph.tensor("one", np.float32(1)), gates], "other_gates")
    sigmoids, priors = graph.node("Concat", [gates, others], "both_ways", axis=1), ""
    for level, ways in enumerate(list_ways(components)):
        here = graph.node("Gather", [sigmoids, add_indices(graph, f"ways_{level}", ways)], f"level_{level}", axis=1)
        priors = graph.node("Mul", [priors, here], f"down_to_{level}") if priors else here
    return priors


def list_ways(components: int) -> list[list[int]]:
    """For each level of the tree, which sigmoid each leaf's way takes; those of 1 - sigmoid come K - 1 later."""
    ways, nodes = [], 1
    while nodes < components:
        width = components // nodes
        ways.append(
            [nodes - 1 + leaf // width + (components - 1) * (leaf % width >= width // 2) for leaf in range(components)]
        )
        nodes *= 2
    return ways
