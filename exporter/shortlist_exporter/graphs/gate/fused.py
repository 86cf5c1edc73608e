"""Plan `gated` from contexts to answers by one call.

experts/fused.onnx: `context` [1, d], `k` [1] -> `cluster` [1], `top_logits`, `top_position` [1, k] (in the experts end
to end), `log_normalizer` [1]: equals the gate and the best expert's graph one after the other.
experts/batch.onnx: the same of `context` [B, d]. Rows are sorted by expert and split; every expert scores its own,
which may be none. Its weights may be prepacked, where fused.onnx has to slice an expert out of all. That reads them
from memory, more than any cache holds, in order; hence they lie by row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from shortlist_models.ds.softmax import DSSoftmax

from shortlist_exporter.graphs.builder import GraphBuilder, make_value
from shortlist_exporter.graphs.screen import SETS_FILE, add_slice_ends

from .int8 import add_integer_logits


def write_gate_and_expert(folder: Path, module: DSSoftmax, *, int8: bool) -> str:
    """Write fused.onnx: the gate, and the best expert sliced out of all. int8: the rows are those of `round_rows`."""
    graph = GraphBuilder(folder)
    add_expert_choice(graph, module)
    if int8:
        add_integer_logits(graph, module)
    else:
        add_sliced_expert(graph, module, add_slice_ends(graph, "class", module.offsets.numpy()))
    add_best_of_expert(graph)
    add_position(graph, module)
    return save_fused_graph(graph, "fused", module, 1)


def write_gate_and_experts(folder: Path, module: DSSoftmax) -> str:
    """Write batch.onnx: the gate, and every expert for its own rows."""
    graph = GraphBuilder(folder)
    add_expert_choice(graph, module)
    rows = add_split_rows(graph, module)
    starts = module.offsets[:-1].tolist()
    for expert, (expert_rows, start, size) in enumerate(zip(rows, starts, module.sizes, strict=True)):
        add_expert(graph, expert, expert_rows, start, (size, module.weight.shape[1] + 1))
    for name in ("top_logits", "top_index", "top_logprob"):
        sorted_rows = graph.node("Concat", [f"{name}_{expert}" for expert in range(module.experts)], f"{name}s", axis=0)
        graph.node("Gather", [sorted_rows, "place"], name)
    add_normalizer(graph)
    add_position(graph, module)
    return save_fused_graph(graph, "batch", module, "B")


def add_split_rows(graph: GraphBuilder, module: DSSoftmax) -> list[str]:
    """Add each expert's rows of `scaled`, and `place` [B], where every row of the batch is among them.

    Returns names.
    """
    order = add_argsort(graph, "cluster", "order")
    add_argsort(graph, order, "place")
    experts = graph.tensor("experts", np.arange(module.experts)[None])
    is_own = graph.node("Cast", [graph.node("Equal", ["chosen", experts], "is_own")], "own", to=TensorProto.INT64)
    rows = graph.tensor("first_axis", np.array([0], np.int64))
    counts = graph.node("ReduceSum", [is_own, rows], "counts", keepdims=0)
    names = [f"rows_{expert}" for expert in range(module.experts)]
    ordered = graph.node("Gather", ["scaled", order], "ordered")
    graph.nodes.append(helper.make_node("Split", [ordered, counts], names, axis=0))
    return names


def add_argsort(graph: GraphBuilder, numbers: str, name: str) -> str:
    """Add the order [B] that sorts `numbers` [B], the smallest first."""
    count = graph.node("Shape", [numbers], f"{name}_count")
    outputs = [f"{name}_sorted", name]
    graph.nodes.append(helper.make_node("TopK", [numbers, count], outputs, axis=0, largest=0))
    return name


def add_expert(graph: GraphBuilder, expert: int, rows: str, start: int, shape: tuple[int, int]) -> None:
    """Add the best classes of an expert for its `rows`: logits, index, largest log-probability.

    start: the expert's first class in sets.bin. shape: of its weights.
    """
    weights = graph.part(f"expert_{expert}", SETS_FILE, shape, start * shape[1])
    logits = graph.node("Gemm", [rows, weights], f"logits_{expert}", transB=1)
    graph.nodes.append(helper.make_node("TopK", [logits, "k"], [f"top_logits_{expert}", f"top_index_{expert}"]))
    add_top_logprob(graph, logits, f"_{expert}")


def save_fused_graph(graph: GraphBuilder, name: str, module: DSSoftmax, rows: int | str) -> str:
    """Write the graph with the inputs and outputs that the module's docstring lists."""
    outputs: list[Any] = [
        make_value("cluster", TensorProto.INT64, [rows]),
        make_value("top_logits", TensorProto.FLOAT, [rows, "k"]),
        make_value("top_position", TensorProto.INT64, [rows, "k"]),
        make_value("log_normalizer", TensorProto.FLOAT, [rows]),
    ]
    context = make_value("context", TensorProto.FLOAT, [rows, module.weight.shape[1]])
    return graph.save(name, [context, make_value("k", TensorProto.INT64, [1])], outputs).name


