"""The adaptive softmax's page: openings by rule and by tally, agreement, steps and pictures."""

import numpy as np
import pytest
import torch
from shortlist.bundle.reader import Bundle
from shortlist.core.filters import UNRESTRICTED
from shortlist.head import Head
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts
from shortlist_models.adaptive.softmax import AdaptiveSoftmax

from benchmarks.papers.adaptive import training_times as steps
from benchmarks.papers.adaptive.lazy import (
    OPENING_KS,
    make_float64_distribution,
    make_served_distribution,
    measure_agreement,
    measure_openings,
)
from benchmarks.papers.adaptive.pictures import draw_training
from benchmarks.papers.adaptive.reproduce import format_training
from tests.support.layers import CLASSES, DIM, make_dense

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported_head(tmp_path_factory):
    torch.manual_seed(0)
    module = AdaptiveSoftmax(DIM, CLASSES, [110, 200], 2.0, True, torch.randperm(CLASSES)).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3)
    contexts = torch.randn(300, DIM)
    out = tmp_path_factory.mktemp("page") / "lm" / "1"
    export(make_dense(), Contexts(contexts.numpy()), out, Request("adaptive", head=module, threads=1))
    return Head(Bundle(out), "cpu", 1), module, contexts


def test_openings_by_the_rule_are_those_of_the_served_head(exported_head):
    head, module, contexts = exported_head
    for one in measure_openings(module, contexts):
        head.plan.tally.reset()
        head.run(head.plan, contexts.numpy(), one.k, UNRESTRICTED)
        assert head.plan.tally.mean == pytest.approx(sum(one.in_tail_order), abs=0.02)
        assert sum(one.least) <= sum(one.in_tail_order) + 1e-6


def test_agreement_sees_what_is_the_same_and_what_is_not(exported_head):
    head, module, contexts = exported_head
    other = AdaptiveSoftmax(DIM, CLASSES, [110, 200], 2.0).eval()
    truths = {
        "own": make_served_distribution(head.plan),
        "float64": make_float64_distribution(module),
        "other": make_float64_distribution(other),
    }
    result = measure_agreement(head.plan, truths, contexts, OPENING_KS)
    for name in ("own", "float64"):
        assert (result[name].wrong, result[name].beyond) == (0, 0)
        assert result[name].error < 1e-5
    assert result["other"].wrong > result["other"].answers / 2
    assert result["other"].beyond > result["other"].answers / 2


def test_steps_are_timed_and_drawn(monkeypatch, tmp_path):
    monkeypatch.setattr(steps, "VOCABULARIES", (1500, 3000))
    monkeypatch.setattr(steps, "STEP_BATCH", 64)
    monkeypatch.setattr(steps, "STEP_ROUNDS", 1)
    result = steps.measure_training(lambda *_: None)
    assert [one.classes for one in result.vocabularies] == [1500, 3000]
    assert all(np.isfinite(step.seconds) for one in result.vocabularies for step in one.steps)
    assert set(result.tails) == {1, 2, 3, 4, 5}
    draw_training(result, tmp_path / "steps.png")
    assert (tmp_path / "steps.png").stat().st_size > 10_000
    assert format_training(result).count("| 3,000 |") == 3
