"""What connections share: how many there are, what they hold, and one line of the log for many refusals."""

from __future__ import annotations

import logging
import resource
from types import SimpleNamespace

import pytest
from shortlist.errors import BadInput, Overloaded
from shortlist.server.scheduling.admission import Admission
from shortlist.server.settings import FEWEST_CONNECTIONS, load_settings
from shortlist.server.transport import connection_limits
from shortlist.server.transport.connection_limits import (
    LOG_SECONDS,
    POLLED_AT_ONCE,
    ConnectionLimits,
    TooManyConnections,
)
from shortlist.server.transport.fast_connection import FastConnection
from shortlist.server.transport.head_rules import HeadTooLarge, MalformedRequest


def test_connections_are_counted_by_client():
    limits = ConnectionLimits(8, Admission(10, 10))
    for _ in range(6):
        limits.open("a")
    with pytest.raises(TooManyConnections, match="6 of them yours") as excinfo:
        limits.open("a")
    assert (excinfo.value.status, excinfo.value.retry_after) == (503, 1)
    limits.open("b")
    limits.close("b")
    limits.close("a")
    limits.open("a")


def test_refused_connections_are_counted():
    refused = []
    limits = ConnectionLimits(8, Admission(10, 10), lambda: refused.append(True))
    for _ in range(6):
        limits.open("a")
    for _ in range(3):
        with pytest.raises(TooManyConnections):
            limits.open("a")
    assert len(refused) == 3


def test_what_is_no_request_is_counted():
    malformed = []
    limits = ConnectionLimits(8, Admission(10, 10), count_malformed=lambda: malformed.append(True))
    for error in (MalformedRequest(), HeadTooLarge(), Overloaded("no room", retry_after=1)):
        limits.note_refusal(error, "a")
    assert len(malformed) == 2


def test_what_connections_hold_is_what_the_server_holds():
    admission = Admission(10, 100)
    limits = ConnectionLimits(8, admission)
    limits.check_room("a", 1000)  # one alone may hold whatever it has
    limits.hold("a", 70)
    with pytest.raises(Overloaded, match="this client would hold 80 of the server's 100 bytes, over its share"):
        limits.check_room("a", 10)
    limits.check_room("b", 10)
    limits.hold("a", -70)
    assert admission.bytes == 0


def test_refusals_are_logged_now_and_then(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(connection_limits.time, "monotonic", lambda: now[0])
    limits = ConnectionLimits(8, Admission(10, 10))
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            now[0] = 0.02 * number
            limits.note_refusal(BadInput("it is wrong"), "10.0.0.1")
    assert [record.getMessage() for record in caplog.records] == [
        "1 requests or connections refused, the last from 10.0.0.1: it is wrong",
        f"{round(LOG_SECONDS / 0.02)} requests or connections refused, the last from 10.0.0.1: it is wrong",
    ]


class CrowdedConnection(FastConnection):
    """A connection whose requests the fast path answers; events: what it did."""

    idle, default_headers = True, []

    def __init__(self, limits):
        def note(name):
            return lambda *_: self.events.append(name)

        self.events, self.later, self.closed, self.limits, self.is_usual = [], [], False, limits, True
        self.fast_path = SimpleNamespace(respond=lambda *_: b"answer")
        self.flow, self.write_response = SimpleNamespace(read_paused=False), note("answer")
        self.transport = SimpleNamespace(
            pause_reading=note("pause"), resume_reading=note("resume"), is_closing=lambda: self.closed
        )
        self.loop = SimpleNamespace(call_soon=self.later.append)


def test_connections_of_a_crowd_take_turns():
    """Else libuv polls the same ones again and again before anything else of the event loop runs."""
    limits = ConnectionLimits(4 * POLLED_AT_ONCE, Admission(10, 10))
    for _ in range(POLLED_AT_ONCE - 1):
        limits.open("a")
    connection = CrowdedConnection(limits)
    connection.data_received(b"request")
    assert (connection.events, connection.later) == (["answer"], [])
    limits.open("a")
    connection.data_received(b"request")
    assert connection.events == ["answer", "answer", "pause"]
    connection.later.pop()()
    assert connection.events == ["answer", "answer", "pause", "resume"]
    connection.data_received(b"request")
    connection.closed = True
    connection.later.pop()()
    assert connection.events[4:] == ["answer", "pause"]


@pytest.mark.parametrize(("files", "connections"), [(66, 2), (100, 36), (resource.RLIM_INFINITY, 4096)])
def test_connections_are_as_many_as_there_may_be_files(monkeypatch, files, connections):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: None)
    assert connection_limits.limit_connections(4096) == connections


@pytest.mark.parametrize("files", [20, 64, 65])
def test_too_few_files_for_any_answer_are_refused(monkeypatch, files):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: None)
    with pytest.raises(BadInput, match=f"may have {files} files open, 66 are the fewest .*ulimit -n"):
        connection_limits.limit_connections(4096)


def test_the_fewest_connections_let_somebody_in():
    ConnectionLimits(FEWEST_CONNECTIONS, Admission(10, 10)).open("a")
    with pytest.raises(BadInput, match="--max-connections is"):
        load_settings(max_connections=FEWEST_CONNECTIONS - 1)
