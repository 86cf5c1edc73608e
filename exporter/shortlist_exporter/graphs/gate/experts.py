"""Graphs of plan `gated`: the gate, and one graph an expert; `fused` has graphs that hold all of it.

gate.onnx: `context` [B, d] -> `scores` [B, K], which add up to 1. experts/NNNN.onnx: `context` [B, d], `scale` [B, 1]
(the gate's score), `k` [1] -> `logits` [B, n], `top_logits`, `top_index` [B, k], `log_normalizer` [B].
experts/any.onnx: as an expert's, with `first` and `last` [1], the expert's part of all classes end to end: equals
experts/NNNN.onnx, but one session for all experts stays warm where 64 would not.
previews/NNNN.onnx, of large experts: as the expert's, without `logits` and with `n` [1], how many of the best previews
are scored exactly; the others enter the normaliser as previews.
The experts lie end to end in experts/sets.bin, one copy for all: [n, d + 1] of each, its biases the last column.
Compiled loops (`shortlist.kernels.screen`) read them, too, as they do experts/gate.bin [d, K].
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnx import TensorProto, helper
from shortlist.bundle.manifest import RawArray
from shortlist_models.ds.softmax import DSSoftmax
from shortlist_models.svd import Basis

from shortlist_exporter.graphs.builder import GraphBuilder, GraphFiles, add_ascending_best, add_row_products, make_value
from shortlist_exporter.graphs.screen import SETS_FILE

from .fused import (
    add_best_of_expert,
    add_expert_logits,
    add_gate,
    add_scaled_context,
    add_sliced_expert,
    write_gate_and_expert,
    write_gate_and_experts,
)

FloatArray = npt.NDArray[np.float32]
EXPERT_OUTPUTS: tuple[tuple[str, int, list[int | str]], ...] = (
    ("top_logits", TensorProto.FLOAT, ["B", "k"]),
    ("top_index", TensorProto.INT64, ["B", "k"]),
    ("log_normalizer", TensorProto.FLOAT, ["B"]),
)


def write_graphs(folder: Path, module: DSSoftmax, previews: dict[int, Basis], *, int8: bool = False) -> GraphFiles:
    """Every graph of the module below `folder`, and what loops read in the place of those for few rows.

    previews: of the large experts, by number; then there are no loops. int8: the module's rows are `rounded`, and
    fused.onnx reads them so, a quarter of the bytes that loops would.
    """
    weights, biases = split_by_expert(module.weight, module), split_by_expert(module.bias, module)
    experts, preview_folder = folder / "experts", folder / "previews"
    experts.mkdir()
    rows = torch.cat([module.weight, module.bias[:, None]], dim=1)
    rows.detach().numpy().tofile(experts / f"{SETS_FILE}.bin")
    roles, arrays = {"gate": write_gate(folder, module)}, dict[str, RawArray]()
    if not previews:
        arrays = {} if int8 else describe_arrays(module)
        roles["fused"] = f"experts/{write_gate_and_expert(experts, module, int8=int8)}"
        roles["batch"] = f"experts/{write_gate_and_experts(experts, module)}"
        roles["any"] = f"experts/{write_any_expert(experts, module)}"
    for number, start in enumerate(module.offsets[:-1].tolist()):
        file = write_expert(experts, f"{number:04d}", (len(weights[number]), module.weight.shape[1] + 1), start)
        roles[f"expert-{number:04d}"] = f"experts/{file}"
    for number, basis in previews.items():
        preview_folder.mkdir(exist_ok=True)
        file = write_expert_preview(preview_folder, f"{number:04d}", weights[number], biases[number], basis)
        roles[f"preview-{number:04d}"] = f"previews/{file}"
    return GraphFiles(roles, arrays)


def describe_arrays(module: DSSoftmax) -> dict[str, RawArray]:
    """The gate by column [d, K], and sets.bin [n, d + 1], the biases its last column."""
    classes, dim = module.weight.shape
    return {
        "gate_columns": RawArray(file="experts/gate.bin", dtype="float32", shape=(dim, module.experts)),
        "gate_sets": RawArray(file=f"experts/{SETS_FILE}.bin", dtype="float32", shape=(classes, dim + 1)),
    }


def split_by_expert(parameter: Any, module: DSSoftmax) -> list[FloatArray]:
    """Split a parameter [rows of all experts, ...] into one array for each expert."""
    return np.split(parameter.detach().numpy(), module.offsets[1:-1].tolist())


def write_gate(folder: Path, module: DSSoftmax) -> str:
    """Write gate.onnx: `context` [B, d] -> `scores` [B, K], normalised over the experts."""
    graph = GraphBuilder(folder)
    add_gate(graph, module)
    dim, experts = module.gate.shape[1], module.experts
    context = make_value("context", TensorProto.FLOAT, ["B", dim])
    return graph.save("gate", [context], [make_value("scores", TensorProto.FLOAT, ["B", experts])]).name


def write_expert(folder: Path, name: str, shape: tuple[int, int], start: int) -> str:
    """Write the graph of an expert of `shape` (n, d + 1) that begins at class `start` of sets.bin."""
    graph = GraphBuilder(folder)
    add_scaled_context(graph)
    weights = graph.part(f"expert-{name}", SETS_FILE, shape, start * shape[1])
    add_expert_logits(graph, weights)
    add_best_of_expert(graph)
    outputs = [make_value("logits", TensorProto.FLOAT, ["B", shape[0]]), *list_best_outputs()]
    return graph.save(name, list_expert_inputs(shape[1] - 1), outputs).name


def list_expert_inputs(dim: int) -> list[Any]:
    """What graphs of experts take: `context` [B, d], `scale` [B, 1], the gate's score, and `k` [1]."""
    scale = make_value("scale", TensorProto.FLOAT, ["B", 1])
    return [make_value("context", TensorProto.FLOAT, ["B", dim]), scale, make_value("k", TensorProto.INT64, [1])]


