"""Multiply-adds are of all that is searched for a row."""

import numpy as np
import pytest
from shortlist_models import tail

from benchmarks.studies.decoding.macs import measure_macs
from tests.support.layers import make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

CLASSES, DIM = 2003, 68
CONTEXTS = make_contexts(6000, DIM)
ROWS = CONTEXTS.contexts[:200]
OPTIONS = {"width": "40", "previewed": "320", "candidates": "24", "full_view": "8"}


def open_tiny(folder, method, options):
    return make_head(folder, make_dense(CLASSES, DIM), CONTEXTS, method=method, options=options)


def test_dense_takes_all(tmp_path):
    assert measure_macs(open_tiny(tmp_path, "full", {}), ROWS, 5) == 1


def test_a_large_k_looks_at_all_classes(tmp_path):
    head = open_tiny(tmp_path, "grouped", OPTIONS | {"promise": "0"})
    few, many = (measure_macs(head, ROWS, k) for k in (1, 10))
    assert few == pytest.approx(head.manifest.quality.cost_macs, rel=0.1)
    assert many > few + 40 / DIM  # previews of every class


def test_rows_that_are_searched_on_count_for_more(tmp_path):
    head = open_tiny(tmp_path, "grouped", OPTIONS)
    if not head.manifest.settings.effort:
        pytest.skip("there are no compiled loops")
    costs = [measure_macs(head.with_settings(promise=promise), ROWS, 2) for promise in (0.5, 0.99, 0.999999)]
    assert costs == sorted(costs)
    assert costs[0] < costs[2]


@pytest.mark.parametrize(
    ("method", "options", "least"),
    [("svd", {"basis": "context", "width": "9", "full_view": "50"}, 9 / DIM), ("l2s", {"clusters": "5"}, 5 / CLASSES)],
)
def test_other_methods_count_what_they_score(tmp_path, method, options, least):
    head = open_tiny(tmp_path, method, options)
    scored = head.topk_by_plan(ROWS, 5).scored
    assert measure_macs(head, ROWS, 5) == pytest.approx(least + np.mean(scored) / CLASSES, rel=0.05)


def test_a_second_stage_counts_previews_terms_and_rows_of_dense(tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "STEPS", 50)
    options = {"clusters": "5", "rounds": "0", "probes": "2", "second_stage": "int8", "width": "12", "full_view": "40"}
    head = open_tiny(tmp_path, "l2s", options | {"tail_terms": "8", "fallback": "0.2", "background": "0"})
    parts, routes = head.plan.list_parts(), head.plan.choose_routes(ROWS)
    previewed = np.array([len(set(parts[first]) | set(parts[other])) for first, other in routes])
    by_dense = head.topk_by_plan(ROWS, 5).scored == CLASSES
    assert 0.05 < by_dense.mean() < 0.5
    counts = DIM * (5 + 12 + 8) + 12 * previewed + DIM * (40 + CLASSES * by_dense)
    assert measure_macs(head, ROWS, 5) == pytest.approx(counts.mean() / (CLASSES * DIM))
