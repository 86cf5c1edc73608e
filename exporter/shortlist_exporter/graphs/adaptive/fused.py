"""All graphs of an adaptive softmax, and the one that answers a single row by one call.

fused.onnx: `context` [1, d], `k` [1], at most the head's classes -> `top_logits`, `top_ids` [1, k], `opened` [1, J].
Equals head.onnx and then each tail's graph whose cluster reaches the k-th best so far, but with one call; where a class
of the head and one of a tail have equal logits, the former comes first.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper
from shortlist_models.adaptive.softmax import AdaptiveSoftmax
from shortlist_models.adaptive.tail_preview import TailPreview

from shortlist_exporter.graphs.builder import GraphBuilder, GraphFiles, value

from .parts import (
    KINDS,
    TAILS,
    TOP,
    Tail,
    best,
    constant,
    head_nodes,
    joined,
    tail_nodes,
    top_values,
    write_head,
    write_tail,
)


def write_adaptive(folder: Path, module: AdaptiveSoftmax, previews: dict[int, TailPreview]) -> GraphFiles:
    """Every graph of an adaptive softmax. previews: of the tails that have one."""
    (folder / TAILS).mkdir()
    roles = {"head": write_head(folder, module)}
    tails = [Tail.of(module, number, previews.get(number)) for number in range(module.n_clusters)]
    for tail in tails:
        roles[f"tail-{tail.name}"] = write_tail(folder, replace(tail, preview=None))
        if tail.preview is not None:
            roles[f"preview-{tail.name}"] = write_tail(folder, tail)
    return GraphFiles(roles | {"fused": write_fused(folder, module, tails)})


def write_fused(folder: Path, module: AdaptiveSoftmax, tails: list[Tail]) -> str:
    """fused.onnx: a chain of If nodes, one a tail."""
    graph, count = GraphBuilder(folder), len(tails)
    own = head_nodes(graph, module, [f"cluster-{number}" for number in range(count)])
    best(graph, "logits", graph.tensor("ids", own), len(own), ("best_logits-0", "best_ids-0"), most=len(own))
    for number, tail in enumerate(tails):
        bar = graph.node("Gather", [f"best_logits-{number}", constant(graph, "last", -1)], f"bar-{number}", axis=1)
        graph.node("GreaterOrEqual", [f"cluster-{number}", bar], f"reached-{number}")
        after = "best_{}-" + str(number + 1) if number + 1 < count else "top_{}"
        append_branch(graph, replace(tail, below=f"{TAILS}/"), number, [after.format(what) for what in TOP], len(own))
    graph.node("Concat", [f"reached-{number}" for number in range(count)], "opened", axis=1)
    inputs = [value("context", TensorProto.FLOAT, [1, module.in_features]), value("k", TensorProto.INT64, [1])]
    outputs = [*top_values("top", 1, "k"), value("opened", TensorProto.BOOL, [1, count])]
    return graph.save("fused", inputs, outputs).name


def append_branch(graph: GraphBuilder, tail: Tail, number: int, outputs: list[str], most: int) -> None:
    """`best_*-N` -> `outputs`: with the tail's classes where `reached-N`, else as they are."""
    suffix = f"-{number}"
    inside, outside = replace(graph, nodes=[]), replace(graph, nodes=[])
    tail_nodes(inside, tail, f"cluster{suffix}", suffix, most)
    logits, ids = joined(inside, suffix)
    inside.nodes.append(helper.make_node("TopK", [logits, "k"], [f"merged_logits{suffix}", f"at{suffix}"]))
    inside.node("GatherElements", [ids, f"at{suffix}"], f"merged_ids{suffix}", axis=1)
    for what in TOP:
        outside.node("Identity", [f"best_{what}{suffix}"], f"same_{what}{suffix}")
    branches = {
        "then_branch": helper.make_graph(inside.nodes, f"open{suffix}", [], ends("merged", suffix)),
        "else_branch": helper.make_graph(outside.nodes, f"leave{suffix}", [], ends("same", suffix)),
    }
    graph.nodes.append(helper.make_node("If", [f"reached{suffix}"], outputs, **branches))


def ends(name: str, suffix: str) -> list[Any]:
    """A branch's outputs."""
    return [value(f"{name}_{what}{suffix}", kind, [1, "k"]) for what, kind in zip(TOP, KINDS, strict=True)]
