"""Promises as they are asked for."""

import pytest
from shortlist.errors import BadInput
from shortlist_exporter.tuning.promises import make_promise


def test_promises_that_contradict_each_other():
    with pytest.raises(BadInput, match=r"P@5 is asked to reach 0\.9 and 0\.95: give one of them"):
        make_promise([(5, 0.9), (5, 0.95)])
    with pytest.raises(BadInput, match="nothing is promised"):
        make_promise([])
