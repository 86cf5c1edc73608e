import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist_exporter.playground.session import parse_rows


def test_rows_of_numbers():
    rows = parse_rows([[1, 2.5], [3, 4]])
    assert rows.dtype == np.float32
    assert rows.tolist() == [[1, 2.5], [3, 4]]


def test_rows_of_several_lengths_are_refused():
    with pytest.raises(BadInput, match="the vectors have 1 to 3 numbers"):
        parse_rows([[1.0, 2.0, 3.0], [1.0]])
