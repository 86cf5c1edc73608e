"""P@k on given contexts: the figures of `shortlist evaluate`, in JSON and in binary, by every client."""

from __future__ import annotations

import json

import numpy as np
import pytest
import shortlist
from shortlist.errors import BadInput, NotFound, TooLarge
from shortlist.evaluation.evaluator import evaluate

from tests.support.layers import make_contexts
from tests.support.servers.clients import KINDS, open_client
from tests.support.servers.responses import read_refusal

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=120, seed=5).contexts


@pytest.fixture(scope="module")
def evaluation(small_repository):
    return evaluate(shortlist.load(small_repository / "lm" / "1"), ROWS).model_dump(mode="json")


def check(answer, evaluation):
    assert (answer["model"], answer["version"], answer["rows"]) == ("lm", 1, 120)
    assert answer["precision"] == {str(k): share for k, share in evaluation["precision"].items()}
    assert answer["promised"] == {str(k): share for k, share in evaluation["promised"].items()}
    assert answer["logprob_error"] == pytest.approx(evaluation["logprob_error"], rel=1e-3)
    assert answer["logprob_error"]["max"] >= answer["logprob_error"]["mean"] > 0


def test_json(small_server, evaluation):
    response = small_server.http.post("/v1/models/lm/recall", json={"contexts": ROWS.tolist()})
    check(response.json(), evaluation)
    response = small_server.http.post("/v1/models/lm/recall?version=1", json={"contexts": ROWS[:5].tolist()})
    assert response.json()["rows"] == 5


@pytest.mark.parametrize("kind", KINDS)
def test_every_client(small_server, evaluation, kind):
    with open_client(kind, small_server) as client:
        check(client.recall("lm", ROWS), evaluation)
        with pytest.raises(NotFound):
            client.recall("lm", ROWS, version=9)
        with pytest.raises(BadInput, match="16"):
            client.recall("lm", ROWS[:, :3])
        with pytest.raises(TooLarge, match="rows"):
            client.recall("lm", np.zeros((5000, 16), np.float32))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "contexts"),
        ({"contexts": []}, "at least 1"),
        ({"contexts": [[1.0]]}, "16"),
        ({"contexts": ROWS[:1].tolist(), "k": 3}, "'k'"),
        ({"contexts": [[1e39] * 16]}, "contexts"),
    ],
)
def test_what_is_refused(small_server, body, words):
    response = small_server.http.post("/v1/models/lm/recall", json=body)
    assert response.status_code == 400
    assert words in response.json()["error"]


def test_a_large_json_is_refused(small_server):
    body = b'{"contexts": [' + b" " * (3 << 20) + b"]}"
    response = small_server.http.post("/v1/models/lm/recall", content=body)
    assert response.status_code == 413


@pytest.mark.parametrize("shape", [[], [1]])
def test_contexts_of_another_number_of_dimensions_are_refused(small_server, shape):
    context = {"name": "context", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": 4}}
    header = json.dumps({"inputs": [context]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(header))}
    response = small_server.http.post("/v1/models/lm/recall", content=header + bytes(4), headers=headers)
    assert "contexts must be a list of rows" in read_refusal(response, 400)
