"""Quotas: a client gets its rate over some seconds, however its requests are cut."""

from __future__ import annotations

import pytest
from shortlist.errors import Overloaded
from shortlist.server.scheduling import quotas
from shortlist.server.scheduling.admission import Admission
from shortlist.server.scheduling.hold import Hold
from shortlist.server.scheduling.quotas import QUOTA_WINDOW_SECONDS, Quotas

from tests.support.clock import Clock


@pytest.fixture
def clock(monkeypatch):
    """The module's clock; the test moves it."""
    clock = Clock(100.0)
    monkeypatch.setattr(quotas, "time", clock)
    return clock


@pytest.mark.parametrize("rows", [1, 7, 64, 300])
def test_a_client_gets_its_rate(clock, rows):
    each, taken, start = Quotas(10.0), 0, clock.now
    while clock.now - start < 1000:
        try:
            each.check("a")
            each.spend("a", rows)
            taken += rows
        except Overloaded as error:
            clock.now += error.retry_after
    spare = 10 * QUOTA_WINDOW_SECONDS + rows
    assert 10_000 - 20 <= taken <= 10_000 + spare + 20


def test_a_refusal_says_when_there_is_room_again(clock):
    each = Quotas(2.0)
    each.spend("a", 50)
    with pytest.raises(Overloaded, match="quota of 2 rows a second") as excinfo:
        each.check("a")
    assert excinfo.value.retry_after == 15
    clock.now += 15.01
    each.check("a")


def test_clients_do_not_share_a_quota(clock):
    each = Quotas(1.0)
    each.spend("a", 1000)
    each.check("b")


def test_clients_with_a_whole_quota_are_forgotten(clock):
    each = Quotas(1.0)
    for number in range(5000):
        each.spend(str(number), 1)
        clock.now += 0.01
    assert len(each.used) < 2000
    each.spend("greedy", 1000)
    for number in range(5000):
        each.spend(str(number), 1)
    with pytest.raises(Overloaded):
        each.check("greedy")


def test_requests_are_refused_before_they_are_read_and_counted_once(clock):
    server = Admission(1000, 1000, quotas=Quotas(1.0))
    model = Admission(1000, 1000, server)
    with Hold(server, "a") as hold:
        hold.check_bytes(10)
        hold.take_rows(model, 12, 100.0)
    assert server.quotas.used["a"][0] == 12
    with Hold(server, "a") as hold, pytest.raises(Overloaded):
        hold.check_bytes(10)
    model.pass_rows(5, 100.0, "b")
    assert server.quotas.used["b"][0] == 5
