"""Graphs of plan `screen`: the screen, one graph a cluster, and all of it in one for single rows.

screen.onnx: `context` [B, d] -> `scores` [B, r]. clusters/NNNN.onnx: `context` [B, d], `k` [1] -> `logits` [B, n],
`top_logits`, `top_index` [B, k], `log_normalizer` [B]; with a second stage `context` -> `logits` alone.
terms.onnx, with terms of the tail: `context` [B, d] -> `tail` [B].
clusters/fused.onnx, without a second stage: `context` [1, d], `k` [1] -> `best_scores`, `best_clusters` [1, 2] (of one
cluster, one) and as a cluster's: equals the screen and the best cluster's graph one after the other, but with one call.
clusters/any.onnx, beside it: as a cluster's, with `first` and `last` [1], the cluster's place among the sets end to
end: equals clusters/NNNN.onnx, but one session for all clusters stays warm where a hundred would not. The clusters'
weights lie end to end in clusters/sets.bin, one copy for all: each by column, its bias the last row, for a product with
[context, 1]; a node fewer than an addition, and a node costs a microsecond.
Compiled loops (`shortlist.kernels.screen`) read them, too, as they do clusters/screen.bin [d, r]. With a second stage
the previews lie end to end in clusters/previews.bin, each cluster's by column, their scales in clusters/scales.bin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper
from shortlist.bundle.manifest import RawArray
from shortlist_models.l2s.screened import ScreenedSoftmax, SecondStage
from shortlist_models.svd import Basis

from shortlist_exporter.inputs.sources import Dense

from .builder import GraphBuilder, GraphFiles, make_value
from .dense import add_finish, name_logits
from .grouped import add_tail_terms
from .quantized import add_scaled_products

SETS_FILE, PREVIEWS_FILE = "sets", "previews"
Ids = npt.NDArray[np.int64]
Ends = tuple[str, str, str]  # names of a start, an end and an axis: what Slice wants


def write_graphs(folder: Path, dense: Dense, module: ScreenedSoftmax) -> GraphFiles:
    """Every graph of the module below `folder`, and what loops read in the place of those for single rows."""
    roles, arrays = {"screen": write_screen(folder, module)}, dict[str, RawArray]()
    if module.low_rank is not None:
        roles["tail"] = write_tail(folder, dense, module.low_rank)
    if len(module.tail_terms.offsets):
        roles["terms"] = write_terms(folder, module)
    below = folder / "clusters"
    below.mkdir()
    sets = [ids.numpy() for ids in module.sets]
    if module.second_stage is None:
        write_weights(below, dense, sets)
        arrays = describe_arrays(dense, module)
        roles["fused"] = f"clusters/{write_screen_and_cluster(below, dense, module)}"
        roles["any"] = f"clusters/{write_any_cluster(below, dense, module)}"
    else:
        arrays = write_previews(below, module, module.second_stage, sets)
    start = 0
    for number, ids in enumerate(sets):
        name = f"{number:04d}"
        if module.second_stage is None:
            file = write_cluster(below, name, select_classes(dense, ids), start)
        else:
            file = write_cluster_preview(below, name, dense, module.second_stage, ids, start)
        roles[f"cluster-{name}"] = f"clusters/{file}"
        start += len(ids)
    return GraphFiles(roles, arrays)


def describe_arrays(dense: Dense, module: ScreenedSoftmax) -> dict[str, RawArray]:
    """The screen by column [d, r], and sets.bin: so many numbers for each class, each cluster's by column."""
    shape = sum(len(ids) for ids in module.sets), count_weight_rows(dense)
    columns = RawArray.describe("clusters/screen.bin", module.vectors.numpy().T)
    return {
        "screen_columns": columns,
        "screen_sets": RawArray(file=f"clusters/{SETS_FILE}.bin", dtype="float32", shape=shape),
    }


def write_weights(folder: Path, dense: Dense, sets: list[Ids]) -> None:
    """Write sets.bin: every cluster's weights [d, n] and, where there is one, its bias [1, n], end to end."""
    with (folder / f"{SETS_FILE}.bin").open("wb") as file:
        for ids in sets:
            np.ascontiguousarray(dense.weight[ids].T).tofile(file)
            if dense.bias is not None:
                dense.bias[ids].tofile(file)


