import numpy as np
import pytest
from shortlist_exporter.report.measure import timing


def test_every_contender_has_the_same_rows_in_turn():
    seen = []
    calls = {name: lambda rows, name=name: seen.append((name, rows[:, 0].tolist())) for name in "ab"}
    rows = np.arange(60, dtype=np.float32)[:, None]
    spent = timing.interleaved(calls, rows, 2, 60)
    assert {name: values.size for name, values in spent.items()} == {"a": 30, "b": 30}
    timed = seen[2 * timing.WARM :]
    assert [name for name, _ in timed] == (["a"] * 10 + ["b"] * 10) * 3
    assert [part for name, part in timed if name == "a"] == [part for name, part in timed if name == "b"]


def test_it_ends_when_the_time_is_over():
    spent = timing.interleaved({"a": lambda rows: None}, np.zeros((1000, 1), np.float32), 1, 0)
    assert spent["a"].size == timing.BLOCK


@pytest.mark.parametrize("batch", [1, 8, 32])
def test_one_pause_does_not_move_the_speedup(batch):
    calls = 5 * timing.block_of(batch)
    dense, own = np.full(calls, 4e-3, np.float32), np.full(calls, 1e-3, np.float32)
    own[3] = 1
    assert timing.speedup(dense, own, batch) == pytest.approx(4)
