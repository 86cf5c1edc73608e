"""Which requests are taken: by rows and bytes, one rule for one row and for many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.errors import Overloaded
from shortlist.server.scheduling.admission import MAX_RETRY_AFTER_SECONDS, Admission

from .refusals import AGES, expect_refusal


@pytest.mark.parametrize("rows", [1, 11, 100])
def test_rows_over_the_limit_are_refused_one_or_many(rows):
    admission = Admission(100, 1000)
    admission.take_rows(100 - rows, AGES)
    admission.take_rows(rows, AGES)
    expect_refusal(admission.take_rows, 1, AGES)
    expect_refusal(admission.take_rows, rows, AGES)
    expect_refusal(admission.take_bytes, 1)  # before its body is read
    admission.release_rows(1)
    admission.take_bytes(1)
    admission.take_rows(1, AGES)
    assert (admission.rows, admission.bytes) == (100, 1)


def test_bytes_over_the_limit_are_refused():
    admission = Admission(100, 1000)
    admission.take_bytes(600)
    admission.take_bytes(400)
    expect_refusal(admission.take_bytes, 1)
    admission.release_bytes(600)
    admission.take_bytes(600)
    assert admission.bytes == 1000


def test_a_lone_request_is_always_taken():
    admission = Admission(10, 1000)
    admission.note_batch(1, 3600.0)
    admission.take_bytes(5000)
    admission.take_rows(500, 1e-3)
    expect_refusal(admission.take_bytes, 1)
    expect_refusal(admission.take_rows, 1, AGES)
    admission.release_bytes(5000)
    admission.release_rows(500)
    assert (admission.rows, admission.bytes) == (0, 0)
    admission.take_bytes(5000)


def test_a_refused_request_holds_nothing():
    admission = Admission(10, 10)
    admission.take_bytes(10)
    admission.take_rows(10, AGES)
    expect_refusal(admission.take_bytes, 1)
    expect_refusal(admission.take_rows, 1, AGES)
    assert (admission.rows, admission.bytes) == (10, 10)


CALLS = st.tuples(
    st.sampled_from(["take_bytes", "take_rows", "note_batch", "release"]),
    st.integers(0, 60),
    st.floats(0, 2),
    st.floats(0.01, 100),
)


@given(st.lists(CALLS, max_size=60), st.integers(1, 100), st.integers(1, 100))
def test_what_is_held_is_what_came_and_did_not_leave(calls, most_rows, most_bytes):
    admission, inside, refusals = Admission(most_rows, most_bytes), [], []
    for kind, count, seconds, limit in calls:
        bytes_, rows = sum(each[0] for each in inside), sum(each[1] for each in inside)
        try:
            if kind == "take_bytes":
                admission.take_bytes(count)
                inside.append((count, 0))
                assert not bytes_ or bytes_ + count <= most_bytes
            elif kind == "take_rows":
                admission.take_rows(count, limit)
                inside.append((0, count))
                assert not rows or rows + count <= most_rows
            elif kind == "note_batch":
                admission.note_batch(count, seconds)
            elif inside:
                bytes_, rows = inside.pop(count % len(inside))
                admission.release_bytes(bytes_)
                admission.release_rows(rows)
        except Overloaded as error:
            refusals.append((error.retry_after, rows + bytes_))
        assert admission.bytes == sum(each[0] for each in inside)
        assert admission.rows == sum(each[1] for each in inside)
        assert admission.estimate_wait() >= 0
    assert all(1 <= seconds <= MAX_RETRY_AFTER_SECONDS and something for seconds, something in refusals)
