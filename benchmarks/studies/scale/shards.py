"""Whether a head in shards answers as the whole one, rows counted that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from shortlist.fleet.shards.gathered_head import GatheredHead
from shortlist.fleet.shards.shard import open_shard
from shortlist.fleet.shards.shard_list import read_shard_list
from shortlist.head import Head

from .contexts import make_contexts
from .heads import open_bundle, open_shard_folder

CLASSES, DIM, ROWS, K = 20_011, 64, 10_000, 10  # no number of shards divides the classes
SHARDS = (1, 2, 3, 5, 8)
METHODS = ("full", "svd")
MAX_LOGPROB_ERROR = 1e-5


def list_questions() -> dict[str, dict[str, Any]]:
    """Lists and biases by the name of the question."""
    random = np.random.default_rng(3)
    allowed, banned = (random.choice(CLASSES, count, replace=False) for count in (300, 3_000))
    return {
        "plain": {},
        "allow": {"allow": allowed},
        "ban": {"ban": banned},
        "bias": {"bias": dict.fromkeys(banned[:50].tolist(), 2.5)},
    }


def count_mismatches(cache: Path) -> dict[str, int]:
    """Rows of exact answers whose ids or log-probabilities differ, by method, shards and question."""
    contexts, counts = make_contexts(ROWS, DIM, seed=1), {}
    for method in METHODS:
        bundle = open_bundle(cache, CLASSES, DIM, method, tied=True)
        whole = Head(bundle, "cpu", 1)
        expected = {name: whole.topk(contexts, K, exact=True, **lists) for name, lists in list_questions().items()}
        for shards in SHARDS:
            head = open_gathered(open_shard_folder(bundle, shards))
            for name, lists in list_questions().items():
                top = head.topk(contexts, K, exact=True, **lists)
                errors = np.abs(np.nan_to_num(top.logprobs - expected[name].logprobs))
                wrong = (top.ids != expected[name].ids).any(axis=1) | (errors > MAX_LOGPROB_ERROR).any(axis=1)
                counts[f"{method}, {shards} shards, {name}"] = int(wrong.sum())
    return counts


def open_gathered(folder: Path) -> GatheredHead:
    """A head that asks its shards by the messages that they would get over a network, all in this process."""
    shard_list = read_shard_list(folder)
    shards = [open_shard(folder, number, threads=1) for number in range(len(shard_list.shards))]
    return GatheredHead(folder, shard_list, lambda message: [shard.answer(message) for shard in shards])
