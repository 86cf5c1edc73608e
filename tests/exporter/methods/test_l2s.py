"""Method l2s through the real runtime: plan `screen`."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.errors import BadInput
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.methods.l2s import calibrate_margin
from shortlist_exporter.methods.registry import METHODS
from shortlist_models import tail
from shortlist_models.l2s.screened import ScreenedSoftmax

from tests.support.layers import CLASSES, DIM, logits_of, logprobs_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

OPTIONS = {"clusters": "6", "budget": "40", "rounds": "1", "epochs": "1"}
STAGED = {"second_stage": "int8", "width": "12", "full_view": "30"}
FORMS = {
    "one probe": {},
    "two probes": {"probes": "2"},
    "second stage": STAGED,
    "second stage, two probes": STAGED | {"probes": "2"},
    "fall-back": {"fallback": "0.3"},
    "second probe": {"second_probe": "0.3"},
    "low-rank tail": {"tail_rank": "3"},
    "terms": STAGED | {"tail_terms": "8"},
    "terms, fall-back": STAGED | {"tail_terms": "8", "fallback": "0.3"},
}
contexts = make_contexts(600)
rows = contexts.contexts[-60:]


@pytest.fixture(scope="module", params=FORMS)
def form(request):
    return request.param


@pytest.fixture(scope="module")
def dense():
    bias = np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32)
    return make_dense(bias=bias, logit_scale=0.7, soft_cap=30.0, padded=np.array([5, 17]))


@pytest.fixture(scope="module")
def head(form, dense, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail, "STEPS", 200)
        return make_head(tmp_path_factory.mktemp("l2s"), dense, contexts, method="l2s", options=OPTIONS | FORMS[form])


def test_answers_are_exactly_scored_distinct_and_never_padding(head, dense):
    top, truth = head.topk(rows, 5), logits_of(dense, rows)
    for row, ids in enumerate(top.ids):
        assert len(set(ids.tolist())) == 5
        assert not set(ids.tolist()) & {5, 17}
        scores = truth[row, ids]
        assert (np.diff(scores) <= 1e-5).all()
        np.testing.assert_allclose(np.diff(top.logprobs[row]), np.diff(scores), atol=1e-4)


@pytest.mark.parametrize("form", ["one probe", "two probes", "second probe", "low-rank tail"], indirect=True)
def test_onnx_path_agrees_with_torch(head, dense, form):
    fitted = METHODS["l2s"].fit(dense, contexts.contexts[: len(contexts.contexts) * 9 // 10], OPTIONS | FORMS[form], 0)
    ids, logprobs = fitted.module.topk(torch.from_numpy(rows), 5)
    top = head.topk(rows, 5)
    np.testing.assert_array_equal(top.ids, ids.numpy())
    np.testing.assert_allclose(top.logprobs, logprobs.numpy(), atol=1e-4)


def test_a_row_alone_equals_the_row_in_a_batch(head):
    batch = rows.copy()
    batch[1::2] *= 1000
    together = head.topk(batch, 5)
    for row in range(0, len(batch), 2):
        alone = head.topk(batch[row : row + 1], 5)
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
        np.testing.assert_allclose(alone.logprobs[0], together.logprobs[row], atol=1e-4)
        assert alone.scored[0] == together.scored[row]


def test_scored_says_how_many(head, form):
    scored = head.topk(rows, 5).scored
    dense_share = (scored == CLASSES).mean()
    assert scored.min() >= 5
    assert (dense_share > 0) == ("fall-back" in form)
    if "fall-back" in form:
        assert 0.05 < dense_share < 0.7


@pytest.mark.parametrize("form", ["one probe", "two probes", "second probe", "fall-back"], indirect=True)
def test_routes_are_what_a_row_is_scored_over(head):
    parts, routes = head.plan.list_parts(), head.plan.choose_routes(rows)
    sizes = [len(np.unique(np.concatenate([parts[i] for i in route]))) if route else CLASSES for route in routes]
    np.testing.assert_array_equal(sizes, head.topk_by_plan(rows, 5).scored)


def test_k_over_every_set_widens(head, dense):
    top = head.topk(rows[:3], 70)
    assert (top.ids >= 0).all()
    assert all(len(set(ids.tolist())) == 70 for ids in top.ids)
    everything = head.topk(rows[:3], CLASSES - 2)
    truth = np.argsort(-logits_of(dense, rows[:3]), axis=1, kind="stable")[:, : CLASSES - 2]
    assert (np.sort(everything.ids, axis=1) == np.sort(truth, axis=1)).all()


def test_lists_give_legal_classes_as_many_as_there_are(head, dense):
    best = head.topk(rows, 30).ids
    banned = head.topk(rows, 5, ban=best)
    assert all(not set(found) & set(out) for found, out in zip(banned.ids.tolist(), best.tolist(), strict=True))
    assert (banned.ids >= 0).all()
    some = head.topk(rows, 5, allow=[3, 99, 200], ban=[99])
    assert (np.sort(some.ids, axis=1)[:, -2:] == [3, 200]).all()
    assert (some.ids[:, 2:] == -1).all()
    exact = logprobs_of(dense, rows)
    order = np.sign(some.logprobs[:, 0] - some.logprobs[:, 1])
    assert (order == np.abs(np.sign(exact[:, 3] - exact[:, 200]))).all()


def test_logprobs_are_those_of_the_answers(head):
    top = head.topk(rows, 3)
    np.testing.assert_allclose(head.logprobs(rows, top.ids), top.logprobs, atol=0.05)


def sum_sets(head, logits):
    """The logs [B] of the sums of exp over the classes that each row's sets hold."""
    parts = head.plan.list_parts()
    unions = (np.unique(np.concatenate([parts[i] for i in route])) for route in head.plan.choose_routes(rows))
    return np.array([np.logaddexp.reduce(row[ids]) for row, ids in zip(logits, unions, strict=True)])


