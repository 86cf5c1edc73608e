"""Peers take the first setting that finds enough."""

import numpy as np
import pytest
from shortlist.errors import BadInput

from benchmarks.contenders.base import Contender
from benchmarks.studies.domains.contenders import tune_peer
from benchmarks.studies.domains.inputs import DOMAINS, choose_recipes

TRUE = np.arange(1000)[:, None] % 7


class Sloppy(Contender):
    """Misses one row in so many as its setting says; rows are their own numbers."""

    name = "sloppy"

    def fit(self, dense, contexts):
        del dense, contexts

    def topk(self, contexts, k):
        rows = contexts[:, 0].astype(np.int64)
        return np.where(rows % self.setting["every"] == 0, 8, rows % 7)[:, None].repeat(k, axis=1)

    def size(self):
        return 0


@pytest.mark.parametrize(("settings", "chosen", "reaches"), [((50, 200, 400), 200, True), ((10, 20), 20, False)])
def test_the_first_setting_that_finds_enough_is_taken_else_the_last(settings, chosen, reaches):
    rows = np.arange(1000, dtype=np.float32)[:, None]
    asked = tune_peer("sloppy", Sloppy({}, 1), tuple({"every": every} for every in settings), rows, TRUE, "")
    assert asked.name == f"sloppy, every {chosen}"
    assert asked.reaches == reaches


def test_kinds_are_named_and_hold_what_contenders_are_tuned_on():
    assert {recipe.name for recipe in choose_recipes(DOMAINS)} == set(DOMAINS)
    assert sum(not recipe.in_mixture for recipe in choose_recipes(DOMAINS)) >= 5
    with pytest.raises(BadInput, match="there is no kind 'runes': known are wikitext"):
        choose_recipes(["runes"])
    with pytest.raises(BadInput, match="name it, too"):
        choose_recipes(["python"])
