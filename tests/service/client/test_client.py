"""The clients, blocking and for asyncio, over every transport."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
import shortlist
import torch
from shortlist import errors

from tests.support.layers import RunningServer, make_contexts
from tests.support.servers.clients import KINDS, ScriptedServer, open_client, respond

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=11, seed=6).contexts
ATOL = 1e-5


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def client(small_server, kind):
    with open_client(kind, small_server) as client:
        yield client


@pytest.fixture
def open_scripted(tmp_path, kind):
    """A client of a server that answers as a script says."""
    with ExitStack() as stack:

        def start(script, **options):
            server = stack.enter_context(ScriptedServer(tmp_path, script))
            return stack.enter_context(open_client(kind, server, **options))

        yield start


def respond_json(content, status="200 OK", **headers):
    return respond(json.dumps(content).encode(), status, **headers)


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


def test_split_batches_are_concatenated_in_order(small_server, head, kind):
    ban = np.arange(11)[:, None]
    with open_client(kind, small_server, max_rows=4) as client:
        result = client.topk("lm", ROWS, 3, ban=ban, exact=True, labels=True)
        expected = head.topk(ROWS, 3, ban=ban, exact=True, labels=True)
        assert_same(result, expected)
        assert result.scores is None
        assert result.labels.tolist() == expected.labels.tolist()
        logprobs = client.logprobs("lm", ROWS, ban, exact=True)
    np.testing.assert_allclose(logprobs, head.logprobs(ROWS, ban, exact=True), atol=ATOL)


def test_names_scores_and_more_come_where_they_are_asked_for(small_server, head, kind):
    lists = {"allow": ["item-4", "item-7", "item-9"], "ban": [["item-4"], ["item-7", "gone"]] + [[]] * (len(ROWS) - 2)}
    more = {"labels": True, "risk": True, "scores": True, "names": True}
    with open_client(kind, small_server, max_rows=4) as client:
        result = client.topk("lm", ROWS, 3, **lists, **more)
        logprobs = client.logprobs("lm", ROWS, [["item-7", "item-4"]] * len(ROWS), exact=True)
    expected = head.topk(ROWS, 3, **lists, **more)
    assert_same(result, expected)
    assert (result.labels.tolist(), result.names.tolist()) == (expected.labels.tolist(), expected.names.tolist())
    np.testing.assert_allclose(result.scores, expected.scores, atol=ATOL)
    np.testing.assert_array_equal(result.risk, expected.risk)
    np.testing.assert_allclose(logprobs, head.logprobs(ROWS, [7, 4], exact=True), atol=ATOL)


def test_a_batch_over_the_servers_limit_is_halved(small_server, kind):
    rows = np.tile(ROWS, (600, 1))  # 6,600 rows; the server takes 4,096
    with open_client(kind, small_server, max_rows=1_000_000) as client:
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


@pytest.mark.parametrize("make", [np.array, torch.tensor, tuple, list])
def test_any_kind_of_lists_a_row(client, head, make):
    assert_same(
        client.topk("lm", ROWS, np.int64(2), allow=[make([1, 2])] * 11), head.topk(ROWS, 2, allow=[[1, 2]] * 11)
    )


def test_models_and_readiness(client):
    assert client.ready()
    assert {model["name"] for model in client.models()} == {"lm", "dense"}


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda client: client.topk("nope", ROWS, 1), errors.NotFound, "nope"),
        (lambda client: client.topk("a/b?c", ROWS, 1), errors.NotFound, "no route '/v2/models/a/b"),
        (lambda client: client.topk("lm", ROWS, 1, version=9), errors.NotFound, "version 9"),
        (lambda client: client.topk("lm", ROWS, 1, version=1.9), errors.BadInput, "version is 1.9"),
        (lambda client: client.logprobs("lm", ROWS, [1], version="1"), errors.BadInput, "version is '1': "),
        (lambda client: client.topk("lm", ROWS, 0), errors.BadInput, "k is 0"),
        (lambda client: client.topk("lm", ROWS, 2.7), errors.BadInput, "k is 2.7: give a whole number"),
        (lambda client: client.topk("lm", ROWS, "abc"), errors.BadInput, "k is 'abc'"),
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


def test_no_server(free_port, kind, tmp_path):
    class Nobody:
        url, unix_url = f"http://127.0.0.1:{free_port}", f"unix://{tmp_path}/nobody.sock"

    with open_client(kind, Nobody) as client:
        assert not client.ready()
        with pytest.raises(errors.Unreachable, match=f"^{client.url} cannot be reached .*: is the server running"):
            client.topk("lm", ROWS, 1)


@pytest.mark.parametrize("make", [shortlist.Client, shortlist.AsyncClient])
@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "", "ftp://x", "http://", "http://h:port", "http://h:70000", "http://a..b:80", "unix:x"]
)
def test_no_address(url, make):
    with pytest.raises(errors.BadInput, match="write it as http://host:port"):
        make(url)


@pytest.mark.parametrize("timeout", [0, -1, np.nan, np.inf, 1e10, "3", None])
def test_a_timeout_is_some_seconds(timeout):
    with pytest.raises(errors.BadInput, match=f"timeout is {timeout!r}"):
        shortlist.Client("http://server", timeout=timeout)


def test_responses_of_other_servers(open_scripted):
    client = open_scripted(lambda _: [respond(b"<p>welcome</p>", content_type="text/html")])
    with pytest.raises(errors.ServerError, match="check the URL"):
        client.topk("lm", ROWS, 1)


def test_an_error_without_a_reason(open_scripted):
    client = open_scripted(lambda _: [respond(b"bad gateway", "502 Bad Gateway")])
    with pytest.raises(errors.ServerError, match=r"answered 502 without a reason \(bad gateway\)"):
        client.topk("lm", ROWS, 1)


def test_a_server_that_is_not_ready(open_scripted):
    client = open_scripted(lambda _: [respond_json({"error": "loading"}, "503 Service Unavailable")])
    with pytest.raises(errors.NotReady, match=r"^loading$"):
        client.topk("lm", ROWS, 1)
    assert not client.ready()


def test_a_slow_server(open_scripted):
    client = open_scripted(lambda _: [1.0], timeout=0.2)
    with pytest.raises(errors.Unreachable, match=r"did not answer within 0.2 s: raise timeout"):
        client.models()


def test_a_client_refused_for_load_repeats_its_request(small_repository, head):
    with RunningServer(small_repository, "--queue-rows", "4", "--inline-us", "0") as server:

        def send_rows(start: int) -> None:
            with shortlist.Client(server.url) as client:
                for _ in range(3):
                    assert_same(client.topk("lm", ROWS[start : start + 4], 3), head.topk(ROWS[start : start + 4], 3))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(send_rows, range(6)))
        assert 'code="429"' in server.http.get("/metrics").text, "some were refused"


def test_a_refusal_for_load_is_repeated_when_the_server_says(open_scripted):
    answers = [
        respond_json({"error": "full"}, "429 Too Many Requests", retry_after="0"),
        respond_json({"models": []}),
    ]
    assert open_scripted(lambda number: [answers[number]]).models() == []


def test_a_refusal_beyond_the_timeout_is_an_error(open_scripted):
    refusal = respond_json({"error": "full"}, "429 Too Many Requests", retry_after="60")
    with pytest.raises(errors.Overloaded, match="full") as excinfo:
        open_scripted(lambda _: [refusal]).models()
    assert excinfo.value.retry_after == 60


def test_one_row_over_the_limit_is_an_error(open_scripted):
    client = open_scripted(lambda _: [respond_json({"error": "too large"}, "413 Content Too Large")])
    with pytest.raises(errors.TooLarge):
        client.topk("lm", ROWS, 1)


def test_a_split_batch_has_its_weakest_normalizer_and_promise(open_scripted):
    kinds, promises = ["exact", "estimated", "estimated"], [{}, {"promise": 0.99}, {"promise": 0.995}]

    def answer(number):
        content = {
            "model_name": "lm",
            "parameters": {"normalizer": kinds[number]} | promises[number],
            "outputs": [
                {"name": "ids", "datatype": "INT64", "shape": [1, 1], "data": [4]},
                {"name": "logprobs", "datatype": "FP32", "shape": [1, 1], "data": [-1.0]},
                {"name": "scored", "datatype": "INT32", "shape": [1], "data": [9]},
            ],
        }
        return [respond_json(content)]

    top = open_scripted(answer, max_rows=1).topk("lm", ROWS[:3], 1)
    assert (top.normalizer, top.promise) == ("estimated", 0.99)


@pytest.mark.parametrize("url", ["url", "unix_url"])
def test_a_closed_client_refuses(small_server, url):
    with shortlist.Client(getattr(small_server, url)) as client:
        assert client.ready()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.models()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.delete_lists("items")


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
