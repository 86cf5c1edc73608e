"""A picture has a line a contender, and few of them in colour."""

import pytest

from benchmarks.reports.plots import (
    OUR_COLOURS,
    PEER_COLOURS,
    choose_colours,
    find_contender_fronts,
    plot_fronts,
    stretch,
)
from tests.support.runs import make_run


def test_our_heads_and_the_fastest_precise_peers_are_in_colour():
    runs = [make_run(0.99, speedup, contender=f"peer {speedup}") for speedup in range(1, 9)]
    runs += [make_run(0.95, 99, contender="imprecise"), make_run(0.5, 1, contender="shortlist svd")]
    runs += [make_run(1, 1, contender=name) for name in ("dense, numpy", "shortlist full")]
    fronts = find_contender_fronts(runs, 1, 1)
    assert not {"dense, numpy", "shortlist full"} & set(fronts)
    colours = choose_colours(fronts, 1, 1)
    assert list(colours) == ["shortlist svd", "peer 8", "peer 7", "peer 6", "peer 5"]
    assert list(colours.values()) == [OUR_COLOURS["shortlist svd"], *PEER_COLOURS]


def test_precision_stretches_towards_one():
    assert [stretch(precision, 1) for precision in (0.9, 0.99, 0.999)] == pytest.approx([1, 2, 3])
    assert stretch(1.0, 1) == stretch(0.9999, 1) < stretch(1.0, 5)


def test_a_picture_is_small(tmp_path):
    contenders = [f"peer {number}" for number in range(30)]
    runs = [make_run(p1, 9 - p1, contender=name, setting={"p": p1}) for name in contenders for p1 in (0.9, 0.95, 0.99)]
    plot_fronts(runs, tmp_path / "deep" / "picture.png", 5)
    assert (tmp_path / "deep" / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "deep" / "picture.png").stat().st_size < 150_000
