"""What CTranslate2 tests its `vmap` by, for every head here: constraints hold, and exact searches are plain ones."""

import numpy as np
import pytest
import shortlist
from shortlist.bundle.reader import Bundle
from shortlist.core.row_lists import RowLists
from shortlist.decoding.finish import CTranslate2
from shortlist.decoding.step import beam_step
from shortlist.head import Head
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export

from tests.support.layers import logprobs_of, make_contexts, make_dense
from tests.support.plain_search import START, Decoder, search_plainly
from tools.fuzz.answers.heads import FORMS

pytestmark = pytest.mark.slow

CLASSES, DIM = 120, 12
EOS = [1, 7]
DENSE = make_dense(CLASSES, DIM, seed=3, bias=np.where(np.arange(CLASSES) == 1, 1.5, 0.0).astype(np.float32))
DECODER = Decoder(CLASSES, DIM)
STATE = DECODER.start(2)
OPTIONS = {"beam": 3, "n_best": 2, "eos": EOS, "max_length": 6, "finish": CTranslate2()}
PREFIX = [7, 9]
MATRIX = {
    "plain": {},
    "prefix": {"prefixes": [PREFIX, [5]]},
    "repetition penalty": {"repetition_penalty": 1.4},
    "no-repeat n-gram": {"no_repeat_ngram": 1},
    "suppressed sequences": {"suppressed": [[4], [9, 12]]},
    "minimum length": {"min_length": 4},
    "hotwords": {"bias": {11: 4.0, 40: 3.0}},
    "legal lists": {"allow": [1, *range(10, 60)]},
}


def make_any_head(form, dense, folder, dim=DIM):
    """A head of one of the forms over `dense`."""
    module = None if FORMS[form].module is None else FORMS[form].module(np.random.default_rng(2), dense)
    request = Request(FORMS[form].method, FORMS[form].options(dense), head=module, threads=1, fallback=False)
    export(dense, make_contexts(400, dim), folder / "lm" / "1", request)
    return Head(Bundle(folder / "lm" / "1"), "cpu", 1)


@pytest.fixture(scope="module", params=FORMS)
def any_head(request, tmp_path_factory):
    return make_any_head(request.param, DENSE, tmp_path_factory.mktemp("head"))


def make_reference(head):
    """Log-probabilities [R, V] of the layer in float64, or of a head that is its own reference."""
    if not head.is_own_reference:
        return lambda contexts: logprobs_of(DENSE, contexts)
    return lambda contexts: head.logprobs(contexts, range(CLASSES), exact=True)


def list_sequences(found):
    return [[*each.tokens, *([] if each.end is None else [each.end])] for each in found]


@pytest.mark.parametrize("name", MATRIX)
def test_exact_searches_are_plain_ones(any_head, name):
    options = OPTIONS | MATRIX[name]
    found = shortlist.beam_search(DECODER.step, any_head, STATE, [START] * 2, exact=True, **options)
    for sentence, best in enumerate(found):
        prefix = options.get("prefixes", [[], []])[sentence]
        state = STATE[sentence : sentence + 1]
        expected = search_plainly(DECODER, make_reference(any_head), state, prefix=prefix, **options)
        np.testing.assert_allclose([each.score for each in best], [score for _, score in expected], atol=1e-5)
        assert list_sequences(best) == [prefix + tokens for tokens, _ in expected]


@pytest.mark.parametrize("name", MATRIX)
def test_constraints_hold(any_head, name):
    options = MATRIX[name]
    found = shortlist.beam_search(DECODER.step, any_head, STATE, [START] * 2, **OPTIONS | options)
    for sentence, best in enumerate(found):
        assert len(best) == 2
        for each in best:
            prefix = options.get("prefixes", [[], []])[sentence]
            assert each.tokens[: len(prefix)] == prefix
            assert each.end in EOS or len(each.tokens) == len(prefix) + 6
            assert max(each.logprobs) <= 0
            if name == "no-repeat n-gram":
                assert len(set(each.tokens)) == len(each.tokens)
            if name == "suppressed sequences":
                assert 4 not in each.tokens
                assert (9, 12) not in zip(each.tokens, each.tokens[1:], strict=False)
            if name == "minimum length":
                assert len(each.tokens) >= 4
            if name == "legal lists":
                assert set(each.tokens) <= set(options["allow"])


def test_alternatives(any_head):
    first = shortlist.beam_search(
        DECODER.step, any_head, STATE[:1], [START], prefixes=[PREFIX], beam=5, n_best=5, max_length=1
    )[0]
    begins = [each.tokens for each in first]
    assert len({tuple(each) for each in begins}) == 5
    found = shortlist.beam_search(
        DECODER.step, any_head, STATE[:1], [START] * 5, origins=[0] * 5, prefixes=begins, **OPTIONS
    )
    assert [best[0].tokens[:3] for best in found] == begins


@pytest.mark.parametrize("exact", [True, False])
def test_biased_classes_are_ranked_by_logit_and_weight(any_head, exact):
    rows = make_contexts(20, DIM, seed=9).contexts * np.float32(0.2)
    random = np.random.default_rng(4)
    bias = [{int(id): float(random.normal(0, 4)) for id in random.choice(CLASSES, 6, replace=False)} for _ in rows]
    top = any_head.topk(rows, 8, bias=bias, exact=exact)
    logprobs = make_reference(any_head)(rows).astype(np.float64)
    weights = np.array([[each.get(id, 0.0) for id in range(CLASSES)] for each in bias])
    keys = np.take_along_axis(logprobs + weights, top.ids, axis=1)
    assert (np.diff(keys, axis=1) <= 1e-4).all()
    if exact:
        np.testing.assert_allclose(keys, -np.sort(-(logprobs + weights), axis=1)[:, :8], atol=1e-4)
        np.testing.assert_allclose(top.logprobs, np.take_along_axis(logprobs, top.ids, axis=1), atol=1e-4)
    for row, each in enumerate(bias):  # a biased class that beats the last one found is found
        missing = [id for id in each if id not in top.ids[row]]
        scale = any_head.logprobs(rows[row : row + 1], [*missing, int(top.ids[row, -1])])[0].astype(np.float64)
        assert all(scale[i] + each[id] <= scale[-1] + each.get(int(top.ids[row, -1]), 0) + 1e-4
                   for i, id in enumerate(missing))  # fmt: skip


MANY, MANY_DIM = 12_000, 8


@pytest.fixture(scope="module", params=["full", "svd", "cascade", "grouped", "l2s", "ds", "adaptive", "mixtape"])
def large_head(request, tmp_path_factory):
    dense = make_dense(MANY, MANY_DIM, seed=5)
    return make_any_head(request.param, dense, tmp_path_factory.mktemp("large"), MANY_DIM)


@pytest.mark.parametrize(("beam", "sizes"), [(4, (10, 10_000)), (512, (10, 60)), (512, (3_000, 10_000))])
def test_no_illegal_ids(large_head, beam, sizes):
    random = np.random.default_rng(7)
    lists = [random.choice(MANY, size, replace=False) for size in random.integers(*sizes, 16, endpoint=True)]
    numbers = random.integers(0, 16, beam)
    table = RowLists.from_lists(lists).for_rows(numbers)
    rows = make_contexts(beam, MANY_DIM, seed=3).contexts
    scores = -random.gamma(2, size=beam)
    result = beam_step(large_head, rows, scores, beam=beam, allow=table, n=beam)
    assert (result.parents[0] >= 0).all()
    for parent, id in zip(result.parents[0], result.ids[0], strict=True):
        assert id in lists[numbers[parent]]
