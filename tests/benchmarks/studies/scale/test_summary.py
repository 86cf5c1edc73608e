"""The figures of `make bench-scale`, of what its parts found."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.fleet.shards.shard_list import read_shard_list
from shortlist.head import Head

from benchmarks.studies.scale import __main__ as study
from benchmarks.studies.scale import cost
from benchmarks.studies.scale.cluster_requests import Load
from benchmarks.studies.scale.heads import make_layer, open_bundle, open_shard_folder
from benchmarks.studies.scale.shards import open_gathered


def make_load(outcomes):
    load = Load("http://127.0.0.1:1", np.zeros((1, 2), np.float32), [[0]])
    load.outcomes = outcomes
    return load


def test_the_longest_gap_is_between_right_answers():
    outcomes = [(9.0, "right"), (10.5, "right"), (11, "lost"), (12, "failed"), (14.5, "right"), (15, "right")]
    counts = make_load(outcomes).summarize(10.0)
    assert counts == {"right": 3, "wrong": 0, "failed": 1, "untyped": 0, "lost": 1, "longest_gap_s": 4.0}


def test_what_never_recovers_is_a_gap_to_the_end():
    counts = make_load([(1.0, "right"), (2.0, "lost"), (30.0, "lost")]).summarize(0.0)
    assert counts["longest_gap_s"] == 29


def test_the_json_adds_up_what_was_lost():
    kills = {"right": 5, "wrong": 0, "failed": 2, "untyped": 1, "lost": 3, "longest_gap_s": 2.5}
    update = dict.fromkeys(kills, 0) | {"failed": 4}
    ray = {"request_us": 9_000, "plain_us": 1_000, "kills": kills, "update": update}
    summary = study.summarize({"ray": ray, "shards": {"mismatches": 0}})
    assert summary == {
        "processes_speedup": None,
        "sharded_mismatches": 0,
        "ray_overhead_us": 8_000,
        "recovery_s": 2.5,
        "killed_in_flight": 6,
        "failed_requests": 4,
    }


def test_layers_have_ties_between_neighbours():
    layer = make_layer(41, 3, tied=True)
    assert np.array_equal(layer.weight[1:40:4], layer.weight[0:40:4])
    assert not np.array_equal(layer.weight[2], layer.weight[1])


@pytest.mark.slow
def test_the_cost_of_shards_is_measured_and_their_answers_are_the_whole_heads(tmp_path):
    bundle = open_bundle(tmp_path, 4_001, 16, "full", tied=True)
    folder = open_shard_folder(bundle, 2)
    assert open_shard_folder(bundle, 2) == folder
    assert len(read_shard_list(folder).shards) == 2
    result = cost.measure_cost(Head(bundle, "cpu", 1), 2, 1e10)
    assert (result.classes, result.shards) == (8_002, 2)
    assert result.bytes == 4 * 4_001 * 16
    assert result.shard_us > 0
    assert open_gathered(folder).topk(np.ones((1, 16), np.float32), 3, exact=True).ids.shape == (1, 3)
