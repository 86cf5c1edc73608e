"""The clients against a real server, and their exchanges without one."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import shortlist
import torch
from hypothesis import given
from hypothesis import strategies as st
from shortlist import errors
from shortlist.client import exchange
from shortlist.client.exchange import Response

from tests.support.layers import RunningServer, make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=11, seed=6).contexts
ATOL = 1e-5


@pytest.fixture
def client(small_server):
    with shortlist.Client(small_server.url) as client:
        yield client


def assert_same(result, expected):
    assert (result.ids.dtype, result.logprobs.dtype, result.scored.dtype) == (np.int64, np.float32, np.int32)
    assert np.array_equal(result.ids, expected.ids)
    np.testing.assert_allclose(result.logprobs, expected.logprobs, atol=ATOL)
    assert np.array_equal(result.scored, expected.scored)
    assert result.normalizer == expected.normalizer


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"allow": [1, 2]}, {"ban": [[1]] * 11}, {"version": 1}])
def test_topk_equals_the_head(client, head, options):
    result = client.topk("lm", ROWS, 4, **options)
    options.pop("version", None)
    assert_same(result, head.topk(ROWS, 4, **options))
    result.ids[0] = 0  # the caller may write to the answer


def test_split_batches_are_concatenated_in_order(small_server, head):
    ban = np.arange(11)[:, None]
    with shortlist.Client(small_server.url, max_rows=4) as client:
        result = client.topk("lm", ROWS, 3, ban=ban, exact=True, labels=True)
        expected = head.topk(ROWS, 3, ban=ban, exact=True, labels=True)
        assert_same(result, expected)
        assert result.labels.tolist() == expected.labels.tolist()
        logprobs = client.logprobs("lm", ROWS, ban, exact=True)
    np.testing.assert_allclose(logprobs, head.logprobs(ROWS, ban, exact=True), atol=ATOL)


def test_a_batch_over_the_servers_limit_is_halved(small_server):
    rows = np.tile(ROWS, (600, 1))  # 6,600 rows; the server takes 4,096
    with shortlist.Client(small_server.url, max_rows=1_000_000) as client:
        result = client.topk("lm", rows, 1, exact=True)
    assert np.array_equal(result.ids, np.tile(result.ids[:11], (600, 1)))


def test_no_rows(client):
    result = client.topk("lm", ROWS[:0], 2)
    assert (result.ids.shape, result.logprobs.shape, result.scored.shape) == ((0, 2), (0, 2), (0,))
    assert client.logprobs("lm", ROWS[:0], np.zeros((0, 3), int)).shape == (0, 3)


@pytest.mark.parametrize(
    "convert",
    [
        lambda rows: rows.tolist(),
        lambda rows: rows.astype(np.float64),
        np.asfortranarray,
        lambda rows: np.repeat(rows, 2, axis=0)[::2],
        torch.from_numpy,
        lambda rows: torch.nn.Parameter(torch.from_numpy(rows)),
        lambda rows: torch.from_numpy(rows).double(),
    ],
)
def test_any_kind_of_array(client, head, convert):
    assert_same(client.topk("lm", convert(ROWS), 2, exact=True), head.topk(ROWS, 2, exact=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_tensors(client, head, dtype):
    rows = torch.from_numpy(ROWS).to(dtype)
    assert_same(client.topk("lm", rows, 2, exact=True), head.topk(rows.float().numpy(), 2, exact=True))


def test_logprobs_equal_the_head(client, head):
    for ids in ([1, 2, -1], np.tile([[3, 4]], (11, 1)), torch.ones(11, 1, dtype=torch.int64)):
        expected = np.asarray(ids) if np.ndim(ids) == 2 else np.tile([ids], (11, 1))
        np.testing.assert_allclose(client.logprobs("lm", ROWS, ids), head.logprobs(ROWS, expected), atol=ATOL)


@pytest.mark.parametrize("kind", [np.array, torch.tensor, tuple, list])
def test_any_kind_of_lists_a_row(client, head, kind):
    assert_same(
        client.topk("lm", ROWS, np.int64(2), allow=[kind([1, 2])] * 11), head.topk(ROWS, 2, allow=[[1, 2]] * 11)
    )


def test_models_and_readiness(client):
    assert client.ready()
    assert {model["name"] for model in client.models()} == {"lm", "dense"}


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda client: client.topk("nope", ROWS, 1), errors.NotFound, "nope"),
        (lambda client: client.topk("a/b?c", ROWS, 1), errors.NotFound, "Not Found"),
        (lambda client: client.topk("lm", ROWS, 1, version=9), errors.NotFound, "version 9"),
        (lambda client: client.topk("lm", ROWS, 1, version=1.9), errors.BadInput, "version is 1.9"),
        (lambda client: client.logprobs("lm", ROWS, [1], version="1"), errors.BadInput, "version is 1: "),
        (lambda client: client.topk("lm", ROWS, 0), errors.BadInput, "k is 0"),
        (lambda client: client.topk("lm", ROWS, 2.7), errors.BadInput, "k is 2.7: give a whole number"),
        (lambda client: client.topk("lm", ROWS, "abc"), errors.BadInput, "k is abc"),
        (lambda client: client.topk("lm", ROWS, True), errors.BadInput, "k is True"),
        (lambda client: client.topk("lm", ROWS[:, 1:], 1), errors.BadInput, "shape"),
        (lambda client: client.topk("lm", ROWS * np.inf, 1), errors.BadInput, "NaN"),
        (lambda client: client.topk("lm", ROWS[0], 1), errors.BadInput, "shape"),
        (lambda client: client.topk("lm", [["a"]], 1), errors.BadInput, "numbers"),
        (lambda client: client.topk("lm", ROWS, 1, ban=[0.5]), errors.BadInput, "ban"),
        (lambda client: client.topk("lm", ROWS, 1, ban=[[1], [2]]), errors.BadInput, "2 rows for 11"),
        (lambda client: client.logprobs("lm", ROWS, [10**6]), errors.BadInput, "1000000"),
    ],
)
def test_typed_errors(client, call, error, word):
    with pytest.raises(error, match=word):
        call(client)


def test_no_server_and_no_address(free_port):
    url = f"http://127.0.0.1:{free_port}"
    with shortlist.Client(url) as client:
        assert not client.ready()
        with pytest.raises(errors.Unreachable, match=url):
            client.topk("lm", ROWS, 1)
    wrongs = ("127.0.0.1:8000", "", "ftp://x", "http://", "http://h:port", "http://h:70000", "http://a..b:80")
    for wrong in wrongs:
        for kind in (shortlist.Client, shortlist.AsyncClient):
            with pytest.raises(errors.BadInput, match="write it as http://host:port"):
                kind(wrong)


@pytest.mark.parametrize("timeout", [0, -1, np.nan, np.inf])
def test_a_timeout_is_some_seconds(timeout):
    with pytest.raises(errors.BadInput, match=f"timeout is {timeout}"):
        shortlist.Client("http://server", timeout=timeout)


def make_client(handler, **options):
    client = shortlist.Client("http://server", **options)
    client.http = httpx.Client(base_url="http://server", transport=httpx.MockTransport(handler))
    return client


def test_responses_of_other_servers():
    page = make_client(lambda _: httpx.Response(200, html="<p>welcome</p>"))
    with page, pytest.raises(errors.ServerError, match="check the URL"):
        page.topk("lm", ROWS, 1)
    client = make_client(lambda _: httpx.Response(502, text="bad gateway"))
    with client, pytest.raises(errors.ServerError, match="502"):
        client.topk("lm", ROWS, 1)


def test_a_server_that_is_not_ready_or_slow():
    busy = make_client(lambda _: httpx.Response(503, json={"error": "loading"}))
    with busy, pytest.raises(errors.NotReady, match=r"^loading$"):
        busy.topk("lm", ROWS, 1)
    assert not make_client(lambda _: httpx.Response(503, json={"error": "loading"})).ready()

    def time_out(request):
        raise httpx.ReadTimeout("", request=request)

    with make_client(time_out, timeout=2) as slow, pytest.raises(errors.Unreachable, match="within 2 s"):
        slow.models()


def test_a_connection_that_was_closed_is_replaced_once():
    requests = []

    def drop_first(request):
        requests.append(request)
        if len(requests) == 1:
            raise httpx.RemoteProtocolError("closed", request=request)
        return httpx.Response(200, json={"models": []})

    with make_client(drop_first) as client:
        assert client.models() == []
    assert len(requests) == 2


def test_a_client_refused_for_load_repeats_its_request(small_repository, head):
    with RunningServer(small_repository, "--queue-rows", "4", "--inline-us", "0") as server:

        def send_rows(start: int) -> None:
            with shortlist.Client(server.url) as client:
                for _ in range(10):
                    assert_same(client.topk("lm", ROWS[start : start + 4], 3), head.topk(ROWS[start : start + 4], 3))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(send_rows, range(6)))


@pytest.mark.parametrize(
    ("status", "header", "waits"),
    [(429, "2", True), (429, "", False), (429, "soon", False), (503, "2", False), (200, "2", False)],
)
def test_only_a_refusal_for_load_is_waited_for(status, header, waits):
    seconds = exchange.get_retry_after(Response(status, {"retry-after": header}, b""))
    assert (seconds is not None) == waits
    assert seconds is None or 2.0 <= seconds <= 2.2


def test_one_row_over_the_limit_is_an_error():
    full = make_client(lambda _: httpx.Response(413, json={"error": "too large"}))
    with full, pytest.raises(errors.TooLarge):
        full.topk("lm", ROWS, 1)


@given(st.integers(0, 30), st.integers(1, 40), st.integers(1, 9))
def test_parts_cover_every_row_once(rows, max_rows, most):
    def send_part(part):
        response = yield exchange.Request("GET", f"{part.start}:{part.stop}")
        if response.status == 413:
            raise errors.TooLarge("too large")
        return list(range(part.start, part.stop))

    sizes = []

    def respond(request):
        start, stop = map(int, request.path.split(":"))
        sizes.append(stop - start)
        return Response(413 if stop - start > most else 200, {}, b"")

    with shortlist.Client("http://server") as client:
        client.send = respond
        parts = client.run(exchange.send_in_parts(rows, max_rows, send_part))
    assert [row for part in parts for row in part] == list(range(rows))
    assert max(sizes) <= max_rows


def test_a_split_batch_has_its_weakest_normalizer():
    kinds = iter(["exact", "estimated", "exact"])

    def respond(request):
        content = {
            "model_name": "lm",
            "parameters": {"normalizer": next(kinds)},
            "outputs": [
                {"name": "ids", "datatype": "INT64", "shape": [1, 1], "data": [4]},
                {"name": "logprobs", "datatype": "FP32", "shape": [1, 1], "data": [-1.0]},
                {"name": "scored", "datatype": "INT32", "shape": [1], "data": [9]},
            ],
        }
        return httpx.Response(200, content=json.dumps(content))

    with make_client(respond, max_rows=1) as client:
        assert client.topk("lm", ROWS[:3], 1).normalizer == "estimated"


def test_async_client(small_server, head):
    async def use_client():
        async with shortlist.AsyncClient(small_server.url, max_rows=4) as client:
            assert await client.ready()
            assert len(await client.models()) == 2
            results = await asyncio.gather(*(client.topk("lm", ROWS[[row]], 2) for row in range(11)))
            logprobs = await client.logprobs("lm", ROWS, [1, 2])
            with pytest.raises(errors.NotFound):
                await client.topk("nope", ROWS, 1)
        return results, logprobs

    results, logprobs = asyncio.run(use_client())
    for row, result in enumerate(results):
        assert_same(result, head.topk(ROWS[[row]], 2))
    assert logprobs.shape == (11, 2)


def test_async_client_without_a_server(free_port):
    async def use_client():
        async with shortlist.AsyncClient(f"http://127.0.0.1:{free_port}") as client:
            assert not await client.ready()
            with pytest.raises(errors.Unreachable):
                await client.models()

    asyncio.run(use_client())
