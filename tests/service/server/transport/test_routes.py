"""Requests that are cut off when the drain ends, and routes outside of the table of endpoints: answered and counted."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import ClientDisconnect

from tests.support.servers.gateway import INFER, LENGTH, ROWS, Pair, as_json, binary
from tests.support.servers.stepped_pool import SteppedPool

RECALL = "/v1/models/lm/recall"
TEXT, BLOB = binary(ROWS[:1])


@pytest.fixture
def pair(small_repository):
    pair = Pair(small_repository, inline_us=0)
    yield pair
    pair.close()


def count(pair, endpoint, code):
    pair.service.settle()
    lines = pair.service.metrics.render().decode().splitlines()
    wanted = f'endpoint="{endpoint}"', f'code="{code}"', "shortlist_requests_total"
    return sum(float(line.split()[-1]) for line in lines if all(word in line for word in wanted))


def cut_off(pair, path, has_begun, content, headers):
    """The response to a request whose task is cancelled once it waits, as at the end of a drain."""

    async def run():
        task = asyncio.create_task(pair.clients[0].post(path, content=content, headers=headers))
        while not has_begun():
            await asyncio.sleep(0.01)
        task.cancel()
        return await task

    return pair.runner.run(run())


def expect_drained(response):
    assert response.status_code == 503
    assert response.json()["error"].startswith("the server stops, and has no time left for this request")


def test_what_the_end_of_the_drain_cuts_off_is_told_so(pair, caplog):
    pool = pair.service.find_model("lm", 1).batcher.pool = SteppedPool()
    expect_drained(cut_off(pair, INFER, lambda: pool.jobs, TEXT + BLOB, {LENGTH: str(len(TEXT))}))
    assert count(pair, "infer", 503) == 1
    assert "Traceback" not in caplog.text


def test_so_is_what_is_no_endpoint_that_computes(pair, monkeypatch, caplog):
    waiting = []

    async def evaluate(*_):
        waiting.append(True)
        await asyncio.sleep(60)

    monkeypatch.setattr(pair.service.monitor, "evaluate", evaluate)
    body = as_json(model=..., k=...)
    expect_drained(cut_off(pair, RECALL, lambda: waiting, body, {}))
    assert count(pair, "recall", 503) == 1
    assert "Traceback" not in caplog.text


def test_a_client_that_leaves_while_its_contexts_are_evaluated_is_not_counted_as_answered(pair, monkeypatch):
    """It was, with 200; elsewhere it is counted by 499, as one that leaves while its answer is computed."""

    async def leave(*_):
        raise ClientDisconnect

    monkeypatch.setattr(pair.service.monitor, "evaluate", leave)
    pair.ask(RECALL, as_json(model=..., k=...))
    assert (count(pair, "recall", 499), count(pair, "recall", 200)) == (1, 0)


def test_routes_are_counted_in_few_groups_and_probes_are_not(pair, monkeypatch):
    async def fail(*_):
        raise OSError("no disk")

    monkeypatch.setattr(pair.service.monitor, "evaluate", fail)
    assert pair.ask(RECALL, as_json(model=..., k=...)).status_code == 500
    assert count(pair, "recall", 500) == 1
    pair.ask("/v1/models/lm/items", b"{}", method="PUT")
    assert count(pair, "items", 403) == 1
    for path in ("/v1/made-up", "/another", "/v1/models/a/b"):
        pair.ask(path, method="GET")
    assert count(pair, "other", 404) == 3
    pair.service.draining = True
    for path in ("/readyz", "/v2/health/ready", "/metrics"):
        pair.ask(path, method="GET")
    pair.ask("/v1/models", headers={"Host": "evil.example"}, method="GET")
    assert count(pair, "other", 503) == count(pair, "other", 200) == count(pair, "other", 403) == 0
