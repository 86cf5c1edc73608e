"""Tables of runs: which runs they show, in which order."""

import numpy as np
import pytest
from shortlist.evaluation.statistics import estimate_share

from benchmarks.reports.tables import (
    find_fastest_runs,
    find_most_precise_runs,
    find_pareto_front,
    format_front,
    format_interval,
    format_levels,
    format_table,
)
from tests.support.runs import make_run


def test_front_keeps_what_nothing_beats_in_both():
    runs = [make_run(0.9, 10), make_run(0.99, 5), make_run(0.98, 4), make_run(1.0, 1), make_run(0.8, 10)]
    assert [run.precision[1].value for run in find_pareto_front(runs)] == [0.9, 0.99, 1.0]


def test_table_has_a_line_for_a_failure():
    lines = format_table(
        [make_run(0.9912, 3, contender="good", rows=2048), make_run(1, 1, contender="bad", error="failed: no index")]
    )
    assert "| good | 1 | .9912 (.981-1.000)" in lines
    assert "| 20 | 9 | 20 | 3.00 |" in lines, "all of 2,048 calls of 10 us, in ms; median, p99 and speed-up"
    assert "| bad | 1 | - | - | - | - | - | - | - | - | - | failed: no index |" in lines


def test_remarks_on_slow_calls_are_those_of_the_table_s_batch():
    run = make_run(1, 1, flags=["remembers answers", "95% of calls as slow as dense"])
    run.spent[8] = run.spent[1].model_copy(update={"slow_share": 0.5})
    assert "| remembers answers |" in format_table([run])
    assert "| remembers answers; 50% of calls as slow as dense |" in format_table([run], 8)


def test_a_contender_that_reaches_no_promise_shows_its_most_precise_run():
    runs = [make_run(p1, 9, contender="poor", setting={"ef": p1}) for p1 in (0.3, 0.8, 0.7)]
    runs += [make_run(0.8, 4, contender="poor", setting={"ef": 100})]
    runs += [make_run(0.96, 5, contender="fair"), make_run(0.2, 1, contender="fair", setting={"ef": 1})]
    assert [(run.contender, run.setting) for run in find_most_precise_runs(runs)] == [("poor", {"ef": 0.8})]


def test_the_fastest_at_a_level_is_of_single_rows_by_one_thread():
    runs = [make_run(0.99, 5, contender="a"), make_run(0.96, 9, contender="a"), make_run(0.99, 7, contender="b")]
    runs += [make_run(1.0, 50, contender="a", threads=2)]
    assert {name: run.spent[1].speedup for name, run in find_fastest_runs(runs, 0.99).items()} == {"b": 7, "a": 5}


def test_the_front_table_has_a_line_a_run_of_the_front():
    lines = format_front([make_run(0.9, 10, contender="fast"), make_run(0.8, 5, contender="beaten")]).splitlines()
    assert lines[2:] == ["| fast | .9000 | .9000 | .9000 | 9 | 20 | 10.0 | 0 |"]


def test_levels_have_a_line_a_contender_and_three_columns_a_data_set():
    runs = [make_run(0.99, 5, contender="a"), make_run(0.96, 9, contender="a"), make_run(0.96, 70, contender="b")]
    title, _, *lines = format_levels({"one": runs, "two": runs[:1]}).splitlines()
    assert title.startswith("| contender | one, P@1 .95 | one, P@1 .99 | one, P@1 .999 | two, P@1 .95 |")
    assert lines == ["| a | 9.0 | 5.0 | - | 5.0 | 5.0 | - |", "| b | 70.0 | - | - | - | - | - |"]


def test_no_precision_is_a_dash():
    assert format_interval(None) == "-"


@pytest.mark.parametrize(("hits", "n"), [(0.5, 400), (0.99, 1000), (1.0, 300)])
def test_interval_of_zeros_and_ones_is_wilsons(hits, n):
    interval = estimate_share(np.repeat([1.0, 0.0], [round(hits * n), n - round(hits * n)]))
    z = 1.96
    centre = (hits + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(hits * (1 - hits) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    if hits < 1:
        assert interval.low == pytest.approx(centre - half, abs=1e-6)
        assert interval.high == pytest.approx(min(1, centre + half), abs=1e-6)
    assert interval.low < interval.mean <= interval.high
