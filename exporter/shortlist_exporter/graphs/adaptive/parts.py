"""Graphs of plan `adaptive`: the head, one graph a tail. Their logits are log-probabilities: Z is 1.

head.onnx: `context` [B, d], `k` [1] -> `logits` [B, n] of its own classes, `top_logits`, `top_ids` [B, min(k, n)],
`clusters` [B, J]. tails/NNNN.onnx: `context` [b, d], `cluster` [b], `k` [1], `best_logits`, `best_ids` [b, m] so far ->
`logits` [b, n] of its classes, `top_logits`, `top_ids` [b, min(k, m + n)], the best of both. Equal logits come by lower
id. tails/preview-NNNN.onnx, where a tail is previewed: the same but for `logits`, from the candidates that a low-rank
preview leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from onnx import TensorProto, helper
from shortlist_models.adaptive.dsoftmax import DSoftmax
from shortlist_models.adaptive.softmax import AdaptiveSoftmax
from shortlist_models.adaptive.tail_preview import TailPreview

from shortlist_exporter.graphs.builder import GraphBuilder, add_ascending_best, add_row_products, make_value

TAILS_FOLDER = "tails"
TOP_NAMES = ("logits", "ids")
TOP_TYPES = (TensorProto.FLOAT, TensorProto.INT64)
PREVIEWS_PER_K = 4  # a tail's preview keeps at least 4 k candidates


@dataclass(frozen=True)
class Tail:
    """A tail as graphs hold it, its classes in ascending order.

    narrow: [w, d]. last: [n, w]. ids: [n]. preview: of its classes, or None. below: the folder of its weights as seen
    from the graph's folder.
    """

    name: str
    narrow: torch.Tensor
    last: torch.Tensor
    ids: torch.Tensor
    preview: TailPreview | None = None
    below: str = ""

    def add_weight(self, graph: GraphBuilder, what: str, values: torch.Tensor) -> str:
        """Add one of the tail's arrays to `graph`, on disk once for all graphs; returns its name."""
        return graph.tensor(f"{self.below}{what}-{self.name}", values.numpy())

    @staticmethod
    def from_module(module: AdaptiveSoftmax, number: int, preview: TailPreview | None) -> Tail:
        """The tail `number` of an adaptive softmax."""
        narrow, last = module.tail_layers()[number]
        ids, order = sort_ids(module.sections()[number + 1])
        if preview is not None:
            preview = replace(preview, preview=preview.preview[order])
        return Tail(f"{number:04d}", narrow, last[order], ids, preview)


