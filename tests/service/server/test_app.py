"""Every route of a real server, asked well and badly."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import shortlist

from tests.support.layers import CLASSES, DIM, make_contexts
from tests.support.servers.responses import read_refusal

ROWS = make_contexts(rows=6, seed=5).contexts
ATOL = 1e-4


def post(server, path="/v1/topk", **fields):
    content = {"model": "lm", "contexts": ROWS.tolist(), "k": 3} | fields
    return server.http.post(path, json={name: value for name, value in content.items() if value is not ...})


@pytest.mark.parametrize("exact", [False, True])
def test_topk_equals_the_head(small_server, head, exact):
    result, expected = post(small_server, exact=exact).json(), head.topk(ROWS, 3, exact=exact)
    assert result["ids"] == expected.ids.tolist()
    np.testing.assert_allclose(result["logprobs"], expected.logprobs, atol=ATOL)
    assert result["scored"] == expected.scored.tolist()
    assert (result["model"], result["version"], result["normalizer"]) == ("lm", 1, expected.normalizer)
    assert "labels" not in result


def test_scores_stand_beside_their_ids(small_server, head):
    result = post(small_server, allow=[4, 7], scores=True).json()
    expected = head.topk(ROWS, 3, allow=[4, 7], scores=True).scores
    np.testing.assert_allclose([row[:2] for row in result["scores"]], expected[:, :2], atol=ATOL)
    assert {row[2] for row in result["scores"]} == {None}


def test_labels_stand_beside_their_ids(small_server):
    result = post(small_server, allow=[4, 7], labels=True).json()
    assert {tuple(sorted(row[:2])) for row in result["labels"]} == {("word 4", "word 7")}
    assert result["labels"][0][2] is None


def test_items_are_asked_for_and_answered_by_name(small_server):
    by_id = post(small_server, allow=[4, 7], ban=[[4], [7], [], [], [], []]).json()
    lists = {"allow": ["item-4", "item-7"], "ban": [["item-4"], ["item-7", "gone"], [], [], [], []]}
    result = post(small_server, **lists, names=True).json()
    assert result["ids"] == by_id["ids"]
    assert result["names"] == [[None if id_ < 0 else f"item-{id_}" for id_ in row] for row in by_id["ids"]]
    scores = [
        post(small_server, "/v1/score", k=..., ids=ids).json()["logprobs"] for ids in ([7, 4], ["item-7", "item-4"])
    ]
    assert scores[0] == scores[1]


def test_names_that_do_not_fit(small_server):
    for fields, model in (({"allow": ["gone"]}, "lm"), ({"ban": ["item-4"]}, "dense"), ({"names": True}, "dense")):
        response = post(small_server, model=model, **fields)
        assert response.status_code == 400, fields
        assert "names" in response.text or "which no class of lm is called" in response.text


def test_short_rows_end_in_null(small_server):
    result = post(small_server, allow=[[1, 2], [3], [], [4, -1], [5], [6]]).json()
    assert result["ids"][1] == [3, -1, -1]
    assert result["ids"][2] == [-1, -1, -1]
    assert result["logprobs"][1][1:] == [None, None]


def test_ban_for_all_rows_or_one_a_row(small_server):
    best = [row[0] for row in post(small_server).json()["ids"]]
    for ban in (best, [[id_] for id_ in best]):
        result = post(small_server, ban=ban).json()["ids"]
        assert all(id_ not in row for id_, row in zip(best, result, strict=True))


def test_no_rows_are_no_answers(small_server):
    result = post(small_server, contexts=[]).json()
    assert (result["ids"], result["logprobs"], result["scored"]) == ([], [], [])


@pytest.mark.parametrize("ids", [[0, 5, 299], [[0, 5], [1], [2, 3], [], [7, 7], [9, -1]]])
def test_score_equals_the_head(small_server, head, ids):
    result = post(small_server, "/v1/score", ids=ids, k=...).json()
    width = max(len(row) for row in ids) if isinstance(ids[0], list) else len(ids)
    rows_of_ids = [(row + [-1] * width)[:width] for row in (ids if isinstance(ids[0], list) else [ids] * len(ROWS))]
    expected = head.logprobs(ROWS, np.array(rows_of_ids))
    logprobs = np.array(result["logprobs"], float)  # null becomes nan
    np.testing.assert_allclose(np.where(np.isnan(logprobs), -np.inf, logprobs), expected, atol=ATOL)
    assert result["normalizer"] in ("exact", "estimated")


WRONG = {
    "no model": ({"model": ...}, 400),
    "model is a number": ({"model": 3}, 400),
    "unknown model": ({"model": "nope"}, 404),
    "endless model": ({"model": "x" * 10_000}, 404),
    "unknown version": ({"version": 9}, 404),
    "version is text": ({"version": "1"}, 400),
    "no contexts": ({"contexts": ...}, 400),
    "contexts are text": ({"contexts": "1 2 3"}, 400),
    "contexts are flat": ({"contexts": [1.0] * DIM}, 400),
    "text in contexts": ({"contexts": [[0.0] * (DIM - 1) + ["1.5"]]}, 400),
    "true in contexts": ({"contexts": [[0.0] * (DIM - 1) + [True]]}, 400),
    "null in contexts": ({"contexts": [[0.0] * (DIM - 1) + [None]]}, 400),
    "list in contexts": ({"contexts": [[0.0] * (DIM - 1) + [[0.0]]]}, 400),
    "ragged": ({"contexts": [[0.0] * DIM, [0.0] * (DIM - 1)]}, 400),
    "wrong d": ({"contexts": [[0.0] * (DIM + 1)]}, 400),
    "over float32": ({"contexts": [[1e300] * DIM]}, 400),
    "no k": ({"k": ...}, 400),
    "k is 0": ({"k": 0}, 400),
    "k over max_k": ({"k": CLASSES + 1}, 400),
    "k is huge": ({"k": 10**30}, 400),
    "k is text": ({"k": "3"}, 400),
    "k is true": ({"k": True}, 400),
    "allow is true": ({"allow": [True]}, 400),
    "allow out of range": ({"allow": [CLASSES]}, 400),
    "allow is a fraction": ({"allow": [1.5]}, 400),
    "ban for too few rows": ({"ban": [[1], [2]]}, 400),
    "ban is an object": ({"ban": {"a": 1}}, 400),
    "exact is text": ({"exact": "yes"}, 400),
    "misspelt field": ({"alow": [1]}, 400),
    "labels of a model without": ({"model": "dense", "labels": True}, 400),
    "rows over max_rows": ({"contexts": [[0.0] * DIM] * 4097}, 413),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_questions(small_server, what):
    fields, status = WRONG[what]
    read_refusal(post(small_server, **fields), status)
    assert post(small_server).status_code == 200


BODIES = {
    "empty": b"",
    "not JSON": b"contexts",
    "NaN": b'{"model": "lm", "k": 1, "contexts": [[NaN]]}',
    "not UTF-8": b'{"model": "\xff"}',
    "a list": b"[]",
    "deep": b"[" * 250_000,
    "deep in contexts": b'{"model": "lm", "k": 1, "contexts": ' + b"[" * 250_000,
    "900 deep": b'{"model": "lm", "k": 1, "contexts": ' + b"[" * 900 + b"]" * 900 + b"}",
}


@pytest.mark.parametrize("path", ["/v1/topk", "/v1/score", "/v2/models/lm/infer"])
@pytest.mark.parametrize("what", BODIES)
def test_wrong_bodies(small_server, path, what):
    read_refusal(small_server.http.post(path, content=BODIES[what]))
    assert small_server.http.get("/healthz").status_code == 200


def test_a_word_as_long_as_the_limit_takes_no_more_memory_than_that(small_server):
    row = ["x" * 1_000_000] + [0.0] * 100_000
    read_refusal(post(small_server, contexts=[row]))


def test_nan_in_a_binary_tensor(small_server):
    rows = ROWS.copy()
    rows[2, 3] = np.nan
    with shortlist.Client(small_server.url) as client, pytest.raises(shortlist.errors.BadInput, match="row 2"):
        client.topk("lm", rows, 1)


def test_missing_and_wrong_routes(small_server):
    http = small_server.http
    for path in ("/nothing", "/v1/models/", "/docs/files/nothing"):
        assert read_refusal(http.get(path), 404) == f"there is no route '{path}': /docs lists those there are"
    long = f"there is no route '/{'x' * 59}...': /docs lists those there are"
    assert read_refusal(http.get("/" + "x" * 5000), 404) == long
    assert "'/a\\nb\\x1b<c>'" in read_refusal(http.get("/a%0Ab%1b%3Cc%3E"), 404)
    for verb, path, verbs in (
        ("GET", "/v1/topk", ["POST"]),
        ("DELETE", "/v2/models/lm", ["GET"]),
        ("POST", "/v1/models/lm/items", ["GET", "PUT"]),
        ("POST", "/docs/files/favicon.png", ["GET", "HEAD"]),
    ):
        response = http.request(verb, path)
        assert read_refusal(response, 405) == f"'{path}' does not take {verb}: use {' or '.join(verbs)}"
        assert response.headers["allow"] == ", ".join(verbs)
    assert read_refusal(http.get("/v1/models/nope"), 404) == "Request for unknown model: 'nope' is not found"
    assert read_refusal(http.get("/v2/models/nope/ready"), 404) == "Request for unknown model: 'nope' is not found"
    for version in ("0", "9", "x", "9" * 5000, "-1", "1.0"):
        read_refusal(http.get(f"/v2/models/lm/versions/{version}"), 404)
        read_refusal(http.get("/v1/models/lm", params={"version": version}), 404)
    read_refusal(http.post("/v2/models/lm/infer", content=b"x", headers={"Content-Encoding": "br"}), 415)
    read_refusal(http.post("/v2/models/lm/infer", content=b"x", headers={"Content-Encoding": "gzip"}), 400)


def test_body_over_the_limit_is_refused_before_and_while_it_is_read(small_server):
    limit = 16 << 20
    response = small_server.http.post("/v1/topk", content=b" " * (limit + 1))
    assert str(limit) in read_refusal(response, 413)
    chunks = (b" " * (1 << 20) for _ in range(18))
    read_refusal(small_server.http.post("/v2/models/lm/infer", content=chunks), 413)
    assert post(small_server).status_code == 200


def test_an_answer_over_the_limit_is_refused_before_it_is_computed(small_server):
    contexts = [[0.0] * DIM] * 4096
    assert post(small_server, contexts=contexts, k=CLASSES).status_code == 200
    ids = [0] * (6 << 10)
    assert "limit" in read_refusal(post(small_server, "/v1/score", contexts=contexts, ids=ids, k=...), 413)


def test_a_client_that_leaves_harms_nobody(small_server):
    host, port = small_server.url.removeprefix("http://").split(":")
    for request in (
        b"POST /v1/topk HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
        b"POST /v1/topk HTTP/1.1\r\nHost: localhost\r\n",
        b"\x00\xff nonsense\r\n\r\n",
    ):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(request)
    assert post(small_server).status_code == 200


def test_many_at_once_get_their_own_answers(small_server, head):
    expected = head.topk(ROWS, 3).ids.tolist()
    with ThreadPoolExecutor(8) as pool:
        rows = [index % len(ROWS) for index in range(80)]
        answers = pool.map(lambda row: post(small_server, contexts=[ROWS[row].tolist()]).json()["ids"], rows)
    assert [answer[0] for answer in answers] == [expected[row] for row in rows]


def test_health_and_models(small_server):
    get = small_server.http.get
    assert get("/healthz").json()["live"] is True
    assert get("/readyz").json() == {"ready": True}
    assert {model["name"] for model in get("/v1/models").json()["models"]} == {"lm", "dense"}
    model = get("/v1/models/lm").json()
    assert (model["version"], model["state"], model["reason"]) == (1, "ready", None)
    assert (model["method"], model["plan"], model["reference"]) == ("svd", "preview", "dense")
    assert (model["classes"], model["dim"], model["max_k"], model["device"]) == (CLASSES, DIM, CLASSES, "cpu")
    assert (model["labels"], model["exact"], model["normalizer"]) == (True, True, "estimated")
    assert model["fit"]["basis"] == "context"
    assert model["settings"]["full_view"] == 40
    assert 0 < model["quality"]["p_at_1"] <= 1
    assert list(model["quality"]["p_at"]) == ["3"]
    assert [version["version"] for version in model["versions"]] == [1]


def test_open_inference_protocol(small_server, head):
    http = small_server.http
    assert http.get("/v2").json() == http.get("/v2/").json()
    assert "binary_tensor_data" in http.get("/v2").json()["extensions"]
    assert http.get("/v2/health/live").json() == {"live": True}
    assert http.get("/v2/health/ready").json() == {"ready": True, "live": True}
    assert http.get("/v2/models").json() == {"models": ["dense", "lm"]}
    assert http.get("/v2/models/lm/versions/1/ready").json() == {"name": "lm", "ready": True}
    metadata = http.get("/v2/models/lm").json()
    assert metadata == http.get("/v2/models/lm/versions/1").json()
    assert metadata["inputs"][0] == {"name": "context", "datatype": "FP32", "shape": [-1, DIM]}
    outputs = ["ids", "logprobs", "scored", "risk", "scores"]
    assert [output["name"] for output in metadata["outputs"]] == [*outputs, "labels", "names"]
    assert [output["name"] for output in http.get("/v2/models/dense").json()["outputs"]] == outputs
    tensor = {"name": "context", "shape": list(ROWS.shape), "datatype": "FP32", "data": ROWS.tolist()}
    answer = http.post("/v2/models/lm/infer", json={"id": "7", "inputs": [tensor], "parameters": {"k": 2}}).json()
    assert (answer["id"], answer["model_version"]) == ("7", "1")
    assert answer["outputs"][0]["data"] == head.topk(ROWS, 2).ids.ravel().tolist()


def test_one_context_vector_in_a_raw_binary_request(small_server, head):
    headers = {"Inference-Header-Content-Length": "0"}
    answer = small_server.http.post("/v2/models/lm/infer", content=ROWS[0].tobytes(), headers=headers)
    size = int(answer.headers["Inference-Header-Content-Length"])
    assert answer.headers["content-type"] == "application/octet-stream"
    k = json.loads(answer.content[:size])["outputs"][0]["shape"][1]
    ids = np.frombuffer(answer.content[size:], np.int64, k)
    assert ids.tolist() == head.topk(ROWS[:1], k).ids[0].tolist()


def references(document):
    if isinstance(document, dict):
        result = [document["$ref"]] if isinstance(document.get("$ref"), str) else []
        return result + [each for value in document.values() for each in references(value)]
    return [each for value in document for each in references(value)] if isinstance(document, list) else []


def test_documentation_describes_bodies_and_failures(small_server):
    document = small_server.http.get("/openapi.json").json()
    kinds = document["components"]["schemas"]
    assert {reference.removeprefix("#/components/schemas/") for reference in references(document)} <= set(kinds)
    infer = "/v2/models/{name}/infer"
    for path, name in (("/v1/topk", "TopKRequest"), ("/v1/score", "ScoreRequest"), (infer, "InferRequest")):
        operation = document["paths"][path]["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{name}"}
        assert {"200", "default"} == set(operation["responses"])
    assert kinds["TopKRequest"]["required"] == ["model", "contexts"]
    assert kinds["TopKRequest"]["anyOf"] == [{"required": ["k"]}, {"required": ["sample"]}]
    assert "openapi.json" in small_server.http.get("/docs").text
