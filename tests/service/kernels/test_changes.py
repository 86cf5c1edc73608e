"""Merges of answers with changed rows against numpy, for every target: by previews and by exact logits alike."""

import numpy as np
import pytest
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import PlanResult
from shortlist.kernels.changes import CompiledMerge, RowSet
from shortlist.kernels.exact_rows import CompiledGather
from shortlist.kernels.growing_previews import GrowingPreviews
from shortlist.kernels.native import library

from tests.support.kernels import list_targets

CLASSES, ITEMS, ROWS, K, ASKED = 3000, 2000, 7, 10, 40
MOMENT = 5
FINISHING = {"logit_scale": 0.7, "soft_cap": 30.0}
LAYERS = {
    "plain": {"dim": 64},
    "d = 19": {"dim": 19},
    "bias, padding, scale, soft cap": {"dim": 64, "biased": True, **FINISHING},
}


@pytest.fixture(params=list_targets())
def target(request, monkeypatch):
    monkeypatch.setenv(library.VARIABLE, request.param)
    yield request.param
    library.open_target.cache_clear()


class Catalogue:
    """A layer of which some classes are hidden, and items of which some are gone."""

    def __init__(self, dim, *, previewed, hidden_previewed=None, biased=False, **finishing):
        random = np.random.default_rng(0)
        size = 0.15 if dim > 20 else 0.3
        self.rows, self.items = (
            self.make_layer(random, size, (count, dim), biased, finishing) for count in (CLASSES, ITEMS)
        )
        self.contexts = random.standard_normal((ROWS, dim), np.float32) * 3
        self.hidden = random.permutation(CLASSES)[:900]
        self.hidden_since = np.full(CLASSES, MOMENT + 1, np.int32)
        self.hidden_since[self.hidden] = random.integers(1, MOMENT + 1, 900)
        self.ends = np.where(np.arange(ITEMS) % 3, MOMENT + 1, MOMENT).astype(np.int32)
        self.ids = CLASSES + random.permutation(ITEMS)
        hidden = self.open(self.rows, self.hidden, previewed if hidden_previewed is None else hidden_previewed)
        items = self.open(self.items, np.arange(ITEMS), previewed, self.ends, MOMENT)
        self.merge = CompiledMerge(hidden, items, self.ids, self.hidden_since, MOMENT)

    @staticmethod
    def make_layer(random, size, shape, biased, finishing):
        bias = random.standard_normal(shape[0], np.float32) if biased else None
        padding = np.where(np.arange(shape[0]) % 7, 0, -np.inf).astype(np.float32) if biased else None
        weight = (size * random.standard_normal(shape)).astype(np.float32)
        return CompiledGather(weight, bias=bias, padding=padding, **finishing)

    @staticmethod
    def open(rows, places, previewed, *times):
        previews = GrowingPreviews(rows)
        previews.append(places)
        return RowSet(rows, places, previews if previewed else None, *times)

    def score(self, rows, count):
        return rows(self.contexts, np.broadcast_to(np.arange(count), (ROWS, count)))

    def find(self, asked=ASKED):
        """The best of all classes, as a search that estimates normalisers would return them."""
        logits = self.score(self.rows, CLASSES)
        ids = np.argsort(-logits, axis=1)[:, :asked]
        normalizers = np.log(np.exp(logits.astype(np.float64)).sum(axis=1)).astype(np.float32)
        risk = np.full(ROWS, 0.01, np.float32)
        best = np.take_along_axis(logits, ids, axis=1)
        return PlanResult(ids, best, normalizers, np.full(ROWS, 500, np.int32), risk=risk)

    def answer(self, bans=()):
        """Ids, logits and normalisers of what is left."""
        logits = np.full((ROWS, CLASSES + ITEMS), -np.inf)
        logits[:, :CLASSES] = self.score(self.rows, CLASSES)
        logits[:, self.hidden] = -np.inf
        logits[:, self.ids] = np.where(self.ends > MOMENT, self.score(self.items, ITEMS), -np.inf)
        normalizers = np.log(np.exp(logits).sum(axis=1))
        logits[:, list(bans)] = -np.inf
        ids = np.argsort(-logits, axis=1, kind="stable")[:, :K]
        return ids, np.take_along_axis(logits, ids, axis=1), normalizers


@pytest.fixture(params=LAYERS)
def layer(request):
    return LAYERS[request.param]


@pytest.mark.parametrize("previewed", [False, True])
@pytest.mark.parametrize("hidden_previewed", [False, True])
def test_merges_are_what_is_left_of_all(target, layer, previewed, hidden_previewed):
    catalogue = Catalogue(previewed=previewed, hidden_previewed=hidden_previewed, **layer)
    merged = catalogue.merge(catalogue.find(), catalogue.contexts, K, UNRESTRICTED)
    ids, logits, normalizers = catalogue.answer()
    assert (ids >= CLASSES).any()
    assert (ids < CLASSES).any()
    np.testing.assert_array_equal(merged.scored, 500 + ITEMS)
    np.testing.assert_array_equal(merged.ids, ids)
    np.testing.assert_array_equal(merged.logits, logits.astype(np.float32))
    np.testing.assert_allclose(
        merged.log_normalizer, normalizers, atol=0.003 if previewed or hidden_previewed else 1e-4
    )
    assert merged.risk is not None


