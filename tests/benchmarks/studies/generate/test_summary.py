"""The JSON line and the tables."""

from benchmarks.studies.generate.identity import Difference
from benchmarks.studies.generate.same import BOUNDED, DENSE, EXACT, PROMISES, Finding, name_promise
from benchmarks.studies.generate.speed import CEILING, OURS, UNTOUCHED, Cell, Pace
from benchmarks.studies.generate.summary import Result, describe_findings, make_pace_table, summarize

TOKENS = {UNTOUCHED: 10.0, OURS: 12.0, CEILING: 12.5}
PACES = {Cell(1, 1, 1): Pace(TOKENS, 1.2, 0.96), Cell(2, 4, 4): Pace(TOKENS, 1.4, 0.98)}
DIFFERENCE = Difference(kind="code", prompt=3, place=7, margin=0.001)
FINDINGS = {
    EXACT: Finding(1.0, []),
    name_promise(PROMISES[0]): Finding(0.8, [DIFFERENCE] * 40),
    name_promise(PROMISES[1]): Finding(0.97, [DIFFERENCE] * 6),
    DENSE: Finding(1.0, []),
    BOUNDED: Finding(0.995, [DIFFERENCE]),
}


def test_summary_has_the_worst_share_and_the_median_ratio():
    figures = summarize({"smollm2": Result(PACES, FINDINGS, {0.7: 1.21, 1.0: 1.25}), "gemma": Result(PACES, {}, {})})
    assert figures["smollm2_ceiling_share"] == figures["gemma_ceiling_share"] == 0.96
    assert figures["smollm2_ratio"] == 1.3
    assert (figures["greedy_same"], figures["greedy_same_999"], figures["smollm2_exact_same"]) == (0.8, 0.97, 1.0)
    assert figures["sampling_ratio"] == 1.25


def test_differences_of_exact_answers_are_listed():
    lines = describe_findings(FINDINGS)
    assert sum("margin" in line for line in lines) == 1
    assert lines[-1] == "  code, prompt 3: other from token 7 on, margin 0.001 nats"


def test_table_has_a_row_for_each_cell():
    assert make_pace_table("smollm2", PACES).row_count == len(PACES)