def test_terms_are_added_to_what_the_sets_hold(dense, tmp_path, monkeypatch):
    monkeypatch.setattr(tail, "STEPS", 200)
    terms = STAGED | {"width": str(DIM), "probes": "2", "tail_terms": "8", "fallback": "0.3"}
    head = make_head(tmp_path, dense, contexts, method="l2s", options=OPTIONS | terms)
    top, logits = head.topk_by_plan(rows, 5), logits_of(dense, rows)
    inside, whole = sum_sets(head, logits), np.logaddexp.reduce(logits, axis=1)
    rest = np.minimum(head.plan.terms.graph(context=rows)[0], inside + head.manifest.settings.tail_limit)
    normalizer, by_dense = logits[np.arange(len(rows)), top.ids[:, 0]] - top.logprobs[:, 0], top.scored == CLASSES
    assert 0.05 < by_dense.mean() < 0.7
    assert (rest - inside)[by_dense].min() > (rest - inside)[~by_dense].max() - 0.05
    np.testing.assert_allclose(normalizer[by_dense], whole[by_dense], atol=1e-3)
    np.testing.assert_allclose(normalizer[~by_dense], np.logaddexp(inside, rest)[~by_dense], atol=0.02)
    assert np.abs(normalizer - whole).mean() < 0.9 * (whole - inside).mean()


def test_every_class_always_included_is_the_dense_head(dense, tmp_path):
    everything = OPTIONS | {"always_top": str(CLASSES)}
    head = make_head(tmp_path, dense, contexts, method="l2s", options=everything)
    truth = logprobs_of(dense, rows)
    top = head.topk(rows, 5)
    np.testing.assert_array_equal(top.ids, np.argsort(-truth, axis=1, kind="stable")[:, :5])
    np.testing.assert_allclose(top.logprobs, np.take_along_axis(truth, top.ids, axis=1), atol=1e-3)


@settings(max_examples=12, deadline=None)
@given(clusters=st.integers(1, 9), probes=st.integers(1, 3), k=st.integers(1, CLASSES), equal=st.booleans())
def test_any_screen_answers_any_k(tmp_path_factory, clusters, probes, k, equal):
    sample = Contexts(np.repeat(contexts.contexts[:1], 200, axis=0)) if equal else contexts
    sample.contexts[-1] += 1  # a distinct row to hold out
    options = OPTIONS | {"clusters": str(clusters), "probes": str(min(probes, clusters)), "rounds": "0"}
    head = make_head(tmp_path_factory.mktemp("any"), make_dense(), sample, method="l2s", options=options)
    top = head.topk(rows[:4], k)
    assert (np.sort(top.ids, axis=1)[:, 1:] != np.sort(top.ids, axis=1)[:, :-1]).all()
    assert (top.ids >= 0).all()
    assert np.isfinite(top.logprobs).all()


def test_a_layer_of_fewer_classes_than_the_depth_has_all_in_every_set(tmp_path):
    head = make_head(tmp_path, make_dense(3), contexts, method="l2s", options={"clusters": "6", "rounds": "1"})
    assert head.manifest.fit["depth"] == 3
    np.testing.assert_array_equal(head.topk(rows, 3).ids, head.topk(rows, 3, exact=True).ids)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"clusters": "600"}, "540 contexts to fit 600 clusters"),
        ({"budget": "3"}, "budget=3 is under depth=5"),
        ({"depth": "301"}, "depth=301 is over the layer's 300 classes"),
        ({"probes": "7"}, "probes=7 is over clusters=6"),
        ({"always": "1,x"}, "always=1,x is no list of ids"),
        ({"always": "300"}, "always holds id 300"),
        ({"second_stage": "int8", "width": "17"}, "width=17 is over d = 16"),
        ({"tail_terms": "8"}, "tail_terms is of a second stage alone"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(tmp_path, options, sentence):
    out = tmp_path / "lm" / "1"
    with pytest.raises(BadInput, match=sentence):
        export(make_dense(dim=DIM), contexts, out, Request("l2s", OPTIONS | options, threads=1))
    assert not out.exists()


@pytest.mark.parametrize("options", [{"second_probe": "0.3"}, {"fallback": "0.3"}, {"probes": "2"}, {}])
def test_a_zero_context_among_those_to_fit_on(tmp_path, options):
    """Its margin was 0 / 0: the manifest held null, and the bundle could not be loaded."""
    some = contexts.contexts.copy()
    some[::7] = 0
    head = make_head(tmp_path, make_dense(), Contexts(some), method="l2s", options=OPTIONS | options)
    settings = head.manifest.settings
    assert np.isfinite([settings.probe_margin, settings.dense_margin]).all()
    top = head.topk(np.stack([some[0], some[1]]), 5)
    assert (top.ids >= 0).all()
    assert np.isfinite(top.logprobs).all()


def test_screens_whose_scores_overflow_are_refused():
    screen = ScreenedSoftmax(make_dense().module, torch.full((2, DIM), 3e38), [torch.arange(9)] * 2, 1, None)
    with pytest.raises(BadInput, match="the screen's scores overflow float32: scale them down"):
        calibrate_margin(screen, torch.ones(5, DIM), 0.3)
