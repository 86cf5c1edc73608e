"""Previews of a mixture's frequent classes: bounds that hold, and the best classes' logits bit by bit."""

from types import SimpleNamespace

import numpy as np
import pytest
import shortlist
import torch
from shortlist.bundle.reader import Bundle
from shortlist.kernels import mixture
from shortlist.kernels.mixture import CompiledFront
from shortlist.kernels.mixture_previews import FrequentPreviews
from shortlist.kernels.native import library
from shortlist.plans.common.normalizer import log_sum_exp
from shortlist_models.mixtures.mixtape import Mixtape

from tests.support.heads.mixtape import make
from tests.support.kernels import list_targets
from tests.support.layers import make_contexts

pytestmark = pytest.mark.slow

CLASSES, DIM, FREQUENT = 1100, 20, 401
FORMS = {"tree": (4, True), "deep tree": (16, True), "softmax": (3, False), "one": (1, False)}
MOST_K = FREQUENT // 32  # for which loops use previews
ROWS = 60


@pytest.fixture(scope="module", params=FORMS)
def folder(request, tmp_path_factory):
    """The folder of a head of which many classes are frequent."""
    torch.manual_seed(1)
    components, tree = FORMS[request.param]
    module = Mixtape(DIM, CLASSES, components, FREQUENT, 8, torch.randperm(CLASSES), tree=tree).eval()
    with torch.no_grad():
        module.weight.mul_(8)
        module.weight[5] = 0
    options = {"candidates": "80", "full_view": "7"}
    return make(tmp_path_factory.mktemp("mixture"), "loops", module, options, report=False)[0].folder


@pytest.fixture(autouse=True)
def preview_everywhere(monkeypatch):
    """Use previews on targets, too, where they save no time."""
    monkeypatch.setattr(mixture, "SLOW_TARGETS", ())


@pytest.fixture(params=list_targets())
def head(request, folder, monkeypatch):
    monkeypatch.setenv(library.VARIABLE, request.param)
    yield shortlist.load(folder, threads=1)
    library.open_target.cache_clear()


def make_rows(seed=7):
    """Contexts of every size, and one of zeros."""
    rows = make_contexts(ROWS, DIM, seed=seed).contexts * np.float32(10) ** np.arange(-4, 2).repeat(10)[:, None]
    rows[-1] = 0
    return rows.astype(np.float32)


def test_no_logit_and_no_sum_is_off_by_more_than_its_bound(head):
    front, rows = head.plan.front.compiled, make_rows()
    means, logits = front(rows)
    for k in (0, 1, 5):
        seen = front.preview(rows, k, reaches=True, errors=True)
        np.testing.assert_array_equal(seen.means, means)
        assert (np.abs(seen.logits - logits) <= seen.reaches).all()
        sums = [[log_sum_exp(one.astype(np.float64)) for one in each] for each in (seen.logits, logits)]
        assert (np.abs(np.subtract(*sums)) <= seen.errors).all()
        assert ((seen.reaches == 0).sum(axis=1) == seen.scored).all()
    assert np.abs(seen.logits - logits).max() > 0