@pytest.mark.parametrize("rows", [1, ROWS])
def test_banned_items_are_in_no_answer(target, rows):
    catalogue = Catalogue(64, previewed=True)
    best = catalogue.answer()[0]
    bans = np.unique(best[best >= CLASSES])[: 4 * K]
    lists = ClassFilter(ban=np.tile(bans, (rows, 1)))
    merged = catalogue.merge(catalogue.find(), catalogue.contexts, K, lists)
    np.testing.assert_array_equal(merged.ids, catalogue.answer(bans)[0])


def test_rows_of_which_too_few_classes_are_left_are_undecided(target):
    catalogue = Catalogue(64, previewed=False)
    found = catalogue.find(asked=K)
    merged = catalogue.merge(found, catalogue.contexts, K, UNRESTRICTED)
    left = np.isin(found.ids, catalogue.hidden).any(axis=1)
    assert left.any()
    np.testing.assert_array_equal(merged.scored < 0, left)


def test_rows_that_all_classes_were_scored_of_are_undecided(target):
    catalogue, found = Catalogue(64, previewed=False), Catalogue(64, previewed=False).find()
    found.scored[2] = CLASSES
    merged = catalogue.merge(found, catalogue.contexts, K, UNRESTRICTED)
    np.testing.assert_array_equal(merged.scored < 0, np.arange(ROWS) == 2)


def test_rows_whose_weight_is_nearly_all_hidden_are_undecided(target):
    catalogue, found = Catalogue(64, previewed=True), Catalogue(64, previewed=True).find()
    hidden = RowSet(catalogue.rows, catalogue.hidden).sum(catalogue.contexts)
    found.log_normalizer[3] = hidden[3]
    merged = catalogue.merge(found, catalogue.contexts, K, UNRESTRICTED)
    np.testing.assert_array_equal(merged.scored < 0, np.arange(ROWS) == 3)


def test_rows_that_count_no_more_weigh_nothing(target):
    catalogue = Catalogue(64, previewed=False, **FINISHING)
    for previewed in (False, True):
        ends = np.full(ITEMS, MOMENT, np.int32)
        gone = catalogue.open(catalogue.items, np.arange(ITEMS), previewed, ends, MOMENT)
        np.testing.assert_array_equal(gone.sum(catalogue.contexts), -np.inf)


@pytest.mark.parametrize("scale", [1, 1e20])
def test_rows_of_lengths_that_overflow_are_undecided(target, scale):
    """Items of whole levels lose nothing by rounding: zero times an infinite length bounds no error."""
    random = np.random.default_rng(0)
    items = CompiledGather((127 * random.choice([-1, 1], (ITEMS, 16))).astype(np.float32))
    contexts = (random.standard_normal((ROWS, 16)) * scale).astype(np.float32)
    layer = CompiledGather(np.zeros((CLASSES, 16), np.float32))
    since, ids = np.full(CLASSES, MOMENT + 1, np.int32), np.arange(CLASSES, CLASSES + ITEMS)
    hidden = RowSet(layer, np.empty(0, np.int64))
    merge = CompiledMerge(hidden, Catalogue.open(items, np.arange(ITEMS), True), ids, since, MOMENT)
    zeros = np.zeros((ROWS, K), np.float32)
    found = PlanResult(np.tile(np.arange(K), (ROWS, 1)), zeros, zeros[:, 0].copy(), np.ones(ROWS, np.int32))
    merged, logits = merge(found, contexts, K, UNRESTRICTED), items(contexts, np.tile(np.arange(ITEMS), (ROWS, 1)))
    decided = merged.scored >= 0
    assert decided.any() == (scale == 1)
    best = -np.sort(-logits, axis=1)[:, :K]
    np.testing.assert_array_equal(merged.logits[decided], best[decided])


def test_many_items_alike_are_undecided(target):
    rows = CompiledGather(np.ones((ITEMS, 16), np.float32))
    layer, since = CompiledGather(np.zeros((CLASSES, 16), np.float32)), np.full(CLASSES, MOMENT + 1, np.int32)
    items = Catalogue.open(rows, np.arange(ITEMS), True)
    merge = CompiledMerge(RowSet(layer, np.empty(0, np.int64)), items, np.arange(ITEMS), since, MOMENT)
    one = np.zeros((1, K), np.float32)
    found = PlanResult(np.arange(K)[None], one, one[:, 0].copy(), np.ones(1, np.int32))
    contexts = np.ones((1, 16), np.float32)
    assert merge(found, contexts, K, UNRESTRICTED).scored[0] == -1
    np.testing.assert_allclose(items.sum(contexts), 16 + np.log(ITEMS), atol=1e-3)
