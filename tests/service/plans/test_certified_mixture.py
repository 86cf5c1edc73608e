"""Exact answers of a mixture, of which those among the rare classes are proved: they are those of all components."""

import numpy as np
import pytest
from shortlist.bundle.reader import Bundle
from shortlist.core.filters import UNRESTRICTED
from shortlist.errors import BundleError
from shortlist.evaluation.canary import check_certificate
from shortlist.kernels import mixture
from shortlist.kernels.proofs import CompiledProofs
from shortlist.plans import certified_mixture
from shortlist.plans.certified_mixture import CertifiedMixture
from shortlist.plans.graph_proofs import GraphProofs
from shortlist_exporter.graphs import builder, certificate

from tests.support.heads.adaptive import brute_force
from tests.support.heads.mixtape import SIZES, compute_logprobs, make, make_module
from tests.support.layers import make_contexts

pytestmark = pytest.mark.slow

PROOFS = {"graphs": GraphProofs, "loops": CompiledProofs, "previews": CompiledProofs}
MANY_FREQUENT = 550  # of so many proofs use previews
ROUNDING = 2e-5  # nats


@pytest.fixture(scope="module", params=PROOFS)
def served(request, tmp_path_factory):
    """A head with a certificate, 60 contexts, the module's log-probabilities of them.

    Its rare classes are proved by loops or by graphs, its frequent ones all scored, or previewed.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "MIN_WEIGHTS", 0)
        patch.setattr(builder, "INLINE_BYTES", 128)
        patch.setattr(mixture, "SLOW_TARGETS", ())
        if request.param == "graphs":
            patch.setattr(CompiledProofs, "open", lambda *_: None)
        module = make_module(*SIZES["loops"], frequent=MANY_FREQUENT if request.param == "previews" else None)
        head, _ = make(tmp_path_factory.mktemp("mixture"), "loops", module, report=False, fallback=False)
    assert isinstance(head.certified, CertifiedMixture)
    assert isinstance(head.certified.proofs, PROOFS[request.param])
    assert (head.plan.front.compiled.previews is not None) == (request.param == "previews")
    rows = make_contexts(60, module.dim, seed=5).contexts
    return head, rows, compute_logprobs(module, rows)


def find_bound(head):
    return head.manifest.certificate.logprob_bound + ROUNDING


@pytest.fixture
def whole_head(served, monkeypatch):
    """The same head without proofs: all components answer."""
    head, _, _ = served
    monkeypatch.setattr(head, "certified", None)
    return head


@pytest.mark.parametrize("k", [1, 5, 20])
def test_proved_classes_are_the_modules(served, k):
    head, rows, truth = served
    top = head.topk(rows, k, exact=True)
    assert top.normalizer == "bounded"
    expected = brute_force(truth, k)[1]
    np.testing.assert_allclose(np.take_along_axis(truth, top.ids, axis=1), expected, atol=ROUNDING)
    assert np.abs(top.logprobs - expected).max() <= find_bound(head)


def test_most_rows_are_proved_by_fewer_classes_than_all(served):
    head, rows, truth = served
    scored = head.topk(rows, 1, exact=True).scored
    assert (scored < truth.shape[1]).mean() > 0.8


def test_previews_leave_few_frequent_classes_and_the_same_answers(served, monkeypatch):
    head, rows, truth = served
    frequent, tops = head.plan.front.frequent.size, {}
    for most in (0.0, np.inf):  # nats: all components score the frequent classes, or never where previews will do
        monkeypatch.setattr(certified_mixture, "MOST_FREQUENT_ERROR", most)
        tops[most] = [head.certified.prove(rows, k, UNRESTRICTED) for k in (1, 5, 16, 17, 40)]
    for k, (whole, _), (top, errors) in zip((1, 5, 16, 17, 40), *tops.values(), strict=True):
        np.testing.assert_array_equal(top.ids, whole.ids)
        np.testing.assert_array_equal(top.logits, whole.logits)
        normalizers = top.logits - np.take_along_axis(truth, top.ids, axis=1)  # the true one, in every column
        off = np.abs(top.log_normalizer - normalizers[:, 0])
        assert (off <= errors + ROUNDING).all()
        np.testing.assert_array_equal(top.log_normalizer, tops[np.inf][0][0].log_normalizer)
        if frequent == MANY_FREQUENT and k <= 16:
            assert (top.scored < whole.scored - frequent / 2).all()
        else:
            np.testing.assert_array_equal(top.scored, whole.scored)


def test_rows_that_bounds_do_not_decide_are_answered_by_all_components(served, monkeypatch):
    head, rows, truth = served
    monkeypatch.setattr(head.certified, "tolerance", 0.0)
    top = head.topk(rows, 5, exact=True)
    assert (top.scored == truth.shape[1]).all()
    np.testing.assert_allclose(top.logprobs, brute_force(truth, 5)[1], atol=ROUNDING)
    ids = np.arange(9)[None].repeat(len(rows), axis=0)
    np.testing.assert_allclose(head.logprobs(rows, ids, exact=True), truth[:, :9], atol=ROUNDING)


def test_proofs_agree_with_all_components_whatever_is_asked(served, whole_head, request):
    _, rows, truth = served
    best = brute_force(truth, 30)[0]
    asked = {"ban": best}, {"allow": [3, 99, 200, 900], "ban": [99]}
    without = [whole_head.topk(rows, 5, exact=True, **lists).ids for lists in asked]
    drawn = whole_head.sample(rows, 7, np.arange(len(rows)), draws=3).ids
    request.getfixturevalue("monkeypatch").undo()
    for lists, ids in zip(asked, without, strict=True):
        np.testing.assert_array_equal(whole_head.topk(rows, 5, exact=True, **lists).ids, ids)
    draws = whole_head.sample(rows, 7, np.arange(len(rows)), draws=3)
    np.testing.assert_array_equal(draws.ids, drawn)
    assert draws.normalizer == "bounded"


def test_log_probabilities_of_ids_draws_and_answers_agree(served):
    head, rows, truth = served
    top, draws = head.topk(rows, 5, exact=True), head.sample(rows, 7, draws=3)
    for one in (top, draws):
        np.testing.assert_allclose(head.logprobs(rows, one.ids, exact=True), one.logprobs, atol=ROUNDING)
    ids = np.arange(truth.shape[1])[None].repeat(len(rows), axis=0)
    every = head.logprobs(rows, ids, exact=True)
    assert np.abs(every - truth).max() <= find_bound(head)
    assert (np.exp(every).sum(axis=1) <= 1 + ROUNDING).all()


def test_no_rows_and_single_rows_are_answered(served):
    head, rows, _ = served
    assert head.topk(rows[:0], 5, exact=True).ids.shape == (0, 5)
    assert head.sample(rows[:0], 7).ids.shape == (0, 1)
    assert head.logprobs(rows[:0], [1, 2], exact=True).shape == (0, 2)
    together = head.topk(rows, 5, exact=True).ids
    alone = np.concatenate([head.topk(row[None], 5, exact=True).ids for row in rows])
    np.testing.assert_array_equal(alone, together)


def test_a_logit_outside_of_its_bounds_fails_the_canary(served, monkeypatch):
    head, rows, _ = served
    bundle = Bundle(head.folder, verify=False)
    check_certificate(head, rows[:3], bundle)
    plain = head.exact.compute_distribution

    def shift_one(contexts):
        logits = plain(contexts)
        logits[:, places.pop()] += 1.0
        return logits

    monkeypatch.setattr(head.exact, "compute_distribution", shift_one)
    front = head.exact.front
    places = [front.rare[5], front.frequent[5]] if front.compiled.previews is not None else [front.rare[5]]
    while places:
        with pytest.raises(BundleError, match="a logit is outside its bounds"):
            check_certificate(head, rows[:3], bundle)


def test_without_a_certificate_all_components_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(certificate, "MIN_WEIGHTS", 0)
    head, module = make(tmp_path, "loops", report=False, certificate=False)
    assert (head.certified, head.manifest.exact_plan) == (None, None)
    rows = make_contexts(3, module.dim, seed=5).contexts
    assert head.topk(rows, 5, exact=True).normalizer == "exact"


def test_a_mixture_proves_without_its_dense_layer(tmp_path, monkeypatch):
    monkeypatch.setattr(certificate, "MIN_WEIGHTS", 0)
    monkeypatch.setattr(builder, "INLINE_BYTES", 128)
    head, module = make(tmp_path, "loops", report=False, keep_dense=False, fallback=False)
    rows = make_contexts(20, module.dim, seed=5).contexts
    whole = head.run(head.exact, rows, 5, UNRESTRICTED)
    np.testing.assert_array_equal(head.topk(rows, 5, exact=True).ids, whole.ids)
    assert head.topk(rows, 5, exact=True).normalizer == "bounded"
