"""The cost model of docs/scaling.md beside what is measured: one row, one thread, whole and in shards."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import PlanResult
from shortlist.fleet.shards.answers import AnswerRules
from shortlist.fleet.shards.exchange import Question, make_result, pack_question
from shortlist.fleet.shards.merge import merge_results
from shortlist.fleet.shards.ranges import cut_classes
from shortlist.fleet.shards.shard import Shard
from shortlist.head import Head

from .contexts import make_contexts
from .heads import open_bundle

K, DIM = 10, 128
SHARDS = (1, 2, 4, 8)
CALLS = 40
BANDWIDTH_FLOATS = 32 << 20  # 128 MiB: more than caches hold


@dataclass
class Cost:
    """What a query costs. Times in us. bytes: of weights that one shard reads. messages: bytes to and from all."""

    method: str
    classes: int
    shards: int
    bytes: int
    predicted_us: float
    shard_us: float
    merge_us: float
    messages: int


def measure_costs(cache: Path, sizes: Sequence[int], method: str, most_classes: int) -> list[dict[str, object]]:
    """Every size in every number of shards, but for those whose shards have more than `most_classes`."""
    bandwidth = measure_bandwidth()
    print(f"one thread reads {bandwidth / 1e9:.1f} GB/s")
    costs = []
    for classes, shards in itertools.product(sizes, SHARDS):
        if classes // shards <= most_classes:
            head = Head(open_bundle(cache, classes // shards, DIM, method), "cpu", threads=1)
            costs.append(measure_cost(head, shards, bandwidth))
            print(costs[-1], flush=True)
    return [asdict(cost) for cost in costs]


def measure_bandwidth() -> float:
    """Bytes a second at which one thread multiplies a matrix that no cache holds with a vector."""
    matrix = np.ones((BANDWIDTH_FLOATS // DIM, DIM), np.float32)
    vector = np.ones(DIM, np.float32)
    return matrix.nbytes / (time_call(lambda: matrix @ vector) / 1e6)


def measure_cost(head: Head, shards: int, bandwidth: float) -> Cost:
    """So many shards, each on a machine of its own, of which `head` is one: random classes make all alike."""
    manifest = head.manifest
    classes = manifest.classes * shards
    contexts = make_contexts(CALLS, manifest.dim, seed=2)
    asked = [Question(row[None], K, class_filter=UNRESTRICTED) for row in contexts]
    questions = [pack_question(question) for question in asked]
    parts = [Shard(head, part) for part in cut_classes(classes, shards)]
    shard_time = time_calls([partial(parts[0].answer, message) for message in questions])
    answers = [part.answer(questions[0]) for part in parts]
    merge = time_call(partial(merge_answers, parts, answers, asked[0]))
    sizes, read = len(questions[0]) * shards + sum(map(len, answers)), count_bytes(head)
    predicted = read / bandwidth * 1e6
    return Cost(manifest.method, classes, shards, read, round(predicted), round(shard_time), round(merge, 1), sizes)


def merge_answers(parts: Sequence[Shard], answers: Sequence[bytes], question: Question) -> PlanResult:
    """What a server that gathers does with the answers of all shards."""
    rules = [AnswerRules(part.part, part.head.manifest.max_k) for part in parts]
    read = [rule.read(answer, question) for rule, answer in zip(rules, answers, strict=True)]
    return merge_results([make_result(arrays) for arrays in read], K)


def count_bytes(head: Head) -> int:
    """Bytes of weights that a query reads, by the manifest's share of dense."""
    manifest, quality = head.manifest, head.manifest.quality
    share = 1.0 if quality is None else quality.cost_bytes
    return int(4 * manifest.classes * manifest.dim * share)


def time_call(call: Callable[[], object]) -> float:
    """The median time of a call, in us."""
    return time_calls([call] * CALLS)


def time_calls(calls: Sequence[Callable[[], object]]) -> float:
    """The median time of some calls after the first one, in us."""
    calls[0]()
    times = []
    for call in calls:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6
