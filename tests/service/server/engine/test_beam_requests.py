"""Beam steps beside other requests: large ones, many at once, and what is counted of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import shortlist
from shortlist.decoding.step import beam_step
from shortlist.errors import TooLarge

from tests.support.layers import make_contexts

pytestmark = pytest.mark.slow


@pytest.fixture
def client(small_server):
    with shortlist.Client(small_server.url) as client:
        yield client


def assert_same(result, expected):
    np.testing.assert_array_equal(result.parents, expected.parents)
    np.testing.assert_array_equal(result.ids, expected.ids)
    np.testing.assert_allclose(result.scores, expected.scores, atol=1e-5)


def test_wide_beams_are_computed_and_encoded_in_threads(client, head):
    rows = make_contexts(rows=1024, seed=3).contexts
    scores = -np.random.default_rng(1).gamma(2, size=1024)
    result = client.beam_step("lm", rows, scores, beam=512, n=200, ban=[[row % 300] for row in range(1024)])
    expected = beam_step(head, rows, scores, beam=512, n=200, ban=[[row % 300] for row in range(1024)])
    assert_same(result, expected)


def test_groups_are_split_among_requests(small_server, head):
    rows = make_contexts(rows=30, seed=3).contexts
    scores, lists = -np.arange(30.0), [[row, row + 1] for row in range(30)]
    with shortlist.Client(small_server.url, max_rows=7) as client:
        assert_same(
            client.beam_step("lm", rows, scores, beam=3, allow=lists),
            beam_step(head, rows, scores, beam=3, allow=lists),
        )


def test_groups_over_the_servers_limit_are_halved(small_server, head):
    rows = np.tile(make_contexts(rows=20, seed=3).contexts, (300, 1))  # 6,000 rows; the server takes 4,096
    with shortlist.Client(small_server.url, max_rows=1_000_000) as client:
        result = client.beam_step("lm", rows, np.zeros(6000), beam=4, exact=True)
    assert_same(result, beam_step(head, rows, np.zeros(6000), beam=4, exact=True))


def test_a_group_that_no_request_may_hold_is_refused(client):
    with pytest.raises(TooLarge):
        client.beam_step("lm", make_contexts(rows=4097, seed=3).contexts, np.zeros(4097), beam=4097, n=1)


def test_steps_share_batches_with_other_requests(small_server, head):
    rows = make_contexts(rows=40, seed=3).contexts

    def ask(number):
        with shortlist.Client(small_server.url) as client:
            part = rows[number : number + 6]
            if number % 2:
                return client.topk("lm", part, 4), head.topk(part, 4)
            finished = np.arange(6) == number % 6
            arguments = part, -np.arange(6.0), finished
            return client.beam_step("lm", *arguments, beam=3), beam_step(head, *arguments, beam=3)

    with ThreadPoolExecutor(8) as pool:
        for result, expected in pool.map(ask, range(30)):
            np.testing.assert_array_equal(result.ids, expected.ids)


def ask_in_json(server, rows, scores, **allow):
    """The outputs of a beam step of one group over /v2, without binary data, by name."""
    inputs = {"context": ("FP32", rows.astype(float)), "scores": ("FP64", scores)} | {
        name: ("INT64", ids) for name, ids in allow.items()
    }
    entries = [
        {"name": name, "datatype": datatype, "shape": np.shape(values), "data": np.asarray(values).ravel().tolist()}
        for name, (datatype, values) in inputs.items()
    ]
    body = {"inputs": entries, "parameters": {"beam": len(rows)}}
    response = server.http.post("/v2/models/lm/infer", json=body).raise_for_status()
    return {output["name"]: output["data"] for output in response.json()["outputs"]}


def test_scores_of_beams_that_are_not_there_come_back_as_they_went(small_server, head):
    rows = make_contexts(rows=3, seed=3).contexts
    first = ask_in_json(small_server, rows, [0.0, -1.0, -2.0], allow=[5])
    assert first["parents"][3:] == [-1, -1, -1]
    scores = [first["scores"][0], *first["scores"][3:5]]
    second = ask_in_json(small_server, rows, scores, allow=[5, 6])
    expected = beam_step(head, rows, [scores[0], -np.inf, -np.inf], beam=3, allow=[5, 6])
    assert second["parents"] == expected.parents[0].tolist() == [0, 0, -1, -1, -1, -1]
    assert second["ids"] == expected.ids[0].tolist()


def test_steps_are_counted(client, small_server):
    client.beam_step("lm", make_contexts(rows=6, seed=3).contexts, np.zeros(6), beam=3)
    fields = {
        "model": "lm",
        "contexts": make_contexts(rows=3, seed=3).contexts.tolist(),
        "scores": [0.0] * 3,
        "beam": 3,
    }
    assert small_server.http.post("/v1/beam/step", json=fields).status_code == 200
    metrics = small_server.http.get("/metrics").text
    assert 'endpoint="beam"' in metrics
