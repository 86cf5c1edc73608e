import numpy as np
import pytest
from shortlist.core.results import PlanResult
from shortlist.evaluation.ranking import TrueClasses
from shortlist.evaluation.truth import Truth
from shortlist_exporter.report.measure import parts
from shortlist_exporter.report.measure.answers import Answers, Namer

SETS = [np.array([0, 1, 2]), np.array([0, 3]), np.array([0, 4, 5, 6])]
CLASSES = 10


def answers_of(found, true):
    found, true = np.array(found), np.array(true)
    zeros = np.zeros(len(found), np.float32)
    top = PlanResult(found, np.zeros(found.shape, np.float32), zeros, np.full(len(found), 3, np.int32))
    contexts = np.zeros((len(found), 2), np.float32)
    best = TrueClasses.without_ties(true)
    return Answers(contexts, CLASSES, {1: top, 2: top}, Truth(contexts, best, np.zeros(true.shape, np.float32), zeros))


def test_effective_number_of_parts():
    assert parts.count_effective(np.array([5, 5, 5, 5])) == pytest.approx(4)
    assert parts.count_effective(np.array([9, 0, 0])) == pytest.approx(1)
    assert 1 < parts.count_effective(np.array([9, 1])) < 2


def test_copies_by_how_often_a_class_is_an_answer():
    """Class 0 is seen 4 times and held by all, 1 twice and held by one, 9 once and held by none."""
    true = [[0, 1], [0, 1], [0, 9], [0, 3]]
    result = parts.count_copies(SETS, answers_of(true, true))
    assert [(one.least, one.most, one.classes, one.missing) for one in result] == [
        (0, 0, 6, 2),  # 2, 4, 5, 6 in a set each; 7 and 8 in none
        (1, 1, 2, 1),
        (2, 3, 1, 0),
        (4, 7, 1, 0),
    ]
    assert [one.copies for one in result] == pytest.approx([4 / 6, 0.5, 1, 3])
    assert sum(one.classes for one in result) == CLASSES


def test_worst_parts_are_those_that_lose_most(monkeypatch):
    """Part 1 loses class 9 on each of its rows; part 0 nothing; part 2 has too few rows to tell."""
    monkeypatch.setattr(parts, "MIN_PART_ROWS", 2)
    routes = [(0,), (0,), (1,), (1,), (2,), ()]
    true = [[0, 1], [0, 2], [0, 9], [3, 9], [4, 5], [7, 8]]
    ids = [[0, 1], [2, 0], [0, 3], [3, 0], [0, 1], [7, 8]]
    (worst,) = parts.find_worst(SETS, routes, answers_of(ids, true), Namer(None))
    assert (worst.number, worst.size, worst.rows, worst.p_at_1, worst.p_at_5) == (1, 2, 2, 1.0, 0.5)
    assert (worst.words, worst.missed) == (["#0", "#3"], ["#9"])


def test_names():
    assert Namer(["the", ""])(0) == "the"
    assert Namer(["the", ""])(1) == "#1"
    assert Namer(None)(1) == "#1"
