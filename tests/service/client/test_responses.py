"""Refusals for load, and when they are waited for."""

from __future__ import annotations

import time

import pytest
from shortlist.client.messages import Response
from shortlist.client.responses import choose_pause, get_retry_after, raise_for_status
from shortlist.errors import Overloaded


@pytest.mark.parametrize(
    ("status", "header", "waits"),
    [
        (429, "2", True),
        (429, "", False),
        (429, "soon", False),
        (429, "9" * 5000, False),
        (503, "2", False),
        (200, "2", False),
    ],
)
def test_only_a_refusal_for_load_is_waited_for(status, header, waits):
    response = Response(status, {"retry-after": header}, b"")
    seconds = get_retry_after(response)
    assert (seconds is not None) == waits
    assert seconds is None or 2.0 <= seconds <= 2.2
    assert choose_pause(response, time.monotonic() + 1) is None
    assert (choose_pause(response, time.monotonic() + 60) is not None) == waits


def test_a_refusal_that_says_no_seconds_is_not_answered_without_a_pause():
    assert get_retry_after(Response(429, {"retry-after": "0"}, b"")) >= 0.1


@pytest.mark.parametrize(("header", "seconds"), [("37", 37), ("soon", 1), ("", 1)])
def test_the_error_of_a_refusal_for_load_holds_the_seconds_that_the_server_said(header, seconds):
    response = Response(429, {"retry-after": header}, b'{"error": "full"}')
    with pytest.raises(Overloaded, match=r"^full$") as excinfo:
        raise_for_status(response)
    assert excinfo.value.retry_after == seconds
