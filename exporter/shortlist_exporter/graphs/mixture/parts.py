"""Graphs of plan `mixture`, in a folder of their own; those of the search among rare classes are of `graphs.grouped`.

front.onnx: `context` [B, d] -> `mean` [B, d], the vector that rare classes are scored by, and `logits` [B, S] of the
frequent classes, by ascending id. rest.onnx: `context` [B, d], that is `mean`, -> `logits` [B, V - S] of the rare ones.
rows.onnx: as of any layer, over `mean` in the place of `context`; frequent classes are its padding.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from onnx import TensorProto, helper
from shortlist_models.mixtures.mixtape import Mixtape
from torch import Tensor

from shortlist_exporter.graphs.builder import GraphBuilder, GraphFiles, add_indices, make_value
from shortlist_exporter.graphs.dense import write_rows
from shortlist_exporter.inputs.sources import Dense

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
    roles = {"front": write_front(folder, module), "rest": write_rest(folder, module)}
    return GraphFiles(roles) | write_rows(folder, rare)


def write_front(folder: Path, module: Mixtape) -> str:
    """All that every answer needs. Gates have one column more, without weights, for the rare classes.

    So all priors are made at once (5, 6), and the mean over components by each class's own (2).
    """
    graph, places = GraphBuilder(folder), module.ranks[list_frequent_ids(module)]
    hidden, gates, shared = add_layers(graph, module)
    components = add_parts(graph, hidden, [-1, module.components, module.dim])
    all_priors = add_priors(
        graph, module, places, add_parts(graph, gates, [-1, len(module.gate_bias), module.gate_width]), shared
    )
    sizes = add_indices(graph, "prior_sizes", [module.frequent, 1])
    graph.nodes.append(helper.make_node("Split", [all_priors, sizes], ["priors", "rare_priors"], axis=2))
    weight, bias = (values.detach()[places].numpy() for values in (module.weight, module.bias))
    products = graph.node("MatMul", [components, graph.tensor("frequent_columns", weight.T)], "products")
    add_sum(graph, graph.node("Mul", ["rare_priors", components], "rare_parts"), "mean", module.components)
    add_sum(graph, graph.node("Mul", ["priors", products], "frequent_parts"), "mixed", module.components)
    graph.node("Add", ["mixed", graph.tensor("frequent_bias", bias)], "logits")
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


def add_layers(graph: GraphBuilder, module: Mixtape) -> list[str]:
    """Add the three linear layers of `context` by one product: tanh of components (3) and gates (4), shared logits."""
    layers = module.hidden, module.gate_hidden, module.shared_gate
    weight, bias = (torch.cat([getattr(layer, name).detach() for layer in layers]) for name in ("weight", "bias"))
    products = graph.node("MatMul", ["context", graph.tensor("layers", weight.T.numpy())], "layer_products")
    sums = graph.node("Add", [products, graph.tensor("layers_bias", bias.numpy())], "layer_sums")
    names = ["hidden", "gate_hidden", "shared"]
    sizes = add_indices(graph, "layer_sizes", [layer.out_features for layer in layers])
    graph.nodes.append(helper.make_node("Split", [sums, sizes], names, axis=1))
    return [*(graph.node("Tanh", [name], f"{name}_tanh") for name in names[:2]), names[2]]


def add_parts(graph: GraphBuilder, values: str, shape: list[int]) -> str:
    """Add `values` in this shape; returns the name."""
    return graph.node("Reshape", [values, add_indices(graph, f"{values}_shape", shape)], f"{values}_parts")


def add_sum(graph: GraphBuilder, values: str, name: str, components: int) -> None:
    """Add the sum [B, n] over components of `values` [B, K, n]: a product with ones, which is faster than ReduceSum."""
    ones = graph.tensor("ones", np.ones((1, components), np.float32))
    row = graph.node("MatMul", [ones, values], f"{name}_row")
    graph.node("Squeeze", [row, add_indices(graph, "components_axis", [1])], name)


def add_priors(graph: GraphBuilder, module: Mixtape, places: Tensor, hidden: str, shared: str) -> str:
    """Add the priors [B, K, S + 1] of the frequent classes at `places` [S] and, last, of all others."""
    weight = np.pad(module.gate_weight.detach()[places].numpy(), ((0, 1), (0, 0)))
    bias = np.pad(module.gate_bias.detach()[:, places].numpy(), ((0, 0), (0, 1)))
    each = graph.node("MatMul", [hidden, graph.tensor("gate_columns", weight.T)], "gate_logits")
    each = graph.node("Add", [each, graph.tensor("gate_class_bias", bias)], "gate_biased")
    column = graph.node("Unsqueeze", [shared, add_indices(graph, "last_axis", [2])], "shared_column")
    logits = graph.node("Add", [each, column], "all_gates")
    if not module.tree:
        return graph.node("Softmax", [logits], "all_priors", axis=1)
    return add_tree(graph, logits, module.components)


def add_tree(graph: GraphBuilder, logits: str, components: int) -> str:
    """Add the products [B, K, n] of the sigmoids on the way to each leaf, or of 1 less them."""
    gates = graph.node("Sigmoid", [logits], "gates")
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
