"""Beam steps and searches over classes that have names: lists hold them in process as they do over a server."""

import numpy as np
import pytest
from shortlist.bundle.names import Names
from shortlist.core.row_lists import NamedLists
from shortlist.decoding.run import beam_search
from shortlist.decoding.step import beam_step
from shortlist.errors import BadInput

from tests.support.layers import CLASSES, DIM, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

ROWS = make_contexts(4, seed=8).contexts
SCORES = np.zeros(4)


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    names = Names.make([f"item-{i}" for i in range(CLASSES)])
    return make_head(tmp_path_factory.mktemp("names"), make_dense(), method="full", options={}, names=names)


def step(state, tokens, parents):
    return ROWS[:1].repeat(len(tokens), axis=0), state


LISTS = {
    "allow for all": ({"allow": ["item-3", "item-5"]}, {"allow": [3, 5]}),
    "allow by row": (
        {"allow": [["item-3"], ["item-5", "item-7"], [], ["item-9"]]},
        {"allow": [[3], [5, 7], [], [9]]},
    ),
    "ban, a name that none has": ({"ban": ["item-3", "no item"]}, {"ban": [3]}),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_step_takes_names(head, name):
    named, numbered = (beam_step(head, ROWS, SCORES, beam=2, **lists) for lists in LISTS[name])
    assert named.ids.tolist() == numbered.ids.tolist()
    assert named.scores.tolist() == numbered.scores.tolist()


def test_a_search_takes_names(head):
    def search(**lists):
        return beam_search(step, head, np.zeros((1, DIM)), [0], beam=2, n_best=2, max_length=3, **lists)

    assert search(allow=["item-3", "item-5"], ban=["item-7"]) == search(allow=[3, 5], ban=[7])
    assert search(allow=lambda sentences, tokens: ["item-3", "item-5"]) == search(allow=[3, 5])


COLUMN, NUMBERS = np.empty(4, np.object_), np.empty(4, np.object_)
COLUMN[:], NUMBERS[:] = LISTS["allow by row"][0]["allow"], LISTS["allow by row"][1]["allow"]


@pytest.mark.parametrize("lists", [COLUMN, NUMBERS])
def test_lists_may_be_a_column_of_a_table(head, lists):
    expected = beam_step(head, ROWS, SCORES, beam=2, allow=NUMBERS.tolist())
    assert beam_step(head, ROWS, SCORES, beam=2, allow=lists).ids.tolist() == expected.ids.tolist()
    assert head.topk(ROWS, 2, allow=lists).ids.tolist() == head.topk(ROWS, 2, allow=NUMBERS.tolist()).ids.tolist()


def test_a_head_knows_no_registered_lists(head):
    for ask in (
        lambda lists: head.topk(ROWS, 2, ban=lists),
        lambda lists: beam_step(head, ROWS, SCORES, beam=2, ban=lists),
    ):
        with pytest.raises(BadInput, match="ban is NamedLists, which servers alone know"):
            ask(NamedLists("shoes", np.zeros(4, int)))


def test_a_name_that_no_class_has_is_refused(head):
    with pytest.raises(BadInput, match="allow holds 'no item', which no class of lm is called"):
        beam_step(head, ROWS, SCORES, beam=2, allow=["no item"])


@pytest.mark.parametrize("ban", [["item-3"], NamedLists("shoes")])
@pytest.mark.parametrize("option", [{"no_repeat_ngram": 2}, {"suppressed": [[4]]}])
def test_bans_that_the_search_adds_to_hold_ids(head, ban, option):
    with pytest.raises(BadInput, match="ban must hold ids beside no_repeat_ngram and suppressed"):
        beam_search(step, head, np.zeros((1, DIM)), [0], max_length=3, ban=ban, **option)
