"""Bans of a row's own best classes: rows that no look can answer are known before any, and no others."""

import numpy as np
import pytest
from shortlist.core.filters import ClassFilter
from shortlist_exporter.inputs.sources import Contexts, Dense

from tests.support.layers import logits_of, make_head

CLASSES, CLUSTERS, DIM = 8000, 100, 64
RANDOM = np.random.default_rng(0)
CENTRES = RANDOM.standard_normal((CLUSTERS, DIM)).astype(np.float32)
WEIGHT = (CENTRES.repeat(CLASSES // CLUSTERS, axis=0) + RANDOM.standard_normal((CLASSES, DIM)) / 2).astype(np.float32)
NEIGHBOURS = WEIGHT[RANDOM.integers(0, CLASSES, (3000, 2))].mean(axis=1)
CONTEXTS = (NEIGHBOURS + RANDOM.standard_normal(NEIGHBOURS.shape) / 4).astype(np.float32)
ROWS = CONTEXTS[-100:]
BEST = np.argsort(-logits_of(Dense(WEIGHT), ROWS), axis=1)


@pytest.fixture(scope="module")
def clustered_plan(tmp_path_factory):
    options = {"width": "48", "groups": "100", "opened": "2000", "promise": "0.99"}
    folder = tmp_path_factory.mktemp("clustered")
    return make_head(folder, Dense(WEIGHT), Contexts(CONTEXTS[:-100]), method="grouped", options=options).plan


def search(plan, k, ban):
    return plan.compiled(ROWS, plan.plan_search(k, True), ClassFilter(ban=ban))


@pytest.mark.parametrize("k", [1, 20])
def test_rows_whose_best_classes_are_all_banned_take_no_look(clustered_plan, k):
    own = search(clustered_plan, k, BEST[:, :500])
    assert (own.scored == 0).mean() > 0.9
    top = clustered_plan.topk(ROWS, k, ClassFilter(ban=BEST[:, :500]))
    assert (np.isin(top.ids[0], BEST[0, 500 : 500 + k])).all()
    assert (top.ids[:, 0] == BEST[:, 500]).mean() >= 0.99


@pytest.mark.parametrize("bans", [BEST[:, :100], BEST[:, :2000:5], BEST[:, -1000:]], ids=["few", "spread", "worst"])
def test_other_rows_are_looked_at(clustered_plan, bans):
    result = search(clustered_plan, 5, bans)
    assert (result.scored > 0).all()


def test_padding_alone_bans_nothing(clustered_plan):
    result = search(clustered_plan, 5, np.full((len(ROWS), 200), -1))
    assert (result.scored > 0).all()
