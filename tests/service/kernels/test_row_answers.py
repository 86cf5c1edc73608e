"""Whole answers of few rows by one native call: they are those of the long way, which takes whatever they do not."""

import numpy as np
import pytest
import shortlist
import torch
from shortlist.errors import BadInput
from shortlist.head import Head
from shortlist.kernels.native import library
from shortlist_models.ds.softmax import DSOptions, DSSoftmax

from tests.support.kernels import list_targets
from tests.support.layers import CLASSES, DIM, make_contexts, make_dense, make_head

K = 3
ROWS = make_contexts(300).contexts[:60]
SCREEN = {"clusters": "6", "budget": "60", "rounds": "0", "second_probe": "0.3", "fallback": "0.2"}


def make_gated_head(folder):
    random = torch.Generator().manual_seed(0)
    ids = [torch.arange(0, CLASSES, 2), torch.arange(1, CLASSES, 2)]
    weight, bias, gate = (torch.randn(*shape, generator=random) for shape in ((CLASSES, DIM), (CLASSES,), (2, DIM)))
    module = DSSoftmax(weight, bias, gate, ids, CLASSES, DSOptions())
    return make_head(folder, make_dense(), make_contexts(300), method="ds", options={}, head=module)


@pytest.fixture(scope="module", params=["l2s", "ds", "full"])
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "ds":
        return make_gated_head(folder).folder
    if request.param == "full":
        return make_head(folder, make_dense(), make_contexts(300), method="full", options={}, certificate=False).folder
    bias = np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32)
    head = make_head(folder, make_dense(bias=bias), make_contexts(300), method="l2s", options=SCREEN)
    return head.folder


@pytest.fixture(params=list_targets())
def head(request, folder, monkeypatch):
    monkeypatch.setenv(library.VARIABLE, request.param)
    yield shortlist.load(folder, threads=1)
    library.open_target.cache_clear()


def answer_the_long_way(head: Head, contexts, k, monkeypatch, **options):
    with monkeypatch.context() as patched:
        patched.setattr(head, "row_answers", None)
        patched.setattr(head, "exact_answers", None)
        return head.topk(contexts, k, **options)


def shift(array):
    """The same numbers at addresses that are none of their dtype's."""
    return np.frombuffer(bytearray(b"?" + array.tobytes()), array.dtype, offset=1).reshape(array.shape)


def test_rows_at_odd_addresses_are_left_to_the_long_way(head):
    """A loop may read float32 and int64 at their own addresses alone."""
    banned = np.arange(5)
    for count in (1, 2, 9):
        assert head.row_answers(shift(ROWS[:count]), K) is None
        for options, shifted in (({}, {}), ({"ban": banned}, {"ban": shift(banned)}), ({"exact": True},) * 2):
            top, wanted = head.topk(shift(ROWS[:count]), K, **shifted), head.topk(ROWS[:count].copy(), K, **options)
            assert np.array_equal(top.ids, wanted.ids)
            np.testing.assert_allclose(top.logprobs, wanted.logprobs, atol=1e-5)


def test_answers_are_those_of_the_long_way(head, monkeypatch):
    answered = 0
    for row in ROWS:
        top = head.topk(row[None].copy(), K)
        wanted = answer_the_long_way(head, row[None], K, monkeypatch)
        answered += head.row_answers(row[None].copy(), K) is not None
        for name in ("ids", "logprobs", "scored"):
            np.testing.assert_array_equal(getattr(top, name), getattr(wanted, name))
            assert getattr(top, name).dtype == getattr(wanted, name).dtype
        assert top.normalizer == wanted.normalizer
    assert answered > len(ROWS) // 2


def test_answers_of_several_rows_are_those_of_the_long_way(head, monkeypatch):
    if head.manifest.plan == "screen":  # of these heads any row may be left to dense, so that single ones are answered
        head = head.with_settings(dense_margin=0.0)
    answers = head.row_answers
    rows = ROWS[: min(answers.max_rows, 20)]
    wanted = answer_the_long_way(head, rows, K, monkeypatch)
    for got, name in zip(answers(rows, K), ("ids", "logprobs", "scored"), strict=True):
        np.testing.assert_array_equal(got, getattr(wanted, name))


def test_rows_that_are_left_to_dense_leave_many_to_the_long_way(head):
    if head.manifest.plan != "screen":
        pytest.skip("other plans leave no rows to dense")
    assert head.with_settings(dense_margin=0.5).row_answers.max_rows == 1


def test_answers_are_of_their_own(head):
    first, second = (head.topk(row[None].copy(), K) for row in ROWS[:2])
    kept = first.ids.copy()
    second.ids[:] = second.logprobs[:] = -1
    np.testing.assert_array_equal(first.ids, kept)


def test_the_dense_layer_answers_exact_requests_in_one_call_where_nothing_proves_them(head, monkeypatch):
    top, row = head.topk(ROW, K, exact=True), answer_the_long_way(head, ROW, K, monkeypatch, exact=True)
    np.testing.assert_array_equal(top.ids, row.ids)
    np.testing.assert_allclose(top.logprobs, row.logprobs, atol=1e-5)
    assert (top.normalizer, top.promise) == (row.normalizer, None)
    assert (head.exact_answers is None) == (head.dense is None or head.certified is not None)
    assert (head.exact_answers is head.row_answers) == (head.plan is head.exact), "laid out once"


ROW = ROWS[:1].copy()
READ_ONLY = ROW.copy()
READ_ONLY.setflags(write=False)


@pytest.mark.parametrize(
    ("contexts", "k"),
    [
        (ROW.tolist(), K),
        (ROW.astype(np.float64), K),
        (np.repeat(ROW, 2, axis=1)[:, ::2], K),
        (READ_ONLY, K),
        (ROW, np.int64(K)),
        (ROW, CLASSES),
    ],
    ids=["a list", "float64", "gaps", "read-only", "a numpy integer", "all classes"],
)
def test_what_is_not_plain_goes_the_long_way(head, contexts, k, monkeypatch):
    if k == CLASSES and head.manifest.plan == "full":
        pytest.skip("the dense layer ranks all classes")
    assert head.row_answers(contexts, k) is None
    wanted = answer_the_long_way(head, contexts, k, monkeypatch)
    np.testing.assert_array_equal(head.topk(contexts, k).ids, wanted.ids)


@pytest.mark.parametrize("k", [0, -1, True, 2.0, CLASSES + 1])
def test_a_wrong_k_is_refused(head, k):
    head.topk(ROW, 1), head.topk(ROW, 2)
    with pytest.raises(BadInput):
        head.topk(ROW, k)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.float32(3e38)])
def test_contexts_that_are_no_numbers_are_refused(head, value):
    context = np.full((1, DIM), value, np.float32)
    with pytest.raises(BadInput, match=r"NaN or infinity|overflow float32"):
        head.topk(context, K)


def test_other_settings_have_answers_of_their_own(folder):
    head = shortlist.load(folder, threads=1)
    if head.manifest.plan != "screen":
        pytest.skip("other plans have no such settings")
    assert head.with_settings(probes=3).row_answers(ROW, K) is None
    row, wide = head.topk(ROW, K), head.with_settings(probe_margin=1e9, dense_margin=0.0).topk(ROW, K)
    assert wide.scored[0] > row.scored[0]
