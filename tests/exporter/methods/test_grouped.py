"""Method grouped through the real runtime: plan `grouped`, by its graphs and by compiled loops."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.bundle.reader import Bundle
from shortlist.core.filters import UNRESTRICTED
from shortlist.errors import BadInput
from shortlist.head import Head
from shortlist.kernels.native.library import open_target
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.methods.grouped import GroupedOptions, count_candidates, fill_defaults
from shortlist_exporter.methods.registry import METHODS
from shortlist_exporter.tuning.space import list_settings
from shortlist_models import tail

from tests.support.heads.grouped import CLASSES, DIM, OPTIONS, contexts, rows
from tests.support.kernels import list_targets
from tests.support.layers import logits_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def by_graphs(grouped_head):
    return by_graphs_of(grouped_head)


def by_graphs_of(head):
    other = head.with_settings()
    other.plan = copy.copy(head.plan)
    other.plan.compiled = other.row_answers = None
    return other


def test_graphs_agree_with_torch(by_graphs, grouped_dense, grouped_options):
    fitted = METHODS["grouped"].fit(grouped_dense, contexts.contexts[:720], grouped_options, 0)
    assert fitted.fit["int8_width"] in (8, 30)
    ids, logprobs = fitted.module.topk(torch.from_numpy(rows), 5)
    top = by_graphs.topk(rows, 5)
    assert (top.ids == ids.numpy()).mean() > 0.98
    np.testing.assert_allclose(top.logprobs, logprobs.numpy(), atol=2e-3)


def test_compiled_loops_agree_with_the_graphs(grouped_head, by_graphs):
    assert grouped_head.plan.compiled is not None
    for k in (1, 5, 8):
        own, other = grouped_head.topk(rows, k), by_graphs.topk(rows, k)
        assert (own.ids == other.ids).mean() > 0.98
        difference = np.abs(own.logprobs - other.logprobs)  # loops look at a few blocks more
        assert (difference < 1e-2).mean() > 0.95
        assert difference.max() < 0.05
        assert np.abs(own.scored - other.scored).max() <= 1


def test_every_target_gives_the_same_bits(grouped_head):
    wanted, other = grouped_head.topk(rows, 5), copy.copy(grouped_head.plan)
    for target in list_targets():
        other.compiled = copy.copy(grouped_head.plan.compiled)
        other.compiled.kernels = open_target(target)
        result = other.topk(rows, 5, UNRESTRICTED).topk("estimated")
        for name in ("ids", "logprobs", "scored"):
            np.testing.assert_array_equal(getattr(result, name), getattr(wanted, name))


def test_arrays_of_any_layout_are_taken(grouped_head):
    shifted = np.frombuffer(b"?" + rows[:3].tobytes(), np.uint8)[1:].view(np.float32).reshape(3, DIM)
    assert not shifted.flags.aligned
    for given_rows in (shifted, rows[:1], rows[::2], rows.astype(np.float16)):
        grouped_head.topk(given_rows, 5)
    np.testing.assert_array_equal(grouped_head.topk(shifted, 5).ids, grouped_head.topk(rows[:3], 5).ids)


def test_loops_refuse_no_context_that_graphs_answer(grouped_head, by_graphs):
    def refused(one, context):
        try:
            return not np.isfinite(one.topk(context, 5).logprobs).all()
        except BadInput:
            return True

    large = [row[None] / np.abs(row).max() * np.float32(size) for size in (1e35, 1e36, 1e37) for row in rows[:20]]
    wrongly = [refused(grouped_head, context) and not refused(by_graphs, context) for context in large]
    assert sum(wrongly) <= 1  # a number rounded the other way


def test_groups_of_as_many_classes_as_are_candidates_are_opened_and_half_of_these_previewed(grouped_head):
    settings = grouped_head.with_settings(opened=60, candidates=500, previewed=500).plan.settings
    assert settings.classes_opened == 500
    assert grouped_head.with_settings(opened=8000).plan.settings.classes_previewed == 4000
    fitted = METHODS["grouped"].fit(make_dense(3000, DIM), contexts.contexts, {"candidates": "1400"}, 0)
    assert fitted.module.opened == fitted.settings.opened == 3000
    assert fitted.settings.previewed == 3000  # so few columns are all among the first


@pytest.mark.parametrize("size", [0.0, 1e-36, 1e-3, 1e30, 1e36])
def test_contexts_of_any_size(grouped_dense, grouped_head, by_graphs, size):
    few = rows[:5] * np.float32(size)
    logits = logits_of(grouped_dense, few)
    best = -np.sort(-logits, axis=1)[:, :3]
    for one in (grouped_head, by_graphs):
        try:
            top = one.topk(few, 3)
        except BadInput:  # integers times scales overflow before products do
            assert size > 1e35
            continue
        found = np.take_along_axis(logits, top.ids, axis=1)  # of equal ones any: whichever are candidates
        assert (found >= best * np.where(best > 0, 0.8, 1.2) - 1e-6).all()


def test_more_classes_opened_find_more(grouped_head, grouped_dense):
    """By loops where they are, and by graphs; whatever is asked for, what comes back are classes."""
    truth = np.argsort(-logits_of(grouped_dense, rows), axis=1)[:, :5]
    for one in (grouped_head, by_graphs_of(grouped_head)):
        few, many = (one.with_settings(opened=opened, candidates=60).topk(rows, 5) for opened in (60, CLASSES))
        assert (few.ids == truth).mean() < (many.ids == truth).mean()
        for setting in (
            {"candidates": 100_000, "previewed": 100_000},
            {"previewed": 1 << 30},
            {"opened": 1 << 30},
            {"full_view": 5000, "candidates": 5000, "previewed": 5000},
        ):
            top = one.with_settings(**setting).topk(rows, 5)
            assert np.isfinite(top.logprobs).all()
            assert ((top.ids >= 0) & (top.ids < CLASSES)).all()


def test_rows_are_never_left_without_k_classes(grouped_head):
    for one in (grouped_head, by_graphs_of(grouped_head)):
        narrow = one.with_settings(previewed=1, opened=1, candidates=1, full_view=1)
        ids = narrow.topk(rows, 10).ids
        assert ((ids >= 0) & (ids < CLASSES)).all()
        with pytest.raises(BadInput, match="setting previewed=1 is under candidates=200"):
            one.with_settings(previewed=1, opened=1)


def test_a_k_over_the_classes_that_are_not_padding_is_filled_up(tmp_path):
    small = make_dense(40, DIM, padded=np.arange(20))
    head = make_head(tmp_path, small, contexts, method="grouped", options={"candidates": "20"}, fallback=False)
    for one in (head, by_graphs_of(head)):
        top = one.with_settings(candidates=1000, previewed=1000).topk_by_plan(rows, 30)
        assert (np.sort(top.ids[:, :20]) == np.arange(20, 40)).all()
        assert (top.ids[:, 20:] == -1).all()


def test_a_row_with_too_few_candidates_is_rescored_widely(grouped_head, grouped_dense):
    """No settings give so few; the search by graphs counts on that no more than the loops do."""
    other = by_graphs_of(grouped_head)
    truth = np.argsort(-logits_of(grouped_dense, rows), axis=1)[:, :10]
    choose = other.plan.graphs.choose_candidates
    other.plan.graphs.choose_candidates = lambda *scores: choose(*scores)[:3]
    top = other.topk(rows, 10)
    assert (top.ids == truth).mean() > 0.9
    assert np.isfinite(top.logprobs).all()


@pytest.mark.parametrize(("classes", "first"), [(3000, 1024), (600_000, 4096)])
def test_tune_opens_no_fewer_classes_than_are_candidates(classes, first):
    layer = Dense(np.zeros((classes, 1), np.float32))
    assert list_settings("grouped", layer)[0] == {"opened": first}
    assert count_candidates(layer) <= first


def test_the_same_head_without_the_library(grouped_head, no_library):
    other = Head(Bundle(grouped_head.folder), "cpu", 1)
    assert other.plan.compiled is None
    assert (other.topk(rows, 5).ids == grouped_head.topk(rows, 5).ids).mean() > 0.98


def test_a_k_that_widens_shares_no_call_with_one_that_does_not(grouped_head):
    assert grouped_head.plan.width(1) == grouped_head.plan.width(5)
    assert grouped_head.plan.width(16) == grouped_head.plan.count_exact(16)
    assert grouped_head.plan.width(17) != grouped_head.plan.width(30) < 0


def test_a_k_of_ten_goes_the_fast_way(grouped_head):
    assert not grouped_head.plan.is_wide(10)
    assert grouped_head.plan.count_exact(10) == 13
    five, ten = grouped_head.topk(rows, 5), grouped_head.topk(rows, 10)
    np.testing.assert_array_equal(five.scored, ten.scored)
    assert (five.ids == ten.ids[:, :5]).mean() > 0.98
    assert np.abs(five.logprobs - ten.logprobs[:, :5])[five.ids == ten.ids[:, :5]].max() < 0.02


@given(classes=st.integers(1, 400), seed=st.integers(0, 99), k=st.integers(1, 40))
@settings(max_examples=8, deadline=None)
def test_small_layers_answer_like_dense(tmp_path_factory, classes, seed, k):
    dense = make_dense(classes, seed=seed)
    options = {"candidates": str(max(64, classes)), "previewed": str(max(64, classes))}
    head = make_head(tmp_path_factory.mktemp("small"), dense, method="grouped", options=options)
    k = min(k, classes)
    np.testing.assert_array_equal(head.topk(rows[:3, :16], k).ids, head.topk(rows[:3, :16], k, exact=True).ids)


def test_classes_that_win_by_their_bias_are_found(tmp_path):
    bias = np.zeros(CLASSES, np.float32)
    bias[::97] = np.linspace(195, 390, len(bias[::97]))  # 2.5 to 5 times the spread of logits
    dense = make_dense(CLASSES, DIM, bias=bias)
    head = make_head(tmp_path, dense, contexts, method="grouped", options=OPTIONS)
    best = logits_of(dense, rows).argmax(axis=1)
    assert np.isin(best, np.arange(0, CLASSES, 97)).mean() > 0.9
    assert (head.topk(rows, 1).ids[:, 0] == best).mean() > 0.97


def test_classes_that_a_bias_masks_are_left_to_the_end(tmp_path):
    """The least of float32, whose square is none of it."""
    bias = np.zeros(CLASSES, np.float32)
    bias[::40] = np.finfo(np.float32).min
    dense = make_dense(CLASSES, DIM, bias=bias)
    head = make_head(tmp_path, dense, contexts, method="grouped", options=OPTIONS)
    top = head.topk(rows, 5)
    assert np.isfinite(top.logprobs).all()
    assert (top.ids % 40 > 0).all()
    assert (top.ids[:, 0] == logits_of(dense, rows).argmax(axis=1)).mean() > 0.97


@pytest.mark.parametrize("sample", ["zeros", "equal"])
def test_contexts_without_variety_still_make_a_head(tmp_path, sample):
    own = np.zeros((100, DIM), np.float32) if sample == "zeros" else np.repeat(rows[:1], 100, axis=0)
    made = make_head(tmp_path, make_dense(CLASSES, DIM), type(contexts)(own), method="grouped", options=OPTIONS)
    assert made.manifest.quality.p_at_1 == 1.0  # for zeros all classes are alike, and each is a hit
    assert np.isfinite(made.topk(rows, 5).logprobs).all()


def test_logits_whose_squares_overflow_are_refused(tmp_path):
    dense = make_dense()
    with pytest.raises(BadInput, match="logits overflow float32: divide the weight or the contexts"):
        make_head(tmp_path, Dense(dense.weight * np.float32(1e20)), make_contexts(600), method="grouped", options={})


@pytest.mark.parametrize("size", [1e19, 1e25, 1e37])
def test_one_row_whose_logits_squares_overflow_is_refused(tmp_path, size):
    weight = make_dense().weight.copy()
    weight[7] *= np.float32(size)
    with pytest.raises(BadInput, match="logits overflow float32: divide the weight or the contexts"):
        make_head(tmp_path, Dense(weight), make_contexts(600), method="grouped", options={})


@pytest.mark.parametrize(
    ("classes", "width", "opened"),
    [(1 << 17, 5, 21845), ((1 << 17) + 1, 7, 32768), (1 << 20, 7, 1 << 17), ((1 << 20) + 1, 5, 1 << 17)],
)
def test_first_looks_go_further_of_many_classes_but_not_of_millions(classes, width, opened):
    dense = Dense(np.zeros((classes, 9), np.float32))
    options = fill_defaults(GroupedOptions(), dense)
    assert (options.width, options.opened) == (width, opened)
    assert fill_defaults(GroupedOptions(width=3), dense).width == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"width": "69"}, "option width=69 is over d = 68: choose a narrower preview"),
        ({"candidates": "6"}, "option candidates=6 is under full_view=7: choose more candidates"),
        ({"previewed": "20"}, "option previewed=20 is under the 128 candidates: set more, or fewer of these"),
        ({"opened": "20"}, "option opened=20 is under the 128 candidates: set more, or fewer of these"),
        ({"depth": "2"}, "there is no option 'depth'"),
    ],
)
def test_wrong_options_say_what_is_wrong(options, text):
    with pytest.raises(BadInput) as caught:
        METHODS["grouped"].fit(make_dense(CLASSES, DIM), contexts.contexts, options, 0)
    assert text in str(caught.value)


def test_cost_counts_every_product(grouped_dense):
    fitted = METHODS["grouped"].fit(grouped_dense, contexts.contexts, OPTIONS, 0)
    assert len(fitted.module.groups.reach) == 30
    previews = 1500 * 30  # so few columns are all among the first
    products = DIM * 31 + 30 * 12 + previews + 200 * DIM + 7 * DIM
    assert fitted.cost.macs == pytest.approx(products / (CLASSES * DIM))
    read = DIM * 31 + 3 * DIM + 30 * 12 + (previews + 3 * 4 * 1500) / 4 + 200 * DIM + 7 * DIM * 4
    assert fitted.cost.bytes == pytest.approx(read / (4 * CLASSES * DIM))


def test_terms_give_a_better_normaliser(tmp_path, monkeypatch):
    """By loops and by graphs alike, of a layer whose classes are similar to others."""
    monkeypatch.setattr(tail, "STEPS", 1500)
    random = np.random.default_rng(2)
    centres = random.standard_normal((24, DIM)).repeat(CLASSES // 24, axis=0)
    layer = Dense((centres + 0.3 * random.standard_normal(centres.shape)).astype(np.float32))
    given = Contexts(make_contexts(6000, DIM).contexts / 40)  # so flat that much is left beside the best
    few, asked = OPTIONS | {"full_view": "40", "promise": "0"}, given.contexts[-80:]
    plain, fine = (
        make_head(tmp_path / terms, layer, given, method="grouped", options=few | {"tail_terms": terms})
        for terms in ("0", "24")
    )
    logits = logits_of(layer, asked)
    exact = np.log(np.exp(logits).sum(axis=1))
    answers = [head.topk(asked, 5) for head in (plain, fine, by_graphs_of(fine))]
    errors = [
        np.abs(np.take_along_axis(logits, top.ids, axis=1) - top.logprobs - exact[:, None]).mean() for top in answers
    ]
    assert errors[1] < errors[0] / 1.5
    np.testing.assert_allclose(answers[2].logprobs, answers[1].logprobs, atol=2e-3)
    assert fine.manifest.settings.tail_beside == 40
    assert fine.manifest.quality.cost_macs > plain.manifest.quality.cost_macs
