"""Draws over HTTP: those of the head in this process, at every door."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import shortlist
from shortlist.errors import BadInput

from tests.support.layers import make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=70, seed=6).contexts / 4
ASKED = {
    "one": {},
    "many": {"draws": 7, "temperature": 2.0},
    "by row": {"position": list(range(70)), "temperature": [0.5 + i / 70 for i in range(70)]},
    "k best": {"top_k": 3, "draws": 4},
    "nucleus": {"top_p": 0.4, "temperature": 3.0},
    "lists": {"allow": [5, 6, 7, 8], "ban": [6]},
    "bias": {"bias": {7: 9.0}},
}
REFUSED = [
    ({"sample": {"position": 1}}, "sample must be an object with a seed"),
    ({"sample": {"seed": None}}, "sample must be an object with a seed"),
    ({"sample": {"seed": 1}, "scores": True}, "scores are of the k best alone"),
    ({"sample": {"seed": 1}, "k": 3, "partial": True}, "partial is of requests without 'sample'"),
    ({"sample": {"seed": 1, "warmth": 2}}, "none but seed, position"),
    ({"sample": 3}, "sample must be an object"),
    ({"sample": {"seed": -1}}, "seed is -1"),
    ({"sample": {"seed": 1, "temperature": 0}}, "temperature is 0"),
    ({"sample": {"seed": 1, "draws": 65}}, "draws is 65 and a server gives 64"),
    ({"sample": {"seed": 1}, "k": 301}, "answers k from 1 to"),
]


def check_equal(result, wanted):
    np.testing.assert_array_equal(result.ids, wanted.ids)
    np.testing.assert_allclose(result.logprobs, wanted.logprobs, atol=1e-5)
    assert result.normalizer == wanted.normalizer


@pytest.mark.parametrize("name", ASKED)
def test_clients_draw_what_the_head_draws(small_server, head, name):
    wanted = head.sample(ROWS, 5, **ASKED[name])
    with shortlist.Client(small_server.url, max_rows=33) as client:
        check_equal(client.sample("lm", ROWS, 5, **ASKED[name]), wanted)

    async def ask():
        async with shortlist.AsyncClient(small_server.url) as client:
            return await client.sample("lm", ROWS, 5, **ASKED[name])

    check_equal(asyncio.run(ask()), wanted)


def test_json_draws_what_the_head_draws(small_server, head):
    body = {"model": "lm", "contexts": ROWS[:3].tolist(), "labels": True}
    sample = {"seed": 5, "position": [1, 2, 3], "temperature": 0.7, "draws": 2}
    answer = small_server.http.post("/v1/topk", json=body | {"sample": sample}).json()
    wanted = head.sample(ROWS[:3], 5, [1, 2, 3], 0.7, 2)
    assert answer["ids"] == wanted.ids.tolist()
    np.testing.assert_allclose(answer["logprobs"], wanted.logprobs, atol=1e-5)
    assert answer["labels"] == [[f"word {i}" for i in row] for row in answer["ids"]]
    best = small_server.http.post("/v1/topk", json=body | {"sample": sample | {"top_p": 0.9}, "k": 4}).json()
    assert best["ids"] == head.sample(ROWS[:3], 5, [1, 2, 3], 0.7, 2, top_k=4, top_p=0.9).ids.tolist()


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_what_is_no_request_for_draws_is_refused(small_server, fields, message):
    response = small_server.http.post("/v1/topk", json={"model": "lm", "contexts": ROWS[:2].tolist()} | fields)
    assert response.status_code == 400
    assert message in response.json()["error"]


def test_scores_of_draws_are_refused_in_v2_as_in_v1(small_server):
    inputs = [
        {"name": "context", "datatype": "FP32", "shape": [1, 16], "data": ROWS[0].tolist()},
        {"name": "seed", "datatype": "INT64", "shape": [1], "data": [1]},
    ]
    url = "/v2/models/lm/infer"
    scored, drawn = (
        small_server.http.post(url, json={"inputs": inputs, "parameters": {"scores": scores}})
        for scores in (True, False)
    )
    assert scored.status_code == 400
    assert "scores are of the k best alone" in scored.json()["error"]
    assert drawn.status_code == 200


@pytest.mark.parametrize("k", [0, 10**6, "4", 2.5, True])
def test_a_wrong_k_is_called_k(small_server, k):
    """Requests have no `top_k`, which is what `Head.sample` calls it."""
    body = {"model": "lm", "contexts": ROWS[:1].tolist(), "sample": {"seed": 5}, "k": k}
    context = {"name": "context", "datatype": "FP32", "shape": [1, 16], "data": ROWS[0].tolist()}
    inputs = [context, {"name": "seed", "datatype": "INT64", "shape": [1], "data": [1]}]
    answers = (
        small_server.http.post("/v1/topk", json=body),
        small_server.http.post("/v2/models/lm/infer", json={"inputs": inputs, "parameters": {"k": k}}),
    )
    for answer in answers:
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("k is "), answer.json()


def test_a_position_without_a_seed_is_refused(small_server):
    inputs = [
        {"name": "context", "datatype": "FP32", "shape": [1, 16], "data": ROWS[0].tolist()},
        {"name": "position", "datatype": "INT64", "shape": [1], "data": [1]},
    ]
    response = small_server.http.post("/v2/models/lm/infer", json={"inputs": inputs})
    assert response.status_code == 400
    assert "these lack the input 'seed'" in response.json()["error"]
    with shortlist.Client(small_server.url) as client, pytest.raises(BadInput, match="draws is 65"):
        client.sample("lm", ROWS, 1, draws=65)
