"""What one request holds, of a model and of its server, is given back whatever happens."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.errors import Overloaded, TimedOut
from shortlist.server.scheduling.admission import Admission
from shortlist.server.scheduling.hold import Hold

from tests.support.servers.refusals import AGES, expect_refusal


def pair():
    """The admissions of a server, and of one of its models."""
    server = Admission(100, 1000)
    return server, Admission(100, 1000, server)


def test_what_a_model_holds_its_server_holds_too():
    server, model = pair()
    model.take_bytes(600)
    model.take_rows(7, AGES)
    model.add_bytes(300)
    assert (server.rows, server.bytes) == (model.rows, model.bytes) == (7, 900)
    other = Admission(100, 1000, server)
    expect_refusal(other.take_bytes, 200)  # there is no room in the server
    assert (server.bytes, other.bytes) == (900, 0)
    model.add_bytes(-900)
    model.release_rows(7)
    assert (server.rows, server.bytes) == (model.rows, model.bytes) == (0, 0)


def test_a_hold_gives_back_all_that_it_took_whatever_happens():
    server, model = pair()
    with contextlib.suppress(ZeroDivisionError), Hold(server, "a") as hold:
        hold.take_bytes(300)
        hold.take_bytes(200)
        hold.take_rows(model, 7, AGES)
        assert (server.rows, server.bytes, model.rows) == (7, 500, 7)
        raise ZeroDivisionError
    assert (server.rows, server.bytes, model.rows, model.bytes) == (0, 0, 0, 0)


def test_a_response_is_held_in_place_of_the_rows_and_of_the_body():
    server, model = pair()
    with Hold(server, "a") as hold:
        hold.take_bytes(900)
        hold.take_rows(model, 7, AGES)
        hold.keep_response(1400)  # never refused
        assert (server.rows, server.bytes, model.rows) == (0, 1400, 0)
    assert (server.rows, server.bytes, model.rows) == (0, 0, 0)


def test_a_hold_whose_rows_the_model_refuses_holds_none_in_the_server():
    server, model = pair()
    with Hold(server, "a") as first, Hold(server, "a") as second:
        first.take_rows(model, 70, AGES)
        model.note_batch(1, 1.0)
        expect_refusal(second.take_rows, model, 5, 10.0)  # 70 s to wait
        assert (server.rows, model.rows) == (70, 70)
        other = Admission(100, 1000, server)
        second.take_rows(other, 5, 10.0)  # another model of the server has nothing to wait for
    assert (server.rows, model.rows, other.rows) == (0, 0, 0)


def test_more_bytes_are_held_for_a_while():
    server, _ = pair()
    with Hold(server, "a") as hold:
        hold.take_bytes(300)
        with contextlib.suppress(ZeroDivisionError), hold.extra_bytes(5000):
            assert (server.bytes, hold.bytes) == (5300, 5300)
            raise ZeroDivisionError
        assert server.bytes == 300
        with Hold(server, "b") as other:
            other.take_bytes(100)
            with pytest.raises(Overloaded), hold.extra_bytes(700):
                raise AssertionError
        assert (server.bytes, hold.bytes) == (300, 300)


def test_bytes_of_one_request_do_not_refuse_its_own():
    server, _ = pair()
    with Hold(server, "a") as hold:
        hold.take_bytes(900)
        hold.take_bytes(900)
        with Hold(server, "a") as other:
            expect_refusal(other.check_bytes, 1)


def test_a_request_without_time_is_refused_first():
    _, model = pair()
    model.take_rows(100, AGES)
    with pytest.raises(TimedOut):
        model.check_rows(1, -1e-9)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=4), st.integers(0, 60), st.floats(0, 2),
    st.integers(0, 120), st.floats(-1, 100),
)  # fmt: skip
def test_the_inline_check_equals_taking_and_releasing(held_rows, batch_rows, seconds, rows, limit):
    outcomes = []
    for inline in (True, False):
        server, model = pair()
        other = Admission(100, 1000, server)
        for count, same in held_rows:
            (model if same else other).take_rows(count, AGES, "a") if server.rows + count <= 75 else None
        model.note_batch(batch_rows, seconds)
        try:
            if inline:
                model.pass_rows(rows, limit, "a")
            else:
                with Hold(server, "a") as hold:
                    hold.take_rows(model, rows, limit)
            outcome = None
        except (Overloaded, TimedOut) as error:
            outcome = type(error), str(error)
        outcomes.append((outcome, server.rows, model.rows, other.rows, model.row_seconds, server.row_seconds))
    assert outcomes[0] == outcomes[1]
