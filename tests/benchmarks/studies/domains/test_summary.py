"""The JSON line of the study, and its picture."""

import pytest
from shortlist.evaluation.statistics import Share

from benchmarks.studies.domains.contenders import OURS, Asked
from benchmarks.studies.domains.measure import Finding, Pace
from benchmarks.studies.domains.picture import NAME_GAP, plot_kinds, space_names
from benchmarks.studies.domains.summary import Speeds, find_best_peer, make_table, summarize


def make_finding(p1: float, p5: float, sure: float = 0.0) -> Finding:
    shares = [Share(mean=mean, low=mean - 0.01, high=min(1.0, mean + 0.01)) for mean in (p1, p5)]
    return Finding(rows=10_000, documents=20, p1=shares[0], p5=shares[1], lost=(1.0, 2.0, sure))


def make_pace(times_dense: float) -> Pace:
    return Pace(mean=100.0, p99=200.0, times_dense=times_dense, p99_times_dense=times_dense / 2)


FINDINGS = {
    OURS: {"wikitext": make_finding(0.995, 0.99), "code": make_finding(0.98, 0.985, 3.0)},
    "slow": {"wikitext": make_finding(0.991, 0.99), "code": make_finding(0.97, 0.9)},
    "fast but rough": {"wikitext": make_finding(0.9, 0.9), "code": make_finding(0.8, 0.7)},
}
PACES = {
    OURS: {"wikitext": make_pace(60.0), "code": make_pace(20.0)},
    "slow": {"wikitext": make_pace(10.0), "code": make_pace(10.0)},
    "fast but rough": {"wikitext": make_pace(30.0), "code": make_pace(30.0)},
}
ONE, FIVE = (
    Speeds(PACES, 7.0),
    Speeds({name: {kind: make_pace(5.0) for kind in paces} for name, paces in PACES.items()}, 3.0),
)
PEERS = [Asked("slow", None, ""), Asked("fast but rough", None, "", reaches=False)]


def test_the_line_has_the_worst_kind_and_the_best_peer_of_those_precise_enough():
    line = summarize(FINDINGS, ONE, FIVE, find_best_peer(PEERS, PACES))
    assert (line["worst_p1"], line["worst_p5"], line["worst_kind"], line["lost_sure"]) == (0.98, 0.985, "code", 3.0)
    assert (line["speedup_wiki"], line["speedup_worst"], line["speedup_b32"]) == (60.0, 20.0, 7.0)
    assert (line["best_peer"], line["best_peer_worst_p1"], line["best_peer_speedup"]) == ("slow", 0.97, 10.0)
    assert line["kinds_under"] == 1


def test_speeds_of_five_classes_have_names_of_their_own():
    line = summarize(FINDINGS, ONE, FIVE, "slow")
    assert [line[f"{name}_5"] for name in ("speedup_wiki", "speedup_worst", "speedup_b32", "p99_wiki")] == [
        5,
        5,
        3,
        2.5,
    ]
    assert line["best_peer_speedup_5"] == 5


def test_without_peers_nothing_is_said_of_them():
    line = summarize({OURS: FINDINGS[OURS]}, ONE, FIVE, find_best_peer([], PACES))
    assert [line[name] for name in ("best_peer", "best_peer_worst_p1", "best_peer_speedup")] == [None] * 3


def test_a_table_begins_with_the_worst_kind():
    table = make_table(OURS, FINDINGS[OURS], [PACES[OURS], PACES[OURS]], {"code"})
    assert list(table.columns[0].cells) == ["code", "wikitext"]
    assert list(table.columns[1].cells) == ["others", "none"]


def test_names_keep_their_distance_and_their_order():
    heights = [3.0, 1.0, 3.0, 3.0 + NAME_GAP / 2, 2.0]
    places = space_names(heights)
    assert places == pytest.approx([3.0, 1.0, 3.0 + NAME_GAP, 3.0 + 2 * NAME_GAP, 2.0])


def test_the_picture_is_written(tmp_path):
    plot_kinds(FINDINGS, PACES, tmp_path / "domains.png")
    assert (tmp_path / "domains.png").stat().st_size > 5000
