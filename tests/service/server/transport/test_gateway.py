"""The gateway responds as the routes do, and to a remembered text as to a new one."""

from __future__ import annotations

import gc
import gzip
import json
import weakref

import numpy as np
import pytest

from tests.support.layers import CLASSES, DIM
from tests.support.servers.gateway import INFER, LENGTH, ROWS, Pair, as_json, ask_binary, binary, in_json, tensor


@pytest.fixture(scope="module")
def pair(small_repository):
    gateways = Pair(small_repository, body_limit=1 << 20, max_rows=100)
    yield gateways
    gateways.close()


GOOD = {
    "top k": ("/v1/topk", as_json()),
    "top k of dense": ("/v1/topk", as_json(model="dense")),
    "exact": ("/v1/topk", as_json(exact=True)),
    "labels": ("/v1/topk", as_json(labels=True)),
    "lists": ("/v1/topk", as_json(allow=[1, 2, 3], ban=[[2], [3], [-1]])),
    "version": ("/v1/topk", as_json(version=1)),
    "timeout and priority": ("/v1/topk", as_json(timeout=20, priority=3)),
    "all classes": ("/v1/topk", as_json(k=CLASSES)),
    "no rows": ("/v1/topk", as_json(contexts=[])),
    "many rows": ("/v1/topk", as_json(contexts=np.tile(ROWS, (2, 1)).tolist())),
    "score": ("/v1/score", as_json(ids=[1, 2, 3], k=...)),
    "score by row": ("/v1/score", as_json(ids=[[1], [2, 3], []], k=...)),
    "score nothing": ("/v1/score", as_json(ids=[], k=...)),
    "infer": (INFER, in_json()),
    "infer a version": ("/v2/models/lm/versions/1/infer", in_json()),
    "infer dense": ("/v2/models/dense/infer", in_json(id="7")),
    "infer ids": (INFER, in_json(tensor(), {"name": "ids", "shape": [1, 2], "datatype": "INT64", "data": [3, 4]})),
    "classification": (
        INFER,
        in_json(outputs=[{"name": "logprobs", "parameters": {"classification": 2}}]),
    ),
    "no rows to infer": (INFER, in_json(tensor(shape=[0, DIM], data=[]))),
}


@pytest.mark.parametrize("what", GOOD)
def test_good_requests(pair, what):
    path, content = GOOD[what]
    assert pair.both(path, content).status_code == 200


