"""What clients send, without any I/O."""

from __future__ import annotations

import json

import numpy as np
import pytest
import shortlist
import torch
from hypothesis import given
from hypothesis import strategies as st
from shortlist import errors
from shortlist.client import exchange
from shortlist.client.messages import Limits, Request, Response


@given(st.integers(0, 30), st.integers(1, 40), st.integers(1, 9))
def test_parts_cover_every_row_once(rows, max_rows, most):
    sizes = []

    def make_request(part):
        return Request("GET", f"{part.start}:{part.stop}")

    def respond(request):
        start, stop = map(int, request.path.split(":"))
        sizes.append(stop - start)
        return Response(413 if stop - start > most else 200, {}, request.path.encode())

    def read(response):
        return list(range(*map(int, response.content.decode().split(":"))))

    def join(parts):
        return [row for part in parts for row in part]

    with shortlist.Client("http://server") as client:
        client.send = respond
        parts = client.run(exchange.send_in_parts(rows, max_rows, make_request, read, join))
    assert parts == list(range(rows))
    assert max(sizes) <= max_rows


@pytest.mark.parametrize(("timeout", "text"), [(2.5, b'"timeout": 2500000'), (30.0, None), (60.0, None)])
def test_a_short_timeout_is_told_to_the_server(timeout, text):
    with shortlist.Client("http://server", timeout=timeout) as client:
        request = next(exchange.topk("lm", np.zeros((1, 2), np.float32), 1, None, {}, None, False, (), client.limits))
    assert (text is None) == (b"timeout" not in request.content)
    assert text is None or text in request.content


def test_requests_of_one_shape_share_all_but_their_numbers():
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    first, second = (next(exchange.topk("a b", rows[[row]], 1, None, {}, None, False, (), Limits(9))) for row in (0, 1))
    assert first.parts[0] is second.parts[0]
    assert (first.path, first.headers) == (second.path, second.headers)
    assert first.path == "/v2/models/a%20b/infer"
    assert [bytes(each.parts[1]) for each in (first, second)] == [rows[0].tobytes(), rows[1].tobytes()]


def test_numbers_are_not_copied():
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    request = next(exchange.topk("lm", rows, 1, None, {}, None, False, (), Limits(9)))
    assert np.shares_memory(np.asarray(request.parts[1]), rows)


@pytest.mark.parametrize("values", [np.asfortranarray, lambda rows: rows[:, ::2], lambda rows: rows.astype(">f4")])
def test_rows_with_gaps_are_sent_in_order(values):
    rows = values(np.arange(8, dtype=np.float32).reshape(2, 4))
    request = next(exchange.topk("lm", rows, 1, None, {}, None, False, (), Limits(9)))
    assert bytes(request.parts[1]) == np.ascontiguousarray(rows, "<f4").tobytes()


def test_numbers_of_draws_may_be_numpys():
    requests = []

    def refuse(request):
        requests.append(request)
        return Response(400, {}, b"{}")

    numbers = {"draws": np.int64(3), "top_k": np.int32(5), "top_p": np.float32(0.5)}
    with shortlist.Client("http://server") as client:
        client.send = refuse
        with pytest.raises(errors.BadInput, match="without a reason"):
            client.sample("lm", np.zeros((1, 4), np.float32), 1, **numbers)
        with pytest.raises(errors.BadInput, match="draws is 0"):
            client.sample("lm", np.zeros((1, 4), np.float32), 1, draws=0)
    assert b'"draws": 3, "k": 5, "top_p": 0.5' in requests[0].parts[0]


def test_items_are_lists_of_keys():
    with shortlist.Client("http://server") as client:
        client.send = lambda request: Response(200, {}, request.parts[0])
        for keys in ([np.int64(3), 4], (3, 4), np.array([3, 4]), torch.tensor([3, 4])):
            assert client.put_items("lm", remove=keys, sequence=np.int64(7))["remove"] == [3, 4]
        for wrong in ({"put": "ab"}, {"remove": "ab"}, {"sequence": 1.5}):
            with pytest.raises(errors.BadInput, match="give a"):
                client.put_items("lm", **wrong)


@pytest.mark.parametrize("name", [None, "", 7, "\ud800"])
def test_names_that_no_path_can_hold_are_refused(name):
    with shortlist.Client("http://server") as client:
        for call in (lambda: client.topk(name, np.zeros((1, 2)), 1), lambda: client.sets(name)):
            with pytest.raises(errors.BadInput, match=r"model is .*give its name"):
                call()


@pytest.mark.parametrize("rows", [1, 3])
def test_an_answer_of_other_rows_than_were_asked_for_is_refused(rows):
    """As where a proxy gives the answer to another request."""
    outputs = [
        {"name": "ids", "datatype": "INT64", "shape": [rows, 1], "data": [7] * rows},
        {"name": "logprobs", "datatype": "FP32", "shape": [rows, 1], "data": [-1.0] * rows},
        {"name": "scored", "datatype": "INT32", "shape": [rows], "data": [9] * rows},
    ]
    body = json.dumps({"outputs": outputs, "parameters": {"normalizer": "exact"}}).encode()
    contexts, limits = np.zeros((2, 4), np.float32), Limits(10, {})
    for asked in (
        exchange.topk("lm", contexts, 1, None, {}, None, False, (), limits),
        exchange.logprobs("lm", contexts, [7], None, False, limits),
    ):
        next(asked)
        with pytest.raises(errors.ServerError, match=f"the answer has {rows} rows and 2 were asked for"):
            asked.send(Response(200, {}, body))


def test_an_option_that_no_beam_step_has_is_refused():
    with (
        shortlist.Client("http://server") as client,
        pytest.raises(errors.BadInput, match="beam_step has no option 'beem': known are beam, n, eos"),
    ):
        client.beam_step("lm", np.zeros((2, 2), np.float32), [0.0, 0.0], beam=2, beem=3)
