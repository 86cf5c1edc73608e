"""Processes that answer in turn, and the ratios of their times."""

import numpy as np
import pytest

from benchmarks.studies.kernels import turns
from benchmarks.studies.kernels.__main__ import summarize_targets
from benchmarks.studies.kernels.first_answers import time_first_answer
from benchmarks.studies.kernels.turns import Contender, Worker, WorkerFailed
from tests.support.heads import grouped
from tests.support.layers import make_dense, make_head

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A bundle of plan grouped, and contexts in a file."""
    folder = tmp_path_factory.mktemp("turns")
    dense = make_dense(grouped.CLASSES, grouped.DIM)
    head = make_head(folder, dense, grouped.contexts, method="grouped", options=grouped.OPTIONS)
    np.save(folder / "rows.npy", grouped.rows)
    return head.folder, folder / "rows.npy"


def test_workers_say_what_they_run_and_answer_in_turn(place, monkeypatch):
    bundle, rows = place
    monkeypatch.setattr(turns, "ROUNDS", 2)
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.005)
    with (
        Worker(Contender(bundle, target="portable", settings={"candidates": 150}), rows) as loops,
        Worker(Contender(bundle, graphs=True), rows) as graphs,
    ):
        assert (loops.loops, graphs.loops) == ("portable", "graphs")
        seconds = turns.time_in_turns({"portable": loops, "graphs": graphs}, 8)
    assert {name: times.shape for name, times in seconds.items()} == {"portable": (2,), "graphs": (2,)}
    assert min(times.min() for times in seconds.values()) > 0


def test_a_worker_that_ends_says_why(place):
    with pytest.raises(WorkerFailed, match="there is no bundle at"):
        Worker(Contender(place[0] / "missing"), place[1])


def test_a_first_answer_takes_time(place, tmp_path):
    assert time_first_answer(Contender(place[0]), place[1], tmp_path) > 0


def test_ratios_are_medians_of_rounds():
    seconds = {"a": np.array([2.0, 2.0, 90.0]), "b": np.array([1.0, 1.0, 9.0])}
    assert turns.compute_ratio(seconds, "a", "b") == 2.0
    assert turns.compute_ratio(seconds, "a", "missing") is None


def test_what_did_not_run_is_null_and_said(capsys):
    times = {"numba": np.array([4.0]), "avx2": np.array([2.0]), "portable": np.array([3.0]), "graphs": np.array([6.0])}
    figures = summarize_targets(dict.fromkeys((1, 8, 32), times), "graphs")
    assert (figures["numba_ratio"], figures["numba_commit_ratio"], figures["avx2_ratio"]) == (None, 0.5, None)
    assert figures["portable_vs_graphs"] == 0.5
    assert "not measured, without AVX-512 VNNI its commit answers by graphs" in capsys.readouterr().out
    figures = summarize_targets(dict.fromkeys((1, 8, 32), {"avx512vnni": np.array([1.0])} | times), "numba")
    assert (figures["numba_ratio"], figures["numba_ratio_b32"], figures["avx2_ratio"]) == (0.25, 0.25, 2.0)
