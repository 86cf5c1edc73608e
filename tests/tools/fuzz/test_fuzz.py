"""A few seconds of each kind of fuzzing; `make fuzz` takes longer. What it found once is in test_regressions."""

from __future__ import annotations

import pytest

from tests.support.layers import RunningServer
from tools.fuzz import bodies, openapi, tcp

pytestmark = pytest.mark.slow


@pytest.fixture
def server(small_repository):
    """One that may be harmed."""
    with RunningServer(small_repository, "--shared-memory", "--log-level", "warning") as server:
        yield server


def test_mutated_requests_are_answered_or_refused(small_repository):
    report = bodies.run(5000, seed=7, repository=small_repository)
    assert report.list_wrong() == []
    assert min(report.outcomes["200"], report.outcomes["400"]) > 1000


def test_a_request_is_made_of_its_seed_and_number_alone():
    assert [bodies.make_request(3, index)[1:] for index in range(200)] == [
        bodies.make_request(3, index)[1:] for index in range(200)
    ]


def test_what_fails_is_noted_once_and_can_be_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(bodies, "FAILURES_FOLDER", tmp_path)
    report = bodies.Report()
    for _ in range(2):
        bodies.note(report, 1, 2, b"a body", "6", KeyError("k"))
    assert (tmp_path / "1-2.body").read_bytes() == b"a body"
    assert report.outcomes == {"KeyError": 2}
    assert len(report.list_wrong()) == 1
    assert "--seed 1 --first 2" in report.list_wrong()[0]


def test_the_document_describes_what_is_answered(server, tmp_path):
    report = openapi.run(server.url, 16, 0, tmp_path)
    assert not report.has_failures, report.text
    assert report.cases > 20  # in the seconds given, beside other tests


def test_raw_bytes_harm_nobody(server):
    report = tcp.run(server, 6, 0)
    assert report.wrong == []
    assert tcp.find_failures(server.log) == []
    assert report.statuses[200] > 0
    assert report.statuses[400] > 0


@pytest.mark.long
def test_a_hundred_thousand_mutated_requests_are_answered_or_refused(small_repository):
    assert bodies.run(100_000, seed=11, repository=small_repository).list_wrong() == []


@pytest.mark.long
def test_a_minute_of_hostile_requests_of_each_kind(server, tmp_path):
    report = openapi.run(server.url, 60, 1, tmp_path)
    assert not report.has_failures, report.text
    raw = tcp.run(server, 60, 1)
    assert raw.wrong == []
    assert tcp.find_failures(server.log) == []
