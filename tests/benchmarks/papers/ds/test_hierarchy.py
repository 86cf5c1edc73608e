"""The synthetic hierarchy: its data, its training and what counts as settled."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from shortlist.errors import QualityError
from shortlist_models.progress import quiet

from benchmarks.papers.ds.hierarchy import (
    HIERARCHY_DIM,
    SMALL_HIERARCHY,
    ExpertFigures,
    Hierarchy,
    Network,
    train_hierarchy,
)
from benchmarks.papers.ds.synthetic import require_convergence

pytestmark = pytest.mark.slow

QUICK = replace(SMALL_HIERARCHY, supers=3, experts=(3,), steps=(100,))


def test_variances_are_the_authors():
    hierarchy = Hierarchy(SMALL_HIERARCHY)
    inputs, classes = hierarchy.items(5000, seed=1)
    around = inputs - hierarchy.centres.view(-1, HIERARCHY_DIM)[classes]
    assert around.var().item() == pytest.approx(1, rel=0.02)
    assert hierarchy.centres.var(dim=1).mean().item() == pytest.approx(10, rel=0.1)
    assert hierarchy.centres.mean(dim=1).var(dim=0).mean().item() == pytest.approx(101, rel=0.15)
    assert sorted(set(classes.tolist())) == list(range(100))
    assert torch.equal(inputs, hierarchy.items(5000, seed=1)[0])


def test_a_resumed_training_ends_the_same(tmp_path):
    def stop(stage, done, total):
        if done == 50:
            raise KeyboardInterrupt

    setting = replace(QUICK, experts=(3, 2), steps=(50, 50), threshold=9.0, scale=0.2)
    whole = train_hierarchy(setting, tmp_path / "whole.pt", quiet)
    with pytest.raises(KeyboardInterrupt):
        train_hierarchy(setting, tmp_path / "halves.pt", stop)
    figures = train_hierarchy(setting, tmp_path / "halves.pt", quiet)
    assert len(whole.sets) == 6
    assert whole.rows < 6 * 9  # some were pruned, so that sizes differ
    assert (whole.accuracy, whole.speedup) == (figures.accuracy, figures.speedup)
    assert all(torch.equal(left, right) for left, right in zip(whole.sets, figures.sets, strict=True))


@pytest.mark.long
def test_ten_super_classes_end_in_ten_experts(tmp_path):
    require_convergence("10 x 10", train_hierarchy(SMALL_HIERARCHY, tmp_path / "x.pt", quiet))


def test_three_super_classes_end_in_three_experts(tmp_path):
    result = require_convergence("3 x 3", train_hierarchy(replace(QUICK, steps=(700,)), tmp_path / "x.pt", quiet))
    assert result.members.sum(dim=1).tolist() == [3, 3, 3]
    assert result.accuracy == 1


def make_figures(members, routing):
    members, routing = torch.tensor(members), torch.tensor(routing)
    return ExpertFigures(members, routing, [], steps=1, accuracy=1.0, speedup=1.0)


def test_what_is_settled():
    assert make_figures([[2, 0], [0, 2]], [[9, 0], [0, 9]]).settled_supers().tolist() == [True, True]
    assert make_figures([[2, 2], [0, 0]], [[9, 9], [0, 0]]).settled_supers().tolist() == [
        True,
        True,
    ]  # one expert may hold two
    assert make_figures([[2, 1], [0, 2]], [[9, 0], [0, 9]]).settled_supers().tolist() == [
        True,
        False,
    ]  # a copy elsewhere
    assert make_figures([[2, 0], [0, 1]], [[9, 0], [0, 9]]).settled_supers().tolist() == [
        True,
        False,
    ]  # a class is lost
    assert make_figures([[2, 0], [0, 2]], [[9, 1], [0, 8]]).settled_supers().tolist() == [
        True,
        False,
    ]  # items go astray
    assert make_figures([[2, 0], [0, 2]], [[9, 9], [0, 0]]).settled_supers().tolist() == [
        True,
        False,
    ]  # and all of them
    with pytest.raises(QualityError, match="3 x 3: 1 super classes did not end in one expert"):
        require_convergence("3 x 3", make_figures([[2, 1], [0, 2]], [[9, 0], [0, 9]]))


def test_every_expert_begins_with_every_class():
    assert Network(SMALL_HIERARCHY).head.sizes == [100] * 10
