"""Arguments of draws."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.core.draws.sampling import parse_sampling
from shortlist.errors import BadInput


def test_one_number_holds_for_all_rows_and_a_list_for_each_its_own():
    sampling = parse_sampling(3, [1, 2, 3], 17, 0.7, 4)
    assert sampling.seeds.tolist() == [1, 2, 3]
    assert sampling.positions.tolist() == [17] * 3
    assert sampling.temperatures.tolist() == [0.7] * 3
    part = sampling.slice_rows(1, 3)
    np.testing.assert_array_equal(part.make_keys(), sampling.make_keys()[1:])
    assert part.make_keys().shape == (2, 4, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "seed is -1: give a whole number from 0"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"seed": 2**63}, "give at most 9223372036854775807"),
        ({"seed": [[1]]}, "seed is"),
        ({"seed": [1, 2]}, "seed has 2 numbers but contexts 3 rows"),
        ({"seed": True}, "seed is True"),
        ({"seed": [1, [2]]}, "seed is"),
        ({"seed": 1, "position": [1, [2], 3]}, "position is"),
        ({"seed": 1, "temperature": [1.0, [2.0]]}, "temperature is"),
        ({"seed": 1, "top_p": [[0.5], [0.5, 0.5]]}, "top_p is"),
        ({"seed": 1, "position": "x"}, "position is 'x'"),
        ({"seed": 1, "temperature": 0}, "for the best class itself ask for k = 1"),
        ({"seed": 1, "temperature": [1, 2, np.nan]}, "temperature is"),
        ({"seed": 1, "temperature": "warm"}, "temperature is 'warm'"),
        ({"seed": 1, "draws": 0}, "draws is 0"),
        ({"seed": 1, "draws": 2.0}, "draws is 2.0"),
        ({"seed": 1, "top_p": 0}, "top_p is 0: give a probability"),
        ({"seed": 1, "top_p": "most"}, "top_p is 'most'"),
        ({"seed": 1, "top_k": 2.5}, "top_k is 2.5"),
    ],
)
def test_what_is_no_argument_is_refused(arguments, message):
    with pytest.raises(BadInput, match=message):
        parse_sampling(3, **arguments)
