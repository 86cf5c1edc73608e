"""What a beam search may be asked for, in the forms in which callers hold it, and what is refused in one sentence."""

import asyncio

import numpy as np
import pytest
import shortlist
from shortlist.decoding.finish import CTranslate2, HuggingFace, NoneBetter
from shortlist.errors import BadInput

from tests.support.layers import make_contexts, make_dense, make_head
from tests.support.plain_search import START, Decoder

pytestmark = pytest.mark.slow

CLASSES, DIM = 30, 8
DECODER = Decoder(CLASSES, DIM)
STATE = DECODER.start(2)
OPTIONS = {"beam": 3, "n_best": 2, "eos": [1], "max_length": 5}


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    root = tmp_path_factory.mktemp("head")
    return make_head(root, make_dense(CLASSES, DIM, seed=3), make_contexts(400, DIM), method="full", options={})


def search(head, step=DECODER.step, **options):
    return shortlist.beam_search(step, head, STATE, [START, START], **OPTIONS | options)


def give_lists(state, tokens, parents):
    contexts, state = DECODER.step(state, tokens, parents)
    return contexts.tolist(), state


SAME = {  # two ways to ask for the same search
    "padded prefixes": ({"prefixes": np.array([[4, -1], [5, 6]])}, {"prefixes": [[4], [5, 6]]}),
    "arrays to suppress": ({"suppressed": np.array([[4, -1], [9, 12]])}, {"suppressed": [[4], [9, 12]]}),
    "contexts as lists": ({"step": give_lists, "prefixes": [[], [5, 6]]}, {"prefixes": [[], [5, 6]]}),
    "keys of JSON beside a penalty": (
        {"bias": {str(id): 2.0 for id in range(9)}, "repetition_penalty": 1.3},
        {"bias": {id: 2.0 for id in range(9)}, "repetition_penalty": 1.3},
    ),
    "numbers of numpy": (
        {"temperature": np.float32(0.5), "repetition_penalty": np.array(1.25)},
        {"temperature": 0.5, "repetition_penalty": 1.25},
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_other_forms_mean_the_same(head, name):
    options, plain = SAME[name]
    assert search(head, **options) == search(head, **plain)


WRONG = {
    "half a token": ({"prefixes": [[4.5], []]}, "prefixes row 0 must be a list of whole numbers alone"),
    "a prefix of text": ({"prefixes": ["ab", []]}, "prefixes holds 'ab' in place of a list of ids"),
    "prefixes of one token": ({"prefixes": [4, 5]}, "prefixes holds 4 in place of a list of ids"),
    "an id below 0": ({"prefixes": [[4, -5], []]}, "prefixes holds id -5: give ids from 0; -1 pads"),
    "a flat list": ({"suppressed": [4, 5]}, "suppressed holds 4 in place of a list of ids: give a list of such lists"),
    "nothing to suppress": ({"suppressed": None}, "suppressed is None: give a list of lists of ids"),
    "padding alone": ({"suppressed": [[-1]]}, "suppressed holds a sequence without tokens"),
    "a penalty of text": ({"repetition_penalty": "x"}, "repetition_penalty is 'x': give one number"),
    "penalties": ({"repetition_penalty": np.ones(2)}, r"repetition_penalty is \[1. 1.\]: give one number"),
    "temperatures": ({"temperature": [1.0, 2.0]}, r"temperature is \[1.0, 2.0\]: give one number"),
    "an array of temperatures": ({"temperature": np.ones(2)}, "temperature is .*: give one number"),
    "a rule's name": ({"finish": "never"}, "finish is 'never': give a rule of shortlist.decoding.finish"),
    "a rule's class": ({"finish": NoneBetter}, "finish is <class .*: give a rule"),
    "contexts alone": ({"step": lambda *call: DECODER.step(*call)[0]}, "step gave no pair but ndarray"),
    "no contexts": ({"step": lambda *call: (None, None)}, "contexts must be a list of rows"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(head, name):
    options, sentence = WRONG[name]
    with pytest.raises(BadInput, match=sentence):
        search(head, **options)


@pytest.mark.parametrize("rule", [NoneBetter, CTranslate2, HuggingFace])
@pytest.mark.parametrize("penalty", ["x", float("nan"), 1e4, -11])
def test_a_length_penalty_is_a_small_number(rule, penalty):
    with pytest.raises(BadInput, match=r"length_penalty is .*: give"):
        rule(penalty)


@pytest.mark.parametrize("patience", [0, -1.0, float("nan"), "x"])
def test_patience_is_over_0(patience):
    with pytest.raises(BadInput, match=r"patience is .*: give"):
        CTranslate2(patience=patience)


def test_early_stopping_is_one_of_three():
    with pytest.raises(BadInput, match="early_stopping is 'maybe': give True, False or 'never'"):
        HuggingFace(early_stopping="maybe")


def test_an_end_counts_in_the_most_tokens_but_not_in_the_fewest(head):
    for most, end in ((2, None), (3, 1)):
        for best in search(head, bias={1: 50.0}, min_length=2, max_length=most):
            assert (len(best[0].tokens), best[0].end) == (2, end)


def test_what_answers_is_a_head_or_a_client():
    with pytest.raises(BadInput, match=r"head is 'repo/lm/1': give what shortlist.load returns, or a Client"):
        search("repo/lm/1")


def test_clients_for_asyncio_are_awaited(head):
    async def await_step(*call):
        return DECODER.step(*call)

    with pytest.raises(BadInput, match="search by beam_search_async, or over a Client"):
        search(shortlist.AsyncClient("http://127.0.0.1:1"), model="lm")
    with pytest.raises(BadInput, match="no Head: search a head by beam_search"):
        asyncio.run(shortlist.beam_search_async(DECODER.step, head, STATE, [START, START], model="lm", **OPTIONS))
    with pytest.warns(RuntimeWarning, match="never awaited"), pytest.raises(BadInput, match="beam_search_async"):
        search(head, await_step)