def sort_ids(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids in ascending order, and the order [n] that sorts them."""
    order = ids.argsort()
    return ids[order], order


def make_index(sections: list[torch.Tensor]) -> dict[str, npt.NDArray[Any]]:
    """Class ids of the head and the tails, end to end, and where each begins: what index.safetensors holds."""
    offsets = np.cumsum([0, *map(len, sections)]).astype(np.int64)
    return {"ids": torch.cat([sort_ids(ids)[0] for ids in sections]).numpy(), "offsets": offsets}


def write_head(folder: Path, module: AdaptiveSoftmax) -> str:
    """Write head.onnx of an adaptive softmax."""
    graph = GraphBuilder(folder)
    head_ids = add_head(graph, module, ["clusters"])
    add_best(graph, "logits", graph.tensor("ids", head_ids), len(head_ids), ("top_logits", "top_ids"))
    return save_head(graph, module.in_features, len(head_ids), module.n_clusters)


def add_head(graph: GraphBuilder, module: AdaptiveSoftmax, clusters: list[str]) -> torch.Tensor:
    """Add `logits` of the head's classes and of the tails, under one name or one each; returns the ids of `logits`."""
    head_ids, order = sort_ids(module.sections()[0])
    rows = torch.cat([order, torch.arange(len(head_ids), module.head_size)])
    scores = graph.node("MatMul", ["context", graph.tensor("head", module.head.weight.detach()[rows].T)], "products")
    bias: torch.Tensor | None = module.head.bias
    if bias is not None:
        scores = graph.node("Add", [scores, graph.tensor("head_bias", bias.detach()[rows])], "scores")
    logprobs = graph.node("LogSoftmax", [scores], "logprobs", axis=1)
    cut = add_constant(graph, "sizes", len(head_ids), *[module.n_clusters // len(clusters)] * len(clusters))
    graph.nodes.append(helper.make_node("Split", [logprobs, cut], ["logits", *clusters], axis=1))
    return head_ids


def write_buckets(folder: Path, module: DSoftmax) -> str:
    """Write head.onnx of a differentiated softmax: every class, no tails."""
    graph = GraphBuilder(folder)
    ids, order = sort_ids(module.order)
    projected = "context"
    if module.projection is not None:
        projected = graph.node(
            "MatMul", ["context", graph.tensor("turn", module.projection.weight.detach().T)], "turned"
        )
    parts = [f"part-{bucket}" for bucket in range(len(module.widths))]
    graph.nodes.append(
        helper.make_node("Split", [projected, add_constant(graph, "widths", *module.widths)], parts, axis=1)
    )
    products = [
        graph.node("MatMul", [part, graph.tensor(f"bucket-{i}", weight.detach().T)], f"products-{i}")
        for i, (part, weight) in enumerate(zip(parts, module.weights, strict=True))
    ]
    bucket_products = graph.node("Concat", products, "products", axis=1)
    scores = graph.node("Add", [bucket_products, graph.tensor("buckets_bias", module.bias.detach())], "scores")
    logprobs = graph.node("LogSoftmax", [scores], "logprobs", axis=1)
    graph.node("Gather", [logprobs, graph.tensor("positions", order)], "logits", axis=1)
    none = add_constant(graph, "none", 0)
    graph.node("Slice", ["logits", none, none, add_constant(graph, "classes_axis", 1)], "clusters")
    add_best(graph, "logits", graph.tensor("ids", ids), len(ids), ("top_logits", "top_ids"))
    return save_head(graph, module.dim, len(ids), 0)


def add_constant(graph: GraphBuilder, name: str, *numbers: int) -> str:
    """Add a small int64 array, once a graph."""
    if all(tensor.name != name for tensor in graph.initializers):
        graph.tensor(name, np.array(numbers, np.int64))
    return name


def add_best(
    graph: GraphBuilder, logits: str, ids: str, count: int, names: tuple[str, str], suffix: str = "", max_k: int = 0
) -> None:
    """Add the k best of `logits` [b, n] of ascending ids [n], or all where there are fewer: logits and ids, as `names`.

    max_k: what k never exceeds, where that is known; a node is saved where there are as many classes.
    """
    kept_count = "k"
    if not 0 < max_k <= count:
        kept_count = graph.node("Min", ["k", add_constant(graph, f"count_{count}", count)], f"kept{suffix}")
    graph.nodes.append(helper.make_node("TopK", [logits, kept_count], [names[0], f"place{suffix}"]))
    graph.node("Gather", [ids, f"place{suffix}"], names[1])


def add_merge(graph: GraphBuilder, name: str, suffix: str = "", *, may_be_few: bool = True) -> None:
    """Add `<name>_*`: the k best of `best_*` so far and the tail's `own_*`; of equal logits those of lower ids.

    may_be_few: whether k may be more than there are of both, which are then all kept.
    """
    logits, ids = (
        graph.node("Concat", [f"best_{what}{suffix}", f"own_{what}{suffix}"], f"{what}_of_both{suffix}", axis=1)
        for what in TOP_NAMES
    )
    count = graph.node("Shape", [ids], f"count{suffix}", start=1, end=2)
    by_id = [f"by_id{suffix}", f"turn{suffix}"]
    graph.nodes.append(helper.make_node("TopK", [ids, count], by_id, largest=0))
    graph.node("GatherElements", [logits, by_id[1]], f"logits_by_id{suffix}", axis=1)
    kept_count = graph.node("Min", ["k", count], f"kept_of_both{suffix}") if may_be_few else "k"
    best = [f"{name}_logits{suffix}", f"at{suffix}"]
    graph.nodes.append(helper.make_node("TopK", [f"logits_by_id{suffix}", kept_count], best))
    graph.node("GatherElements", [by_id[0], best[1]], f"{name}_ids{suffix}", axis=1)


def save_head(graph: GraphBuilder, dim: int, head_classes: int, tails: int) -> str:
    """Save head.onnx, whose nodes `graph` has: logits, the k best, and the logits of the clusters [B, tails]."""
    inputs = [make_value("context", TensorProto.FLOAT, ["B", dim]), make_value("k", TensorProto.INT64, [1])]
    outputs = [
        make_value("logits", TensorProto.FLOAT, ["B", head_classes]),
        *list_top_values("top", "B", "kept"),
        make_value("clusters", TensorProto.FLOAT, ["B", tails]),
    ]
    return graph.save("head", inputs, outputs).name


def list_top_values(name: str, rows: int | str, columns: str) -> list[Any]:
    """Logits and ids [rows, columns] of the best classes, called `<name>_logits` and `<name>_ids`."""
    return [
        make_value(f"{name}_{what}", kind, [rows, columns]) for what, kind in zip(TOP_NAMES, TOP_TYPES, strict=True)
    ]


def write_tail(folder: Path, tail: Tail) -> str:
    """Write a tail's graph, with every class scored, or through its preview."""
    graph = GraphBuilder(folder / TAILS_FOLDER)
    column = graph.node("Unsqueeze", ["cluster", add_constant(graph, "axis", 1)], "column")
    within = add_tail(graph, tail, column)
    add_merge(graph, "top")
    context = make_value("context", TensorProto.FLOAT, ["b", tail.narrow.shape[1]])
    cluster = make_value("cluster", TensorProto.FLOAT, ["b"])
    inputs = [context, cluster, make_value("k", TensorProto.INT64, [1]), *list_top_values("best", "b", "m")]
    outputs = list_top_values("top", "b", "kept")
    if tail.preview is not None:
        return f"{TAILS_FOLDER}/{graph.save(f'preview-{tail.name}', inputs, outputs).name}"
    graph.node("Add", [within, column], "logits")
    outputs = [make_value("logits", TensorProto.FLOAT, ["b", len(tail.ids)]), *outputs]
    return f"{TAILS_FOLDER}/{graph.save(tail.name, inputs, outputs).name}"


def add_tail(graph: GraphBuilder, tail: Tail, column: str, suffix: str = "", max_k: int = 0) -> str:
    """Add `own_*`, the tail's best, from `context` and the cluster's logits `column` [b, 1]; names end in `suffix`.

    Returns the name of the log-probabilities within the tail, [b, n]. max_k: as in `add_best`.
    """
    inner = graph.node("MatMul", ["context", tail.add_weight(graph, "narrow", tail.narrow.T)], f"inner{suffix}")
    names = f"own_within{suffix}", f"own_ids{suffix}"
    if tail.preview is not None:
        within = add_previewed_tail(graph, tail, tail.preview, inner, names, suffix)
    else:
        scores = graph.node("MatMul", [inner, tail.add_weight(graph, "last", tail.last.T)], f"tail_scores{suffix}")
        within = graph.node("LogSoftmax", [scores], f"within{suffix}", axis=1)
        add_best(graph, within, tail.add_weight(graph, "ids", tail.ids), len(tail.ids), names, suffix, max_k)
    graph.node("Add", [names[0], column], f"own_logits{suffix}")
    return within


def add_previewed_tail(
    graph: GraphBuilder, tail: Tail, preview: TailPreview, inner: str, names: tuple[str, str], suffix: str
) -> str:
    """Add the best, as `names`: exact logits for the best previews, previews for the rest of the tail's normaliser."""
    projection = tail.add_weight(graph, "projection", preview.projection)
    projected = graph.node("MatMul", [inner, projection], f"projected{suffix}")
    previews = graph.node(
        "MatMul", [projected, tail.add_weight(graph, "preview", preview.preview.T)], f"previews{suffix}"
    )
    candidates_name = add_candidates(graph, previews, preview.full_view, len(tail.ids), suffix)
    rows = graph.node("Gather", [tail.add_weight(graph, "rows", tail.last), candidates_name], f"rows{suffix}")
    exact = add_row_products(graph, rows, inner, suffix)
    mixed = graph.node("ScatterElements", [previews, candidates_name, exact], f"mixed{suffix}", axis=1)
    shares = graph.node("LogSoftmax", [mixed], f"within{suffix}", axis=1)
    inside = graph.node("GatherElements", [shares, candidates_name], f"inside{suffix}", axis=1)
    kept_count = graph.node("Min", ["k", f"n{suffix}"], f"kept{suffix}")
    graph.nodes.append(helper.make_node("TopK", [inside, kept_count], [names[0], f"own_at{suffix}"]))
    place = graph.node("GatherElements", [candidates_name, f"own_at{suffix}"], f"place{suffix}", axis=1)
    graph.node("Gather", [tail.add_weight(graph, "ids", tail.ids), place], names[1])
    return shares


def add_candidates(graph: GraphBuilder, previews: str, full_view: int, classes: int, suffix: str) -> str:
    """Add positions [b, n] of the best previews: N, at least 4 k, at most all; `n` [1] is how many."""
    widened = graph.node("Mul", ["k", add_constant(graph, "widen", PREVIEWS_PER_K)], f"widened{suffix}")
    at_least = graph.node("Max", [widened, add_constant(graph, f"full_view_{full_view}", full_view)], f"wanted{suffix}")
    graph.node("Min", [at_least, add_constant(graph, f"count_{classes}", classes)], f"n{suffix}")
    return add_ascending_best(graph, previews, f"n{suffix}", f"candidates{suffix}")