def list_best_outputs() -> list[Any]:
    """The k best classes of an expert, as places in it, and the log-sum of all of them."""
    return [make_value(name, kind, shape) for name, kind, shape in EXPERT_OUTPUTS]


def write_any_expert(folder: Path, module: DSSoftmax) -> str:
    """Write any.onnx: an expert, given by its first and last class, is sliced out of all."""
    graph = GraphBuilder(folder)
    add_scaled_context(graph)
    add_sliced_expert(graph, module, ("first", "last", graph.tensor("zero", np.array([0], np.int64))))
    add_best_of_expert(graph)
    logits = make_value("logits", TensorProto.FLOAT, ["B", "n"])
    ends = [make_value(end, TensorProto.INT64, [1]) for end in ("first", "last")]
    return graph.save("any", [*list_expert_inputs(module.weight.shape[1]), *ends], [logits, *list_best_outputs()]).name


def write_expert_preview(folder: Path, name: str, weight: FloatArray, bias: FloatArray, basis: Basis) -> str:
    """Write the graph of a large expert: all its classes in few dimensions, the best n of them exactly."""
    graph = GraphBuilder(folder)
    projected = graph.node("MatMul", ["context", graph.tensor(f"projection-{name}", basis.projection.numpy())], "p")
    columns = graph.tensor(f"preview-{name}", basis.preview.numpy().T)
    biases = graph.tensor(f"bias-{name}", bias)
    biased = graph.node("Add", [graph.node("MatMul", [projected, columns], "products"), biases], "biased")
    previews = graph.node("Mul", [biased, "scale"], "previews")
    add_ascending_best(graph, previews, "n", "candidates")
    rows = graph.node("Gather", [graph.tensor(f"rows-{name}", weight), "candidates"], "rows")
    exact = add_row_products(graph, rows, "context")
    own_bias = graph.node("Gather", [biases, "candidates"], "own_bias")
    logits = graph.node("Mul", [graph.node("Add", [exact, own_bias], "exact_biased"), "scale"], "exact")
    mixed = graph.node("ScatterElements", [previews, "candidates", logits], "mixed", axis=1)
    graph.nodes.append(helper.make_node("TopK", [logits, "k"], ["top_logits", "top_candidate"]))
    graph.node("GatherElements", ["candidates", "top_candidate"], "top_index", axis=1)
    axis = graph.tensor("axis", np.array([1], np.int64))
    graph.node("ReduceLogSumExp", [mixed, axis], "log_normalizer", keepdims=0)
    inputs = [*list_expert_inputs(weight.shape[1]), make_value("n", TensorProto.INT64, [1])]
    return graph.save(name, inputs, list_best_outputs()).name