BAD = {
    "empty": ("/v1/topk", b"", 400),
    "not JSON": ("/v1/score", b"{", 400),
    "unknown field": ("/v1/topk", as_json(alow=[1]), 400),
    "unknown model": ("/v1/topk", as_json(model="nope"), 404),
    "unknown version": ("/v1/score", as_json(version=7, ids=[1], k=...), 404),
    "k too large": ("/v1/topk", as_json(k=CLASSES + 1), 400),
    "negative timeout": ("/v1/topk", as_json(timeout=-1), 400),
    "too many rows": ("/v1/topk", as_json(contexts=np.tile(ROWS, (3, 1)).tolist()), 413),
    "no ids": ("/v1/score", as_json(k=...), 400),
    "ids out of range": ("/v1/score", as_json(ids=[CLASSES], k=...), 400),
    "overflow": ("/v1/topk", as_json(contexts=[[3e38] * DIM]), 400),
    "infer nothing": (INFER, b"", 400),
    "infer no inputs": (INFER, b"{}", 400),
    "infer an unknown model": ("/v2/models/nope/infer", in_json(), 404),
    "infer an unknown version": ("/v2/models/lm/versions/9/infer", in_json(), 404),
    "infer no version": ("/v2/models/lm/versions/x/infer", in_json(), 404),
    "infer a wrong shape": (INFER, in_json(tensor(shape=[2, 3])), 400),
    "infer a bad k": (INFER, in_json(parameters={"k": 0}), 400),
    "infer with a bad timeout": (INFER, in_json(parameters={"timeout": -5}), 400),
    "infer with a reserved parameter": (INFER, in_json(parameters={"triton_x": 1}), 400),
    "over the limit": ("/v1/topk", b" " * (2 << 20), 413),
    "infer over the limit": (INFER, b" " * (2 << 20), 413),
    "slash at the end": ("/v1/topk/", as_json(), 404),
    "another route": ("/v1/nothing", b"", 404),
    "slash in the name": ("/v2/models/a/b/infer", in_json(), 404),
    "line feed in the name": ("/v2/models/lm%0A/infer", in_json(), 404),
    "no name": ("/v2/models//infer", in_json(), 404),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_requests(pair, what):
    path, content, status = BAD[what]
    response = pair.both(path, content)
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["/v1/topk", "/v1/score", INFER, "/v2/models/lm/versions/1/infer"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods(pair, path, method):
    response = pair.both(path, method=method)
    assert (response.status_code, response.json()) == (405, {"error": f"'{path}' does not take {method}: use POST"})


def test_names_with_signs_are_the_same_names(pair):
    assert pair.both("/v2/models/l%6D/infer", in_json()).status_code == 200
    assert pair.both("/v2/models/l%2Fm/infer", in_json()).status_code == 404


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity", "br", "gzip;q=0"])
def test_compressed_answers(pair, encoding):
    response = ask_binary(pair, *binary(ROWS, k=10), **{"Accept-Encoding": encoding})
    assert response.status_code == 200
    assert response.headers.get("content-encoding") == (encoding if encoding in ("gzip", "deflate") else None)
    plain = ask_binary(pair, *binary(ROWS, k=10), **{"Accept-Encoding": "identity"})
    assert response.content == plain.content


def test_compressed_requests(pair):
    for path, status in ((INFER, 200), ("/v1/topk", 400)):
        response = pair.both(path, gzip.compress(in_json()), {"Content-Encoding": "gzip"})
        assert response.status_code == status
    assert pair.both(INFER, in_json(), {"Content-Encoding": "gzip"}).status_code == 400
    assert pair.both(INFER, in_json(), {"Content-Encoding": "br"}).status_code == 415
    assert pair.both(INFER, gzip.compress(bytes(2 << 20)), {"Content-Encoding": "gzip"}).status_code == 413


@pytest.mark.parametrize("length", ["x", "-1", "99999", "9" * 5000, "1.0", " ", "²"])
def test_wrong_lengths_of_the_json(pair, length):
    response = pair.both(INFER, in_json(), {LENGTH: length.encode("latin-1")})
    assert response.status_code == 400


def test_raw_binary_requests(pair):
    assert pair.both(INFER, ROWS[0].tobytes(), {LENGTH: "0"}).status_code == 200
    assert pair.both(INFER, ROWS.tobytes(), {LENGTH: "0"}).status_code == 400


def brain(rows):
    return (rows.view(np.uint32) >> 16).astype(np.uint16)


DATATYPES = {"FP32": lambda rows: rows, "FP16": lambda rows: rows.astype(np.float16), "BF16": brain}


def slow(pair, text, blob):
    """The response to the same request in a text that is new, which the response does not show."""
    slow.count += 1
    return ask_binary(pair, text + b" " * slow.count, blob)


slow.count = 0


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("pad", range(4))
@pytest.mark.parametrize("many", [1, 2, 5])
def test_a_remembered_text_is_answered_as_a_new_one(pair, datatype, pad, many):
    pads = set()
    for start in range(0, 6 * many, many):
        rows = DATATYPES[datatype](ROWS[start : start + many])
        text, blob = binary(rows, datatype, 4, {"id": f"{many} {'x' * pad}"})
        pads.add(len(text) % 4)
        result = ask_binary(pair, text, blob)
        assert result.status_code == 200
        assert result.content == slow(pair, text, blob).content
    assert len(pads) == 1  # the four values of pad make four alignments


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_in_a_remembered_text_too(pair, datatype, wrong):
    rows = ROWS[:2].copy()
    for _ in range(3):
        assert ask_binary(pair, *binary(DATATYPES[datatype](rows), datatype)).status_code == 200
    rows[1, 5] = wrong
    text, blob = binary(DATATYPES[datatype](rows), datatype)
    response = ask_binary(pair, text, blob)
    assert response.status_code == 400
    assert "row 1 holds NaN or infinity" in response.json()["error"]
    assert response.content == slow(pair, text, blob).content
    assert ask_binary(pair, *binary(DATATYPES[datatype](ROWS[:2]), datatype)).status_code == 200


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("change", [-4, -1, 1, 4, DIM * 4])
def test_another_count_of_bytes_with_a_remembered_text_is_refused(pair, datatype, change):
    text, blob = binary(DATATYPES[datatype](ROWS[:2]), datatype, 2)
    for _ in range(3):
        assert ask_binary(pair, text, blob).status_code == 200
    other = blob[:change] if change < 0 else blob + bytes(change)
    response = ask_binary(pair, text, other)
    assert response.status_code == 400
    assert response.content == slow(pair, text, other).content


def test_a_remembered_text_with_scores_that_overflow_is_refused(pair):
    text, blob = binary(ROWS[:2], k=6)
    for _ in range(3):
        assert ask_binary(pair, text, blob).status_code == 200
    large = np.full((2, DIM), 3e38, np.float32).tobytes()
    response = ask_binary(pair, text, large)
    assert response.status_code == 400
    assert response.content == slow(pair, text, large).content


def test_a_remembered_text_of_no_rows(pair):
    text, blob = binary(ROWS[:0])
    answers = {ask_binary(pair, text, blob).content for _ in range(4)}
    assert answers == {slow(pair, text, blob).content}


def test_a_text_that_is_refused_is_refused_every_time(pair):
    for fields in ({"k": CLASSES + 1}, {"k": 0}):
        text, blob = binary(ROWS[:1], **fields)
        assert {ask_binary(pair, text, blob).status_code for _ in range(4)} == {400}
    text, blob = binary(np.tile(ROWS, (3, 1)))
    assert {ask_binary(pair, text, blob).status_code for _ in range(4)} == {413}


def test_texts_that_differ_elsewhere_are_not_taken_for_each_other(pair):
    shapes = set()
    for _ in range(3):
        for k in (1, 2, 3):
            text, blob = binary(ROWS[:2], k=k)
            content = ask_binary(pair, text, blob)
            size = int(content.headers[LENGTH])
            outputs = json.loads(content.content[:size])["outputs"]
            shapes.add((k, tuple(outputs[0]["shape"])))
    assert shapes == {(1, (2, 1)), (2, (2, 2)), (3, (2, 3))}


def test_more_texts_than_are_remembered(pair):
    for i in range(300):
        text, blob = binary(ROWS[i % 40][None], fields={"id": str(i)})
        assert pair.ask(INFER, text + blob, {LENGTH: str(len(text))}).status_code == 200
    text, blob = binary(ROWS[:1], fields={"id": "0"})
    assert ask_binary(pair, text, blob).content == slow(pair, text, blob).content


def test_what_is_remembered_does_not_outlive_its_head(small_repository):
    pair = Pair(small_repository, model_control="explicit")
    try:
        text, blob = binary(ROWS[:1])
        for _ in range(4):
            assert ask_binary(pair, text, blob).status_code == 200
        head = weakref.ref(pair.service.models.find("lm").head)
        assert pair.ask("/v2/repository/models/lm/load").status_code == 200
        assert ask_binary(pair, text, blob).status_code == 200  # by the new head
        gc.collect()
        assert head() is None
        head = weakref.ref(pair.service.models.find("lm").head)
        assert ask_binary(pair, text, blob).status_code == 200
        assert pair.ask("/v2/repository/models/lm/unload").status_code == 200
        assert ask_binary(pair, text, blob).status_code == 503
        gc.collect()
        assert head() is None  # its memory is free, as unloading promises
    finally:
        pair.close()
