"""Which requests are taken: by rows and bytes, one rule for one row and for many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.errors import Overloaded
from shortlist.server.scheduling.admission import MAX_RETRY_AFTER_SECONDS, Admission

from .refusals import AGES, check_refused


@pytest.mark.parametrize("rows", [1, 11, 100])
def test_rows_over_the_limit_are_refused_one_or_many(rows):
    held = Admission(100, 1000)
    held.take_rows(100 - rows, AGES)
    held.take_rows(rows, AGES)
    check_refused(held.take_rows, 1, AGES)
    check_refused(held.take_rows, rows, AGES)
    check_refused(held.take_bytes, 1)  # before its body is read
    held.release_rows(1)
    held.take_bytes(1)
    held.take_rows(1, AGES)
    assert (held.rows, held.bytes) == (100, 1)


def test_bytes_over_the_limit_are_refused():
    held = Admission(100, 1000)
    held.take_bytes(600)
    held.take_bytes(400)
    check_refused(held.take_bytes, 1)
    held.release_bytes(600)
    held.take_bytes(600)
    assert held.bytes == 1000


def test_a_lone_request_is_always_taken():
    held = Admission(10, 1000)
    held.note_batch(1, 3600.0)
    held.take_bytes(5000)
    held.take_rows(500, 1e-3)
    check_refused(held.take_bytes, 1)
    check_refused(held.take_rows, 1, AGES)
    held.release_bytes(5000)
    held.release_rows(500)
    assert (held.rows, held.bytes) == (0, 0)
    held.take_bytes(5000)


def test_a_refused_request_holds_nothing():
    held = Admission(10, 10)
    held.take_bytes(10)
    held.take_rows(10, AGES)
    check_refused(held.take_bytes, 1)
    check_refused(held.take_rows, 1, AGES)
    assert (held.rows, held.bytes) == (10, 10)


CALLS = st.tuples(
    st.sampled_from(["take_bytes", "take_rows", "note_batch", "release"]),
    st.integers(0, 60),
    st.floats(0, 2),
    st.floats(0.01, 100),
)


@given(st.lists(CALLS, max_size=60), st.integers(1, 100), st.integers(1, 100))
def test_what_is_held_is_what_came_and_did_not_leave(calls, most_rows, most_bytes):
    held, inside, refusals = Admission(most_rows, most_bytes), [], []
    for kind, count, seconds, limit in calls:
        bytes_, rows = sum(each[0] for each in inside), sum(each[1] for each in inside)
        try:
            if kind == "take_bytes":
                held.take_bytes(count)
                inside.append((count, 0))
                assert not bytes_ or bytes_ + count <= most_bytes
            elif kind == "take_rows":
                held.take_rows(count, limit)
                inside.append((0, count))
                assert not rows or rows + count <= most_rows
            elif kind == "note_batch":
                held.note_batch(count, seconds)
            elif inside:
                bytes_, rows = inside.pop(count % len(inside))
                held.release_bytes(bytes_)
                held.release_rows(rows)
        except Overloaded as error:
            refusals.append((error.retry_after, rows + bytes_))
        assert held.bytes == sum(each[0] for each in inside)
        assert held.rows == sum(each[1] for each in inside)
        assert held.expected_wait() >= 0
    assert all(1 <= seconds <= MAX_RETRY_AFTER_SECONDS and something for seconds, something in refusals)