def write_previews(folder: Path, module: ScreenedSoftmax, stage: SecondStage, sets: list[Ids]) -> dict[str, RawArray]:
    """Write what loops read of the screen and of a second stage; returns it by role, as seen from above `folder`."""
    with (folder / f"{PREVIEWS_FILE}.bin").open("wb") as file:
        for ids in sets:
            stage.preview[ids].numpy().T.astype(np.int8).tofile(file)
    columns, projection = (tensor.numpy() for tensor in (module.vectors.T, stage.projection))
    scales = np.concatenate([stage.scale[ids].numpy().reshape(-1) for ids in sets])
    for name, array in (("screen", columns), ("projection", projection), ("scales", scales)):
        np.ascontiguousarray(array, np.float32).tofile(folder / f"{name}.bin")
    shape = len(scales), projection.shape[1]
    return {
        "screen_columns": RawArray.describe("clusters/screen.bin", columns),
        "screen_projection": RawArray.describe("clusters/projection.bin", projection),
        "screen_previews": RawArray(file=f"clusters/{PREVIEWS_FILE}.bin", dtype="int8", shape=shape),
        "screen_scales": RawArray.describe("clusters/scales.bin", scales),
    }


def count_weight_rows(dense: Dense) -> int:
    """How many rows a cluster's weights have in sets.bin: d, and one where there is a bias."""
    return dense.dim + (dense.bias is not None)


def add_one(graph: GraphBuilder, dense: Dense) -> str:
    """Add a 1 to the context [B, d] where the weights have a row for the bias; returns the name."""
    if dense.bias is None:
        return "context"
    after = graph.tensor("after", np.array([0, 0, 0, 1], np.int64))
    return graph.node("Pad", ["context", after, graph.tensor("one", np.float32(1))], "context_and_one")


def write_screen(folder: Path, module: ScreenedSoftmax) -> str:
    """Write screen.onnx: `context` [B, d] -> `scores` [B, r] of the clusters."""
    graph = GraphBuilder(folder)
    graph.node("MatMul", ["context", graph.tensor("screen", module.vectors.numpy().T)], "scores")
    clusters, dim = module.vectors.shape
    context = make_value("context", TensorProto.FLOAT, ["B", dim])
    return graph.save("screen", [context], [make_value("scores", TensorProto.FLOAT, ["B", clusters])]).name


def write_tail(folder: Path, dense: Dense, basis: Basis) -> str:
    """Write tail.onnx: `context` [B, d] -> `logits` [B, V] of low rank (paper, appendix A.3)."""
    graph = GraphBuilder(folder)
    projected = graph.node("MatMul", ["context", graph.tensor("tail_projection", basis.projection.numpy())], "p")
    products = graph.node("MatMul", [projected, graph.tensor("tail", basis.preview.numpy().T)], "products")
    name_logits(graph, add_finish(graph, dense, products))
    context = make_value("context", TensorProto.FLOAT, ["B", dense.dim])
    return graph.save("tail", [context], [make_value("logits", TensorProto.FLOAT, ["B", dense.classes])]).name


def write_terms(folder: Path, module: ScreenedSoftmax) -> str:
    """Write terms.onnx: `context` [B, d] -> `tail` [B], what all but the best classes add to a normaliser."""
    graph, dim = GraphBuilder(folder), module.vectors.shape[1]
    graph.node("Identity", [add_tail_terms(graph, module.tail_terms)], "tail")
    context = make_value("context", TensorProto.FLOAT, ["B", dim])
    return graph.save("terms", [context], [make_value("tail", TensorProto.FLOAT, ["B"])]).name


def write_cluster(folder: Path, name: str, layer: Dense, start: int) -> str:
    """Write the graph that scores a cluster's `layer` exactly; its weights begin at class `start` of sets.bin."""
    graph = GraphBuilder(folder)
    weight = graph.part(
        f"weight-{name}", SETS_FILE, (count_weight_rows(layer), layer.classes), start * count_weight_rows(layer)
    )
    add_best_of_cluster(graph, layer, graph.node("MatMul", [add_one(graph, layer), weight], "products"))
    inputs = [make_value("context", TensorProto.FLOAT, ["B", layer.dim]), make_value("k", TensorProto.INT64, [1])]
    return graph.save(name, inputs, list_cluster_outputs(layer.classes)).name


def list_cluster_outputs(classes: int | str) -> list[Any]:
    """What graphs of clusters give: `logits` [B, n] of all classes, the k best of these, and their log-sum [B]."""
    return [
        make_value("logits", TensorProto.FLOAT, ["B", classes]),
        make_value("top_logits", TensorProto.FLOAT, ["B", "k"]),
        make_value("top_index", TensorProto.INT64, ["B", "k"]),
        make_value("log_normalizer", TensorProto.FLOAT, ["B"]),
    ]


