"""Candidate sets and what several have in common."""

import numpy as np
from shortlist.plans.screen.sets import CandidateSets

SETS = [[0, 3, 7], [3, 9], [7]]
sets = CandidateSets({"ids": np.concatenate(SETS).astype(np.int64), "offsets": np.array([0, 3, 5, 6])})


def test_sets_are_as_they_were_indexed():
    assert [ids.tolist() for ids in sets.by_number] == SETS
    assert (sets.count, sets.smallest, sets.largest, sets.sizes.tolist()) == (3, 1, 3, [3, 2, 1])


def test_a_union_has_each_class_once_and_where_it_is():
    ids, positions = sets.unite((1, 0))
    assert ids.tolist() == [0, 3, 7, 9]
    assert np.array(SETS[1] + SETS[0])[positions].tolist() == ids.tolist()
    assert sets.unite((1, 0)) is sets.unite((1, 0))


def test_new_classes_are_those_of_the_second_set_alone():
    assert sets.mask_new(0, 1).tolist() == [False, True]
    assert sets.mask_new(1, 0).tolist() == [True, False, True]
    assert sets.mask_new(0, 2).tolist() == [False]