def add_gate(graph: GraphBuilder, module: DSSoftmax) -> None:
    """Add the gate's product, `scores`, over input `context`."""
    weight = graph.file("gate", module.gate.detach().numpy().T)
    graph.node("Softmax", [graph.node("MatMul", ["context", weight], "gate_logits")], "scores", axis=1)


def add_expert_choice(graph: GraphBuilder, module: DSSoftmax) -> None:
    """Add `cluster` [B], the same as `chosen` [B, 1], and `scaled`, from `context`."""
    add_gate(graph, module)
    one = graph.tensor("one", np.array([1], np.int64))
    graph.nodes.append(helper.make_node("TopK", ["scores", one], ["scale", "chosen"]))
    graph.node("Squeeze", ["chosen", one], "cluster")
    add_scaled_context(graph)


def add_scaled_context(graph: GraphBuilder) -> None:
    """Add `scaled` [B, d + 1], whose product with weights and biases is the logits, from `context` and `scale`."""
    graph.node("Concat", [graph.node("Mul", ["context", "scale"], "scaled_context"), "scale"], "scaled", axis=1)


def add_sliced_expert(graph: GraphBuilder, module: DSSoftmax, ends: tuple[str, str, str]) -> None:
    """Add `logits` of the classes between `ends` (start, end, axis) of sets.bin, from `scaled`."""
    every = graph.part(SETS_FILE, SETS_FILE, (len(module.ids), module.weight.shape[1] + 1), 0)
    add_expert_logits(graph, graph.node("Slice", [every, *ends], "sliced"))


def add_expert_logits(graph: GraphBuilder, weights: str) -> None:
    """Add `logits` [B, n] of `scaled` [B, d + 1] and the rows of `weights` [n, d + 1]; equal rows give equal bits.

    A product with a single context sums what is left over after blocks of four rows in another order than these: so
    the last four rows are multiplied once more, as a block of their own, which repeats the first of fewer.
    """
    count = graph.node("Shape", [weights], "class_count", start=0, end=1)
    from_last = graph.node("Add", [count, graph.tensor("four", np.arange(-4, 0))], "from_last")
    block = graph.node(
        "Gather", [weights, graph.node("Max", [from_last, add_index(graph, 0)], "block_rows")], "last_rows"
    )
    products = graph.node("Gemm", ["scaled", weights], "products", transB=1)
    last_products = graph.node("Gemm", ["scaled", block], "last_products", transB=1)
    first = graph.node(
        "Slice", [products, add_index(graph, 0), add_index(graph, -4), add_index(graph, 1)], "first_logits"
    )
    left = [graph.node("Neg", [count], "minus_count"), add_index(graph, 4), add_index(graph, 1)]
    graph.node("Concat", [first, graph.node("Slice", [last_products, *left], "last_logits")], "logits", axis=1)


def add_index(graph: GraphBuilder, number: int) -> str:
    """Add `number` as an index [1]; returns its name."""
    return graph.tensor(f"index_{number}", np.array([number], np.int64))


def add_best_of_expert(graph: GraphBuilder) -> None:
    """Add `top_logits`, `top_index`, `log_normalizer` of `logits`."""
    graph.nodes.append(helper.make_node("TopK", ["logits", "k"], ["top_logits", "top_index"]))
    add_top_logprob(graph, "logits", "")
    add_normalizer(graph)


def add_top_logprob(graph: GraphBuilder, logits: str, suffix: str) -> None:
    """Add `top_logprob` [B], by LogSoftmax, which takes a fifth of the time of ReduceLogSumExp."""
    axis = graph.tensor("last_axis", np.array([1], np.int64))
    logprobs = graph.node("LogSoftmax", [logits], f"logprobs{suffix}", axis=1)
    graph.node("ReduceMax", [logprobs, axis], f"top_logprob{suffix}", keepdims=0)


def add_normalizer(graph: GraphBuilder) -> None:
    """Add `log_normalizer`: the best logit minus its log-probability."""
    best = graph.node("Gather", ["top_logits", graph.tensor("best", np.int64(0))], "top_logit", axis=1)
    graph.node("Sub", [best, "top_logprob"], "log_normalizer")


def add_position(graph: GraphBuilder, module: DSSoftmax) -> None:
    """Add `top_position`, the place among the experts end to end, from `chosen` and `top_index`."""
    starts = graph.tensor("class_starts", module.offsets[:-1].numpy())
    graph.node("Add", ["top_index", graph.node("Gather", [starts, "chosen"], "first_position")], "top_position")
