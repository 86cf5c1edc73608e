"""Method cascade through the real runtime: plan `cascade`."""

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.errors import BadInput
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.methods import cascade as method
from shortlist_exporter.methods.registry import METHODS

from tests.support.layers import list_layers, logits_of, logprobs_of, make_contexts, make_dense, make_head
from tests.support.searches import check_exact_scores, check_lists_come_first, check_rows_alone, check_wide_k

CLASSES = 2000
OPTIONS = {"width": "8", "candidates": "200", "rare_share": "0.3"}
contexts = make_contexts(800)
rows = contexts.contexts[-80:]
LAYERS = list_layers(CLASSES)


@pytest.fixture(scope="module", params=LAYERS)
def dense(request):
    return make_dense(CLASSES, **LAYERS[request.param])


@pytest.fixture(scope="module")
def head(dense, tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("cascade"), dense, contexts, method="cascade", options=OPTIONS)


def test_onnx_path_agrees_with_torch(head, dense):
    fitted = METHODS["cascade"].fit(dense, contexts.contexts[:720], OPTIONS, 0)
    ids, logprobs = fitted.module.topk(torch.from_numpy(rows), 5)
    top = head.topk(rows, 5)
    assert (top.ids == ids.numpy()).mean() > 0.99
    np.testing.assert_allclose(top.logprobs, logprobs.numpy(), atol=2e-3)


def test_answers_are_exactly_scored_distinct_and_never_padding(head, dense):
    top = head.topk(rows, 5)
    assert head.manifest.quality.p_at_5 > 0.98
    assert ((top.scored >= 24) & (top.scored < CLASSES)).all()
    check_exact_scores(top, dense, rows, 5)


def test_a_row_s_answer_is_the_same_alone_and_among_others(head):
    check_rows_alone(head, rows, (1, 5, 30))


def test_some_rows_look_at_rare_classes_and_some_do_not(head):
    opened = [
        (head.plan.order[head.plan.settings.common :] == best).any() for best in head.topk(rows, 20).ids[:, :, None]
    ]
    candidates = head.plan.choose_candidates(head.plan.screen(rows))
    share = np.mean([(positions >= head.plan.settings.common).any() for positions in candidates])
    assert 0 < share < 0.7
    assert any(opened)


def test_a_wide_k_widens_and_the_normaliser_rises_at_most(head, dense):
    few, many = head.topk(rows, 5), head.topk(rows, 30)
    np.testing.assert_array_equal(few.ids[:, 0], many.ids[:, 0])
    raised = few.logprobs[:, 0] - many.logprobs[:, 0]
    assert raised.min() > -1e-4  # float32's rounding of logits near 200
    assert (raised < 0.1).mean() > 0.9
    assert (np.exp(many.logprobs).sum(axis=1) < 1 + 1e-4).all()
    assert (many.scored >= 480).all()
    check_wide_k(head, dense, rows)


def test_lists_are_applied_before_the_best_are_taken(head, dense):
    allowed = check_lists_come_first(head, dense, rows)
    np.testing.assert_allclose(
        allowed.logprobs[:, :2], head.logprobs(rows, allowed.ids[:, :2]), atol=1e-5
    )  # the same normaliser as without lists


def test_log_probabilities_are_near_the_dense_ones(head, dense):
    top = head.topk(rows, 5)
    exact = np.take_along_axis(logprobs_of(dense, rows), top.ids, axis=1)
    assert np.abs(top.logprobs - exact).mean() < 0.1
    assert top.normalizer == "estimated"


def test_rows_with_fewer_common_classes_than_k_are_rescored_widely(tmp_path, dense):
    options = OPTIONS | {"common": "0.01"}
    made = make_head(tmp_path, dense, contexts, method="cascade", options=options)
    never_rare = made.with_settings(full_view=60, candidates=480, margin=-1e30)
    assert made.manifest.settings.common < 25
    assert not never_rare.plan.is_wide(25)
    top = never_rare.topk_by_plan(rows, 25)
    assert (top.ids == np.argsort(-logits_of(dense, rows), axis=1)[:, :25]).mean() > 0.9


def test_screen_and_common_classes_are_the_fused_graph(head):
    folder = head.folder / "graphs"
    sessions = {
        name: onnxruntime.InferenceSession(str(folder / f"{name}.onnx")) for name in ("screen", "common", "fused")
    }
    integers, row_scale, reach, tail = sessions["screen"].run(None, {"context": rows})
    wanted = {given.name for given in sessions["common"].get_inputs()}
    feeds = {name: array for name, array in (("integers", integers), ("row_scale", row_scale)) if name in wanted}
    previews = sessions["common"].run(None, feeds)[0]
    for own, both in zip(
        (integers, row_scale, reach, tail, previews), sessions["fused"].run(None, {"context": rows}), strict=True
    ):
        np.testing.assert_array_equal(own, both)


@given(classes=st.integers(1, 40), seed=st.integers(0, 99), k=st.integers(1, 40))
@settings(max_examples=8, deadline=None)
def test_small_layers_answer_like_dense(tmp_path_factory, classes, seed, k):
    dense = make_dense(classes, seed=seed)
    head = make_head(tmp_path_factory.mktemp("small"), dense, method="cascade", options={"candidates": "64"})
    k = min(k, classes)
    np.testing.assert_array_equal(head.topk(rows[:3], k).ids, head.topk(rows[:3], k, exact=True).ids)


@pytest.mark.parametrize("sample", ["zeros", "equal"])
def test_contexts_without_variety_still_make_a_head(tmp_path, sample):
    own = np.zeros((100, 16), np.float32) if sample == "zeros" else np.repeat(rows[:1], 100, axis=0)
    made = make_head(tmp_path, make_dense(CLASSES), type(contexts)(own), method="cascade", options=OPTIONS)
    assert made.manifest.quality.p_at_10 == 1.0
    assert np.isfinite(made.topk(rows, 5).logprobs).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"width": "17"}, "option width=17 is over d = 16: choose a narrower preview"),
        ({"candidates": "10"}, "option candidates=10 is under full_view=24: choose more candidates"),
        ({"common": "0"}, "option common=0 is wrong"),
        ({"rare_share": "2"}, "option rare_share=2 is wrong"),
        ({"depth": "2"}, "there is no option 'depth'"),
    ],
)
def test_wrong_options_say_what_is_wrong(options, text):
    with pytest.raises(BadInput) as caught:
        METHODS["cascade"].fit(make_dense(CLASSES), contexts.contexts, options, 0)
    assert text in str(caught.value)


def test_cost_counts_every_product():
    dense = make_dense(CLASSES)
    fitted = METHODS["cascade"].fit(dense, contexts.contexts, OPTIONS, 0)
    screen, previews, codes, exact = 16 * 10, (1000 + 0.3 * 1000) * 8, 200 * 16, 24 * 16
    assert fitted.cost.macs == pytest.approx((screen + previews + codes + exact) / (CLASSES * 16))
    assert isinstance(dense, Dense)
    assert method.MIN_SPLIT_CLASSES < CLASSES


def test_one_context_is_enough_to_fit(tmp_path):
    """Of two, one is held out."""
    two = Contexts(contexts.contexts[:2])
    made = make_head(tmp_path, make_dense(CLASSES), two, method="cascade", options=OPTIONS)
    assert made.manifest.quality.rows == 1
    assert np.isfinite(made.manifest.settings.margin)
    assert np.isfinite(made.topk(rows, 5).logprobs).all()
