"""All graphs of an adaptive softmax, among them the one that answers a single row by one call.

fused.onnx: `context` [1, d], `k` [1], at most the head's classes -> `top_logits`, `top_ids` [1, k], `opened` [1, J].
Equals head.onnx and then each tail's graph whose cluster reaches the k-th best so far, but with one call.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper
from shortlist_models.adaptive.softmax import AdaptiveSoftmax
from shortlist_models.adaptive.tail_preview import TailPreview

from shortlist_exporter.graphs.builder import GraphBuilder, GraphFiles, make_value

from .parts import (
    TAILS_FOLDER,
    TOP_NAMES,
    TOP_TYPES,
    Tail,
    add_best,
    add_constant,
    add_head,
    add_merge,
    add_tail,
    list_top_values,
    write_head,
    write_tail,
)


def write_adaptive(folder: Path, module: AdaptiveSoftmax, previews: dict[int, TailPreview]) -> GraphFiles:
    """Every graph of an adaptive softmax. previews: of the tails that have one."""
    (folder / TAILS_FOLDER).mkdir()
    roles = {"head": write_head(folder, module)}
    tails = [Tail.from_module(module, number, previews.get(number)) for number in range(module.n_clusters)]
    for tail in tails:
        roles[f"tail-{tail.name}"] = write_tail(folder, replace(tail, preview=None))
        if tail.preview is not None:
            roles[f"preview-{tail.name}"] = write_tail(folder, tail)
    return GraphFiles(roles | {"fused": write_head_and_tails(folder, module, tails)})


def write_head_and_tails(folder: Path, module: AdaptiveSoftmax, tails: list[Tail]) -> str:
    """Write fused.onnx: the head, then a chain of If nodes, one a tail."""
    graph, count = GraphBuilder(folder), len(tails)
    head_ids = add_head(graph, module, [f"cluster-{number}" for number in range(count)])
    add_best(
        graph,
        "logits",
        graph.tensor("ids", head_ids),
        len(head_ids),
        ("best_logits-0", "best_ids-0"),
        max_k=len(head_ids),
    )
    for number, tail in enumerate(tails):
        bar = graph.node("Gather", [f"best_logits-{number}", add_constant(graph, "last", -1)], f"bar-{number}", axis=1)
        graph.node("GreaterOrEqual", [f"cluster-{number}", bar], f"reached-{number}")
        after = "best_{}-" + str(number + 1) if number + 1 < count else "top_{}"
        append_branch(
            graph,
            replace(tail, below=f"{TAILS_FOLDER}/"),
            number,
            [after.format(what) for what in TOP_NAMES],
            len(head_ids),
        )
    graph.node("Concat", [f"reached-{number}" for number in range(count)], "opened", axis=1)
    inputs = [
        make_value("context", TensorProto.FLOAT, [1, module.in_features]),
        make_value("k", TensorProto.INT64, [1]),
    ]
    outputs = [*list_top_values("top", 1, "k"), make_value("opened", TensorProto.BOOL, [1, count])]
    return graph.save("fused", inputs, outputs).name


def append_branch(graph: GraphBuilder, tail: Tail, number: int, outputs: list[str], max_k: int) -> None:
    """Add an If: where `reached-N`, `outputs` are the best of `best_*-N` and the tail's classes, else `best_*-N`."""
    suffix = f"-{number}"
    inside, outside = replace(graph, nodes=[]), replace(graph, nodes=[])
    add_tail(inside, tail, f"cluster{suffix}", suffix, max_k)
    add_merge(inside, "merged", suffix, may_be_few=False)
    for what in TOP_NAMES:
        outside.node("Identity", [f"best_{what}{suffix}"], f"same_{what}{suffix}")
    branches = {
        "then_branch": helper.make_graph(inside.nodes, f"open{suffix}", [], list_branch_outputs("merged", suffix)),
        "else_branch": helper.make_graph(outside.nodes, f"leave{suffix}", [], list_branch_outputs("same", suffix)),
    }
    graph.nodes.append(helper.make_node("If", [f"reached{suffix}"], outputs, **branches))


def list_branch_outputs(name: str, suffix: str) -> list[Any]:
    """What both branches of a tail give: logits and ids [1, k] of the best classes so far."""
    return [
        make_value(f"{name}_{what}{suffix}", kind, [1, "k"]) for what, kind in zip(TOP_NAMES, TOP_TYPES, strict=True)
    ]
