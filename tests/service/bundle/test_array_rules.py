"""Rules of single arrays: dtype, shape by named sizes, values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.bundle import array_rules
from shortlist.bundle.array_rules import ArrayRule, find_faults, find_unsorted, make_offsets_check

SIZES = {"V": 10, "d": 3}
FLOATS = np.array([-1.5, 0.0, 2.0], np.float32)


def test_a_size_is_settled_where_it_occurs_first_and_holds_from_then_on():
    sizes, rule = dict(SIZES), ArrayRule("int64", ("n+1",))
    assert rule.find_fault(np.arange(5), sizes) is None
    assert sizes == SIZES | {"n": 4}
    assert rule.find_fault(np.arange(6), sizes) == "has shape [6] instead of [5]"
    assert ArrayRule("float32", ("n", "W")).find_fault(FLOATS, sizes) == "has shape [3] instead of [4, W]"
    assert ArrayRule("float32", ("n", "n")).find_fault(np.zeros((4, 5), np.float32), sizes) is not None
    assert sizes == SIZES | {"n": 4}


@pytest.mark.parametrize(("shape", "names"), [((0,), ("n",)), ((1,), ("n+1",)), ((2, 0), ("n", "W"))])
def test_no_size_is_0(shape, names):
    assert "has shape" in ArrayRule("float32", names).find_fault(np.zeros(shape, np.float32), {})


def test_another_dtype():
    assert ArrayRule("float32", ("n",)).find_fault(FLOATS.astype(np.float64), {}) == "is float64 instead of float32"


def test_what_is_missing_and_what_no_rule_is_about():
    rules = {"a": ArrayRule("float32", ("n",)), "b": ArrayRule("float32", ("n",), optional=True)}
    assert find_faults({"a": FLOATS, "other": np.array("x")}, rules, {}) is None
    assert find_faults({"b": FLOATS}, rules, {}) == "has no 'a'"
    assert find_faults({"a": FLOATS, "b": FLOATS[:2]}, rules, {}) == "has 'b', which has shape [2] instead of [3]"


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ("finite", [-3e38, 0, 3e38], [np.nan, np.inf, -np.inf]),
        ("positive", [1e-45, 3e38], [0, -1, np.nan, np.inf, -np.inf]),
        ("not_negative", [0, 3e38], [-1e-45, np.nan, np.inf, -np.inf]),
        ("finite_or_lowest", [-np.inf, -3e38, 3e38], [np.nan, np.inf]),
        ("classes", [0, 9], [-1, 10, 2**40, -(2**63), 2**63 - 1]),
        ("classes_or_padding", [-1, 0, 9], [-2, 10, 2**40, -(2**63), 2**63 - 1]),
    ],
)
def test_values(check, good, bad):
    find_fault = getattr(array_rules, f"check_{check}")
    dtype = np.int64 if "classes" in check else np.float32
    assert find_fault(np.array(good, dtype), SIZES) is None
    for value in bad:
        for place in range(len(good) + 1):
            assert find_fault(np.insert(np.array(good, dtype), place, value), SIZES) is not None


def test_a_class_twice():
    assert array_rules.check_distinct(np.array([3, 9, 0]), SIZES) is None
    assert array_rules.check_distinct(np.array([3, 9, 3]), SIZES) == "holds a class twice"


@pytest.mark.parametrize(
    ("offsets", "fault"),
    [
        ([0, 3, 5], None),
        ([0, 5], None),
        ([0, 5, 5], "parts of 0 to 5"),
        ([0, 6, 5], "a place outside of 0 to 5"),
        ([0, -(2**63), 5], "a place outside"),
        ([0, 2**62, 5], "a place outside"),
        ([0, 4, 3, 5], "parts of -1 to 4"),
        ([1, 3, 5], "goes from 1 to 5 instead of from 0 to 5"),
        ([0, 3, 4], "goes from 0 to 4"),
        ([0, 3, 2**40], "goes from 0 to 1099511627776"),
    ],
)
def test_places_where_parts_begin(offsets, fault):
    result = make_offsets_check("n")(np.array(offsets), {"n": 5})
    assert result is None if fault is None else fault in result


def test_the_longest_part():
    assert make_offsets_check("n", 3)(np.array([0, 3, 5]), {"n": 5}) is None
    assert "instead of 1 to 2" in make_offsets_check("n", 2)(np.array([0, 3, 5]), {"n": 5})


@given(st.lists(st.lists(st.integers(0, 30), min_size=1), min_size=1))
def test_ids_that_do_not_ascend_in_a_part(parts):
    ids, offsets = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
    assert find_unsorted(ids, offsets) == any(part != sorted(set(part)) for part in parts)