def write_screen_and_cluster(folder: Path, dense: Dense, module: ScreenedSoftmax) -> str:
    """Write fused.onnx: the best cluster's weights are sliced out of all, so that one call does what two would."""
    graph = GraphBuilder(folder)
    offsets = np.cumsum([0, *(len(ids) for ids in module.sets)]).astype(np.int64)
    graph.node("MatMul", ["context", graph.file("screen", module.vectors.numpy().T)], "scores")
    two = graph.tensor("two", np.array([min(2, len(module.sets))], np.int64))
    graph.nodes.append(helper.make_node("TopK", ["scores", two], ["best_scores", "best_clusters"]))
    graph.node("Gather", ["best_clusters", graph.tensor("best", np.array(0, np.int64))], "cluster", axis=1)
    add_sliced_cluster(
        graph, dense, int(offsets[-1]), add_slice_ends(graph, "weight", offsets * count_weight_rows(dense))
    )
    inputs = [make_value("context", TensorProto.FLOAT, [1, dense.dim]), make_value("k", TensorProto.INT64, [1])]
    best = [min(2, len(module.sets))]
    outputs = [
        make_value("best_scores", TensorProto.FLOAT, [1, *best]),
        make_value("best_clusters", TensorProto.INT64, [1, *best]),
    ]
    return graph.save("fused", inputs, outputs + list_cluster_outputs("n")).name


def write_any_cluster(folder: Path, dense: Dense, module: ScreenedSoftmax) -> str:
    """Write any.onnx: a cluster's weights, given by its first and last class, are sliced out of all."""
    graph = GraphBuilder(folder)
    size = graph.tensor("rows", np.array([count_weight_rows(dense)], np.int64))
    first, last = (graph.node("Mul", [end, size], f"weight_{end}") for end in ("first", "last"))
    zero = graph.tensor("zero", np.array([0], np.int64))
    add_sliced_cluster(graph, dense, sum(len(ids) for ids in module.sets), (first, last, zero))
    inputs = [make_value("context", TensorProto.FLOAT, ["B", dense.dim])]
    inputs += [make_value(name, TensorProto.INT64, [1]) for name in ("first", "last", "k")]
    return graph.save("any", inputs, list_cluster_outputs("n")).name


def add_sliced_cluster(graph: GraphBuilder, dense: Dense, classes: int, ends: Ends) -> None:
    """Add `logits` and the best of them for `context` and `k`, of the weights between `ends` in sets.bin."""
    weights = graph.part(SETS_FILE, SETS_FILE, (classes * count_weight_rows(dense),), 0)
    flat = graph.node("Slice", [weights, *ends], "flat")
    shape = graph.tensor("shape", np.array([count_weight_rows(dense), -1], np.int64))
    columns = graph.node("Reshape", [flat, shape], "columns")
    add_best_of_cluster(graph, dense, graph.node("MatMul", [add_one(graph, dense), columns], "products"))


def add_best_of_cluster(graph: GraphBuilder, dense: Dense, products: str) -> None:
    """Add `logits`, `top_logits`, `top_index`, `log_normalizer` of `products`, which hold the bias."""
    name_logits(graph, add_finish(graph, Dense(dense.weight, None, dense.logit_scale, dense.soft_cap), products))
    graph.nodes.append(helper.make_node("TopK", ["logits", "k"], ["top_logits", "top_index"]))
    axis = graph.tensor("axis", np.array([1], np.int64))
    graph.node("ReduceLogSumExp", ["logits", axis], "log_normalizer", keepdims=0)


def add_slice_ends(graph: GraphBuilder, what: str, offsets: Ids) -> Ends:
    """Add the first and last of `offsets` [r + 1] of the node `cluster`, for a slice."""
    start = graph.node("Gather", [graph.tensor(f"{what}_starts", offsets[:-1]), "cluster"], f"{what}_start")
    end = graph.node("Gather", [graph.tensor(f"{what}_ends", offsets[1:]), "cluster"], f"{what}_end")
    return start, end, graph.tensor(f"{what}_axis", np.array([0], np.int64))


def write_cluster_preview(folder: Path, name: str, dense: Dense, stage: SecondStage, ids: Ids, start: int) -> str:
    """Write the graph that previews a cluster's classes in int8; they begin at class `start` of previews.bin."""
    graph, layer, width = GraphBuilder(folder), select_classes(dense, ids), stage.projection.shape[1]
    projected = graph.node("MatMul", ["context", graph.tensor("projection", stage.projection.numpy())], "p")
    weights = graph.part(f"preview-{name}", PREVIEWS_FILE, (width, len(ids)), start * width, np.int8)
    products = add_scaled_products(graph, projected, weights, stage.scale[ids].numpy(), f"-{name}")
    name_logits(graph, add_finish(graph, layer, products, suffix=f"-{name}"))
    context = make_value("context", TensorProto.FLOAT, ["B", layer.dim])
    return graph.save(name, [context], [make_value("logits", TensorProto.FLOAT, ["B", layer.classes])]).name


def select_classes(dense: Dense, ids: Ids) -> Dense:
    """The layer of the classes `ids` alone."""
    bias = None if dense.bias is None else dense.bias[ids]
    return Dense(dense.weight[ids], bias, dense.logit_scale, dense.soft_cap)
