"""Wall times of Learning to Screen at batch 1: ONNX Runtime, and numpy against numpy as the paper measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.timing import Call, Timed, find_fastest, time_calls
from shortlist.head import Head
from shortlist_exporter.inputs.sources import Dense
from threadpoolctl import threadpool_limits

from benchmarks.common.dense import TopK

K = 5
SINGLE = "one probe"
DENSE = "dense, onnxruntime"


@dataclass(frozen=True)
class Wall:
    """Microseconds a call, and total dense time over total time."""

    name: str
    mean: float
    median: float
    p99: float
    speedup: float


def walls(timed: Mapping[str, Timed], dense: str) -> list[Wall]:
    """One for each contender, dense first."""
    return [Wall(name, **one.summarize(), speedup=timed[dense].total / one.total) for name, one in timed.items()]


def onnx_times(dense: Mapping[str, TopK], heads: Mapping[str, Head], rows: FloatArray) -> list[Wall]:
    """`Head.topk`, log-probabilities and all, beside the fastest spelling of dense."""
    calls: dict[str, Call] = {name: asked(call) for name, call in dense.items()}
    timed: dict[str, Call] = {f"shortlist l2s, {kind}": head_call(head) for kind, head in heads.items()}
    timed |= {f"{kind}, alone, without checks": alone_call(head) for kind, head in heads.items()}
    return beside(calls[find_fastest(calls, rows, 1)], timed, rows, 1)


def beside(dense: Call, calls: Mapping[str, Call], rows: FloatArray, batch: int) -> list[Wall]:
    """Each contender in turn with dense alone: another one, asked the same rows, would leave their weights cached."""
    found: list[Wall] = []
    for name, call in calls.items():
        pair = walls(time_calls({DENSE: dense, name: call}, rows, batch), DENSE)
        found += pair[bool(found) :]
    return found


def asked(topk: TopK) -> Call:
    """A spelling as a timed call."""
    return lambda rows: topk(rows, K)


def head_call(head: Head) -> Call:
    """A head as a timed call."""
    return lambda rows: head.topk(rows, K).ids


def alone_call(head: Head) -> Call:
    """The plan's own answer for a single row, without the head's checks: compiled loops where numba is installed."""
    return lambda rows: head.plan.topk(rows, K, UNRESTRICTED).ids


def numpy_times(dense: Dense, vectors: torch.Tensor, sets: list[torch.Tensor], rows: FloatArray) -> list[Wall]:
    """As the paper: numpy, one thread, ids alone. The dense layer sorts all its scores' best by argpartition."""
    assert dense.bias is not None
    weight, bias, screen = dense.weight, dense.bias, vectors.numpy()
    members = [ids.numpy() for ids in sets]
    parts = [(np.ascontiguousarray(weight[ids]), bias[ids]) for ids in members]

    def full(contexts: FloatArray) -> IdArray:
        return best(weight @ contexts[0] + bias)[None]

    def screened(contexts: FloatArray) -> IdArray:
        cluster = int((screen @ contexts[0]).argmax())
        own_weight, own_bias = parts[cluster]
        return members[cluster][best(own_weight @ contexts[0] + own_bias)][None]

    with threadpool_limits(1):
        timed = time_calls({"dense, numpy": full, "l2s, numpy": screened}, rows, 1)
    return walls(timed, "dense, numpy")


def best(scores: FloatArray) -> IdArray:
    """Positions of the K best, best first."""
    near = np.argpartition(scores, -K)[-K:]
    return near[np.argsort(-scores[near])]
