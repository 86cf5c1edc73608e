"""Biases in the forms that users give them."""

import numpy as np
import pytest
import torch
from shortlist.core.bias import parse_bias
from shortlist.errors import BadInput

FORMS = {
    "a map": {3: 1.5, 4: -2},
    "a map of text": {"3": 1.5, "4": -2.0},
    "one map, in a list": [{3: 1.5, 4: -2}],
    "numbers of numpy": {np.int16(3): np.float16(1.5), np.int64(4): np.float64(-2)},
    "a pair": ([3, 4], [1.5, -2.0]),
    "a pair of arrays": (np.array([[3, 4]], np.int32), np.array([[1.5, -2.0]])),
    "a pair of tensors": (torch.tensor([3, 4]), torch.tensor([1.5, -2.0])),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_one_bias(name):
    bias = parse_bias(FORMS[name], 5, 10)
    assert (bias.ids.dtype, bias.weights.dtype) == (np.int64, np.float32)
    assert (bias.ids.tolist(), bias.weights.tolist()) == ([[3, 4]], [[1.5, -2.0]])
    assert parse_bias(bias, 5, 10) is bias
    assert len(bias[2:4]) == 1


def test_maps_of_several_rows_are_padded():
    bias = parse_bias([{1: 2.0}, {}, {5: 1.0, 6: 3.0}], 3, 10)
    assert bias.ids.tolist() == [[1, -1], [-1, -1], [5, 6]]
    assert bias[1:].ids.tolist() == [[-1, -1], [5, 6]]


@pytest.mark.parametrize("nothing", [None, {}, [], [{}, {}], ([], [])])
def test_nothing(nothing):
    assert parse_bias(nothing, 2, 10) is None


WRONG = {
    "a number": (3, "bias must map ids to weights"),
    "text": ("3", "bias must map ids to weights"),
    "a list of numbers": ([1, 2], "bias must map ids to weights"),
    "a key of text": ({"a": 1.0}, "bias holds 'a' in place of an id"),
    "a negative key": ({"-1": 1.0}, "bias holds '-1' in place of an id"),
    "half a key": ({0.5: 1.0}, "bias holds '0.5' in place of an id"),
    "a key of true": ({True: 1.0}, "bias holds 'True' in place of an id"),
    "a weight of text": ({1: "a"}, "bias holds a weight that is no number"),
    "a weight of true": ({1: True}, "bias holds a weight that is no number"),
    "no weight": ({1: None}, "bias holds a weight that is no number"),
    "not a number": ({1: float("nan")}, "bias of id 1 is not finite"),
    "over float32": ({1: 1e300}, "bias of id 1 is not finite|no number of float32"),
    "no class": ({10: 1.0}, "bias holds id 10 but classes go from 0 to 9"),
    "too few rows": ([{1: 1.0}] * 2, "bias has 2 rows for 3 contexts"),
    "thousands of rows and one long one": (
        [dict.fromkeys(range(10), 1.0), *[{}] * 199_999],
        "bias has 200000 rows for",
    ),
    "an id twice": (([[1, 2], [4, 4]], [[1, 2], [3, 4]]), "bias row 1 holds id 4 twice"),
    "other shapes": (([1, 2], [1.0]), r"shapes \[1, 2\] and \[1, 1\]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name):
    values, sentence = WRONG[name]
    with pytest.raises(BadInput, match=sentence):
        parse_bias(values, 3, 10)


def test_one_long_row_among_thousands_is_not_padded():
    """The arrays of 2,000 rows as wide would have 60 million ids."""
    long, short = dict.fromkeys(range(30_000), 1.0), {1: 1.0}
    with pytest.raises(BadInput, match=r"bias has rows of 1 to 30000 ids: send lists of about equal length"):
        parse_bias([long, *[short] * 1_999], 2_000, 30_000)
    assert parse_bias([long, *[short] * 9], 10, 30_000).ids.shape == (10, 30_000)


def test_bytes_are_those_of_both_arrays():
    assert parse_bias([{1: 2.0}, {5: 1.0, 6: 3.0}]).nbytes == 4 * (8 + 4)
