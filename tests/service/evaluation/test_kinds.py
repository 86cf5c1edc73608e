from pathlib import Path

import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist.evaluation.kinds import find_kind_rows, parse_kinds


def test_rows_of_kinds_that_have_any():
    rows = find_kind_rows(np.array([3, 3, 0, 7], np.int32), {"prose": [0, 3], "code": [7, 8], "news": [9]})
    assert {name: positions.tolist() for name, positions in rows.items()} == {"prose": [0, 1, 2], "code": [3]}


def test_kinds_are_read_from_metadata():
    assert parse_kinds({}, Path("x")) == {}
    assert parse_kinds({"kinds": '{"prose": [0, 3]}'}, Path("x")) == {"prose": [0, 3]}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1}', '{"a": ["b"]}', '{"a": [true]}', "null"])
def test_other_metadata_are_refused(text):
    with pytest.raises(BadInput, match=r"kinds in the metadata of x must be JSON like .*: capture it again"):
        parse_kinds({"kinds": text}, Path("x"))
