"""Which requests are taken: by rows and bytes, one rule for one row and for many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.errors import Overloaded
from shortlist.server.scheduling.admission import MAX_RETRY_AFTER_SECONDS, Admission

from tests.support.servers.refusals import AGES, expect_refusal


@pytest.mark.parametrize("rows", [1, 11, 75])
def test_rows_over_a_clients_share_are_refused_one_or_many(rows):
    admission = Admission(100, 1000)
    admission.take_rows(75 - rows, AGES)
    admission.take_rows(rows, AGES)
    expect_refusal(admission.take_rows, 1, AGES)
    expect_refusal(admission.take_rows, rows, AGES)
    expect_refusal(admission.take_bytes, 1)  # before its body is read
    admission.release_rows(1)
    admission.take_bytes(1)
    admission.take_rows(1, AGES)
    assert (admission.rows, admission.bytes) == (75, 1)


def test_no_client_takes_so_much_that_others_are_refused():
    admission = Admission(100, 1000)
    admission.take_bytes(750, client="greedy")
    admission.take_rows(75, AGES, "greedy")
    expect_refusal(admission.take_rows, 1, AGES, "greedy")
    expect_refusal(admission.take_bytes, 1, 0, "greedy")
    admission.take_bytes(100, client="second")
    admission.take_rows(18, AGES, "second")
    expect_refusal(admission.take_rows, 1, AGES, "second")
    admission.take_rows(5, AGES, "third")
    assert (admission.rows, admission.bytes) == (98, 850)


def test_a_refusal_says_whether_the_server_is_full_or_the_client_over_its_share():
    admission = Admission(100, 1000)
    admission.take_bytes(700, client="greedy")
    admission.take_rows(70, AGES, "greedy")
    share = "this client would hold {} of the server's {}, over its share: try again in 1 s"
    for action, arguments, words in (
        (admission.take_rows, (20, AGES, "greedy"), share.format(90, "100 rows")),
        (admission.take_bytes, (200, 0, "greedy"), share.format(900, "1000 bytes")),
        (admission.take_rows, (25, AGES, "second"), share.format(25, "100 rows")),
        (admission.take_rows, (31, AGES, "second"), "the server holds 70 rows in 700 bytes and takes no more: try"),
        (admission.take_bytes, (301, 0, "second"), "the server holds 70 rows in 700 bytes and takes no more: try"),
    ):
        assert str(expect_refusal(action, *arguments)).startswith(words)
    admission.note_batch(1, 1.0)
    sentence = str(expect_refusal(admission.take_rows, 1, 10, "second"))
    assert sentence.startswith("the server holds 70 rows in 700 bytes, too many to wait for in this request")


def test_a_models_refusal_says_what_the_server_holds():
    server = Admission(100, 1000)
    model, other = Admission(100, 1000, server), Admission(100, 1000, server)
    model.take_rows(50, AGES, "a")
    other.take_rows(20, AGES, "b")
    model.note_batch(1, 1.0)
    assert "the server holds 70 rows" in str(expect_refusal(model.take_rows, 1, 1, "a"))


def test_a_client_waits_for_its_own_rows_and_as_many_of_each_other():
    admission = Admission(10_000, 1000)
    admission.take_rows(5000, AGES, "greedy")
    admission.note_batch(10, 1.0)  # 0.1 s a row
    expect_refusal(admission.take_rows, 1, 900, "greedy")
    admission.take_rows(1, 10, "modest")
    expect_refusal(admission.take_rows, 40, 10, "modest")


def test_bytes_over_the_limit_are_refused():
    admission = Admission(100, 1000)
    admission.take_bytes(600)
    admission.take_bytes(150)
    expect_refusal(admission.take_bytes, 1)
    admission.add_bytes(-600)
    admission.take_bytes(600)
    assert admission.bytes == 750


def test_a_lone_request_is_always_taken():
    admission = Admission(10, 1000)
    admission.note_batch(1, 3600.0)
    admission.take_bytes(5000)
    admission.take_rows(500, 1e-3)
    expect_refusal(admission.take_bytes, 1)
    expect_refusal(admission.take_rows, 1, AGES)
    admission.add_bytes(-5000)
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
                assert not bytes_ or 4 * (bytes_ + count) <= 3 * most_bytes
            elif kind == "take_rows":
                admission.take_rows(count, limit)
                inside.append((0, count))
                assert not rows or 4 * (rows + count) <= 3 * most_rows
            elif kind == "note_batch":
                admission.note_batch(count, seconds)
            elif inside:
                bytes_, rows = inside.pop(count % len(inside))
                admission.add_bytes(-bytes_)
                admission.release_rows(rows)
        except Overloaded as error:
            refusals.append((error.retry_after, rows + bytes_))
        assert admission.bytes == sum(each[0] for each in inside)
        assert admission.rows == sum(each[1] for each in inside)
        assert admission.estimate_wait() >= 0
    assert all(1 <= seconds <= MAX_RETRY_AFTER_SECONDS and something for seconds, something in refusals)
