"""Bans of a row's own best classes: rows that no look can answer are known before any, and no others."""

from copy import copy

import numpy as np
import pytest
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.row_lists import RowLists
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.verify.effort import change_settings

from tests.support.heads.grouped import PROMISE_CLASSES, promise_contexts
from tests.support.layers import logits_of, make_dense, make_head

CLASSES, CLUSTERS, DIM = 8000, 100, 64
RANDOM = np.random.default_rng(0)
CENTRES = RANDOM.standard_normal((CLUSTERS, DIM)).astype(np.float32)
WEIGHT = (CENTRES.repeat(CLASSES // CLUSTERS, axis=0) + RANDOM.standard_normal((CLASSES, DIM)) / 2).astype(np.float32)
NEIGHBOURS = WEIGHT[RANDOM.integers(0, CLASSES, (3000, 2))].mean(axis=1)
CONTEXTS = (NEIGHBOURS + RANDOM.standard_normal(NEIGHBOURS.shape) / 4).astype(np.float32)
ROWS = CONTEXTS[-100:]
BEST = np.argsort(-logits_of(Dense(WEIGHT), ROWS), axis=1)


def make_plan(folder, weight):
    options = {"width": "48", "groups": "100", "opened": "3000", "promise": "0.99"}
    return make_head(folder, Dense(weight), Contexts(CONTEXTS[:-100]), method="grouped", options=options).plan


@pytest.fixture(scope="module")
def clustered_plan(tmp_path_factory):
    return make_plan(tmp_path_factory.mktemp("clustered"), WEIGHT)


def test_contexts_of_many_lengths_keep_the_promise_where_their_best_are_banned(tmp_path):
    """Previews of rows as short as these, of 36 columns in 2 bits, need many candidates."""
    contexts = CONTEXTS * np.exp(2 * np.random.default_rng(1).standard_normal((len(CONTEXTS), 1), np.float32))
    dense, rows = Dense(WEIGHT), contexts[-400:]
    head = make_head(tmp_path, dense, Contexts(contexts[:-400]), method="grouped", options={"promise": "0.99"})
    best = np.argsort(-logits_of(dense, rows), axis=1)
    ids = np.concatenate([head.topk(rows[i : i + 1], 5, ban=best[i, :20]).ids for i in range(len(rows))])
    assert (ids[:, :, None] == best[:, None, 20:25]).any(axis=1).mean() >= 0.99


def search(plan, k, ban, rows=ROWS):
    return plan.compiled(rows, plan.plan_search(k, True), ClassFilter(ban=ban))


@pytest.mark.parametrize("k", [1, 2, 7, 20])
@pytest.mark.parametrize("promise", [None, 0.99])
def test_a_row_without_bans_beside_others_gets_what_it_gets_alone(clustered_plan, promise, k):
    plan = change_settings(clustered_plan, promise=promise)
    free, bans = slice(0, None, 2), BEST[:, :3].copy()
    bans[free] = -1
    alone, beside = plan.topk(ROWS, k, UNRESTRICTED), plan.topk(ROWS, k, ClassFilter(ban=bans))
    np.testing.assert_array_equal(beside.ids[free], alone.ids[free])
    np.testing.assert_array_equal(beside.scored[free], alone.scored[free])
    np.testing.assert_allclose(beside.log_normalizer[free], alone.log_normalizer[free], atol=1e-5)


@pytest.mark.parametrize("k", [1, 20])
def test_rows_whose_best_classes_are_all_banned_take_no_look(clustered_plan, k):
    own = search(clustered_plan, k, BEST[:, :500])
    assert (own.scored == 0).mean() > 0.9
    top = clustered_plan.topk(ROWS, k, ClassFilter(ban=BEST[:, :500]))
    assert (np.isin(top.ids[0], BEST[0, 500 : 500 + k])).all()
    assert (top.ids[:, 0] == BEST[:, 500]).mean() >= 0.99


@pytest.mark.parametrize("banned", [100, 160, 300])
def test_looks_that_pass_more_bans_than_others_open_all_groups(clustered_plan, banned):
    """However few classes the export found enough for each of fewer bans."""
    lists = ClassFilter(ban=BEST[:, :banned])
    narrow, wide = (change_settings(clustered_plan, deep_bans=800, opened_per_depth=each) for each in (1, 1000))
    top, other = narrow.topk(ROWS, 5, lists), wide.topk(ROWS, 5, lists)
    assert (top.risk > 0).any()
    np.testing.assert_array_equal(top.ids, other.ids)
    np.testing.assert_array_equal(top.scored, other.scored)
    assert (top.ids[:, :, None] == BEST[:, None, banned : banned + 5]).any(axis=1).mean() >= 0.99


def test_what_all_rows_of_the_layer_have_in_common_hides_no_bans(tmp_path):
    """It adds up to hundreds to all of a context's logits, or takes it from them, and changes none's place."""
    plan = make_plan(tmp_path, WEIGHT + 20 * np.random.default_rng(1).standard_normal(DIM).astype(np.float32))
    assert (search(plan, 20, BEST[:, :500]).scored == 0).mean() > 0.9
    assert (search(plan, 5, BEST[:, :2000:5]).scored > 0).all()
    assert (search(plan, 5, BEST[:, -1000:]).scored > 0).all()


@pytest.mark.parametrize("bans", [BEST[:, :100], BEST[:, :2000:5], BEST[:, -1000:]], ids=["few", "spread", "worst"])
def test_other_rows_are_looked_at(clustered_plan, bans):
    result = search(clustered_plan, 5, bans)
    assert (result.scored > 0).all()


@pytest.mark.parametrize("banned", [5, 20, 100])
def test_a_first_look_states_what_it_misses_whatever_bans_stand_in_front(promise_head, banned):
    """So that no number of bans alone sends a row to the next look."""
    head, rows = promise_head.with_settings(promise=1e-300), promise_contexts.contexts[-400:]
    best = np.argsort(-logits_of(make_dense(PROMISE_CLASSES, rows.shape[1]), rows), axis=1)
    top = search(head.plan, 5, best[:, :banned], rows)
    missed = 1 - (top.ids[:, :, None] == best[:, None, banned : banned + 5]).any(axis=1).mean()
    assert (top.scored == head.manifest.settings.candidates).all()
    assert missed / 2 <= top.risk.mean() <= 1.5 * missed


def test_a_row_whose_few_best_classes_are_permitted_is_looked_at(clustered_plan):
    assert (search(clustered_plan, 1, BEST[:, 3:500]).scored > 0).all()


def test_padding_beside_bans_changes_nothing(clustered_plan):
    bans = np.concatenate([BEST[:, :200], BEST[:, -100:]], axis=1)
    padded = np.concatenate([bans, np.full((len(bans), 1700), -1)], axis=1)
    first, second = (search(clustered_plan, 5, ban) for ban in (bans, padded))
    np.testing.assert_array_equal(first.scored, second.scored)
    np.testing.assert_array_equal(first.ids, second.ids)
    np.testing.assert_array_equal(first.log_normalizer, second.log_normalizer)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_a_list_of_many_classes_beside_others_changes_nothing_of_theirs(clustered_plan, k):
    """Of a call whose longest list forbids a quarter and more, each row is searched as it would be alone."""
    bans = [best[: 1 + row % 50] if row % 2 else best[100 : 101 + row % 50] for row, best in enumerate(BEST)]
    bans[-1] = BEST[-1, -CLASSES // 3 :]
    beside = clustered_plan.topk(ROWS, k, ClassFilter(ban=RowLists.from_lists(bans)))
    for row, ban in enumerate(bans):
        alone = clustered_plan.topk(ROWS[row : row + 1], k, ClassFilter(ban=RowLists.from_lists([ban])))
        for name in ("ids", "logits", "log_normalizer", "risk", "scored"):
            np.testing.assert_array_equal(getattr(beside, name)[row], getattr(alone, name)[0])


@pytest.mark.parametrize("banned", [200, 500])
def test_without_exact_answers_all_looks_are_taken(clustered_plan, banned):
    """They give the normaliser that rows without lists have."""
    without = copy(clustered_plan)
    without.fallback = without.prover = None
    result = without.topk(ROWS, 5, ClassFilter(ban=BEST[:, :banned]))
    wanted = clustered_plan.topk(ROWS, 5, UNRESTRICTED).log_normalizer
    np.testing.assert_allclose(result.log_normalizer, wanted, atol=0.3)
    missed = (result.ids[:, 0] != BEST[:, banned]).mean()
    assert missed / 2 <= result.risk.mean()
    assert missed < 0.4


def test_all_classes_of_a_list_that_differ_by_less_than_int8_rows_tell_are_compared(tmp_path):
    """Rows of a few large numbers have coarse codes, and some of them near classes."""
    weight = RANDOM.standard_t(2.5, (CLASSES, DIM)).astype(np.float32)
    contexts = (weight[RANDOM.integers(0, CLASSES, 1500)] + RANDOM.standard_t(2.5, (1500, DIM))).astype(np.float32)
    head = make_head(tmp_path, Dense(weight), Contexts(contexts[:-500]), method="grouped", options={"promise": "0.99"})
    order = np.argsort(-(contexts[-500:].astype(np.float64) @ weight.T.astype(np.float64)), axis=1)
    lists = ClassFilter(allow=np.sort(order[:, 300:1300], axis=1))
    top = head.plan.topk(contexts[-500:], 1, lists)
    assert (top.ids[:, 0] == order[:, 300]).mean() >= 0.999
    assert (top.risk == 0).all()


def test_padding_alone_bans_nothing(clustered_plan):
    result = search(clustered_plan, 5, np.full((len(ROWS), 200), -1))
    assert (result.scored > 0).all()
