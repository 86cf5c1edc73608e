"""Wall times of Learning to Screen at batch 1: ONNX Runtime, and numpy against numpy as the paper measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.timing import Call, find_fastest, time_calls
from shortlist.head import Head
from shortlist_exporter.inputs.sources import Dense
from threadpoolctl import threadpool_limits

from benchmarks.common.dense import TopK
from benchmarks.papers.common.wall_times import (
    TIMED_K,
    WallTime,
    make_head_call,
    make_plan_call,
    make_topk_call,
    summarize_times,
    time_beside_dense,
)

ONE_PROBE = "one probe"


def time_with_onnx(dense: Mapping[str, TopK], heads: Mapping[str, Head], rows: FloatArray) -> list[WallTime]:
    """`Head.topk`, log-probabilities and all, beside the fastest spelling of dense."""
    calls: dict[str, Call] = {name: make_topk_call(call) for name, call in dense.items()}
    calls_by_name: dict[str, Call] = {f"shortlist l2s, {kind}": make_head_call(head) for kind, head in heads.items()}
    calls_by_name |= {f"{kind}, alone, without checks": make_plan_call(head) for kind, head in heads.items()}
    return time_beside_dense(calls[find_fastest(calls, rows, 1)], calls_by_name, rows, 1)


def time_with_numpy(dense: Dense, vectors: torch.Tensor, sets: list[torch.Tensor], rows: FloatArray) -> list[WallTime]:
    """As the paper: numpy, one thread, ids alone. The dense layer sorts all its scores' best by argpartition."""
    assert dense.bias is not None
    weight, bias, screen = dense.weight, dense.bias, vectors.numpy()
    members = [ids.numpy() for ids in sets]
    parts = [(np.ascontiguousarray(weight[ids]), bias[ids]) for ids in members]

    def full(contexts: FloatArray) -> IdArray:
        return select_best(weight @ contexts[0] + bias)[None]

    def search_cluster(contexts: FloatArray) -> IdArray:
        cluster = int((screen @ contexts[0]).argmax())
        cluster_weight, cluster_bias = parts[cluster]
        return members[cluster][select_best(cluster_weight @ contexts[0] + cluster_bias)][None]

    with threadpool_limits(1):
        times = time_calls({"dense, numpy": full, "l2s, numpy": search_cluster}, rows, 1)
    return summarize_times(times, "dense, numpy")


def select_best(scores: FloatArray) -> IdArray:
    """Positions of the K best, best first."""
    near = np.argpartition(scores, -TIMED_K)[-TIMED_K:]
    return near[np.argsort(-scores[near])]