def test_the_best_logits_are_those_of_all_components_bit_by_bit(head):
    front, rows = head.plan.front.compiled, make_rows(seed=8)
    logits = front(rows)[1]
    for k in range(1, MOST_K + 1):
        seen = front.preview(rows, k)
        np.testing.assert_array_equal(-np.sort(-seen.logits)[:, :k], -np.sort(-logits)[:, :k])
        order = np.argsort(-logits, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(np.argsort(-seen.logits, axis=1, kind="stable")[:, :k], order)
        assert (seen.scored >= k).all()
    assert np.median(seen.scored) < FREQUENT / 4
    beyond = front.preview(rows, MOST_K + 1, reaches=True, errors=True)
    np.testing.assert_array_equal(beyond.logits, logits)
    assert (beyond.scored == FREQUENT).all()
    assert not beyond.reaches.any()
    assert not beyond.errors.any()


def test_targets_give_the_same_bits(head, folder, monkeypatch):
    rows = make_rows(seed=9)
    seen = head.plan.front.compiled.preview(rows, 5, reaches=True, errors=True)
    monkeypatch.setenv(library.VARIABLE, "portable")
    portable = shortlist.load(folder, threads=2).plan.front.compiled.preview(rows, 5, reaches=True, errors=True)
    for values, expected in zip(seen, portable, strict=True):
        np.testing.assert_array_equal(values, expected)


def test_searches_find_what_they_find_without_previews(head, monkeypatch):
    rows = make_contexts(ROWS, DIM, seed=10).contexts
    tops = {k: head.topk(rows, k) for k in (1, 5, 9)}
    alone = [head.topk(row[None].copy(), 5) for row in rows]
    again = head.logprobs(rows, tops[5].ids)
    monkeypatch.setattr(head.plan.front.compiled, "previews", None)
    for k, top in tops.items():
        whole = head.topk(rows, k)
        np.testing.assert_array_equal(top.ids, whole.ids)
        np.testing.assert_allclose(top.logprobs, whole.logprobs, atol=0.01)
        assert (top.scored < whole.scored).all()
    assert np.abs(tops[5].logprobs - head.topk(rows, 5).logprobs).max() > 0
    np.testing.assert_allclose(again, tops[5].logprobs, atol=2e-5)
    for name in ("ids", "logprobs", "scored"):
        np.testing.assert_array_equal(np.concatenate([getattr(one, name) for one in alone]), getattr(tops[5], name))


def test_answers_under_lists_and_of_many_classes_are_those_of_all_components(head, monkeypatch):
    rows = make_contexts(9, DIM, seed=11).contexts
    calls = {"k": 60}, {"k": 5, "ban": head.topk(rows, 12).ids}, {"k": 3, "allow": list(range(0, CLASSES, 7))}
    tops = [head.topk(rows, **call) for call in calls]
    monkeypatch.setattr(head.plan.front.compiled, "previews", None)
    for call, top in zip(calls, tops, strict=True):
        np.testing.assert_array_equal(head.topk(rows, **call).ids, top.ids)
        np.testing.assert_array_equal(head.topk(rows, **call).logprobs, top.logprobs)


def test_a_bundle_without_previews_is_answered_by_all_components(folder, monkeypatch):
    bundle = Bundle(folder, verify=False)
    has_arrays = bundle.has_arrays
    monkeypatch.setattr(bundle, "has_arrays", lambda *roles: "mixture_preview_rows" not in roles and has_arrays(*roles))
    frequent = np.sort(bundle.tensors("index.safetensors")["frequent"])
    assert FrequentPreviews.open(bundle, frequent) is None
    front = CompiledFront(bundle, 1, frequent)
    rows = make_rows()
    seen = front.preview(rows, 5)
    np.testing.assert_array_equal(seen.logits, front(rows)[1])
    assert front.preview(rows[:0], 5).logits.shape == (0, FREQUENT)


def test_slow_targets_and_heads_of_large_weights_get_exact_logits(head, folder, monkeypatch):
    rows = make_rows(seed=13)
    head.plan.front.compiled.previews.of_classes[1][...] *= 1000  # the errors
    seen = head.plan.front.compiled.preview(rows, 5, reaches=True, errors=True)
    assert (seen.scored == FREQUENT).mean() > 0.7
    assert (seen.errors <= 0.25).all()
    np.testing.assert_array_equal(
        seen.logits[seen.scored == FREQUENT], head.plan.front(rows)[1][seen.scored == FREQUENT]
    )
    monkeypatch.setattr(mixture, "SLOW_TARGETS", library.TARGETS)
    assert shortlist.load(folder, threads=1).plan.front.compiled.previews is None


def test_contexts_that_overflow_are_refused_or_finite(head):
    rows = np.full((1, DIM), 3e38, np.float32)
    seen = head.plan.front.preview(rows, 5)
    expected = head.plan.front(rows)
    assert np.isfinite(seen.logits).all() == np.isfinite(expected[1]).all()


def test_a_canary_sees_a_logit_outside_of_its_bounds(head):
    front, row = head.plan.front, make_contexts(1, DIM, seed=12).contexts[0]
    logits = front(row[None])[1][0]
    assert front.holds(row, logits)
    logits[17] += 1
    assert not front.holds(row, logits)
    assert type(front).holds(SimpleNamespace(compiled=None), row, logits)
