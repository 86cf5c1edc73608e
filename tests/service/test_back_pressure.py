"""A real server with more to do than it can: who is refused, when, and that nobody else suffers."""

from __future__ import annotations

import gzip
import http.client
import json
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import httpx
import numpy as np
import pytest
from shortlist_exporter.export import Request, export

from tests.support import RunningServer, make_contexts, make_dense

CLASSES, DIM = 40_000, 64  # an eighth of a millisecond a row, and more
LENGTH = "Inference-Header-Content-Length"
INFER = "/v2/models/slow/infer"
ROWS = make_contexts(rows=4000, dim=DIM, seed=3).contexts
MANY = 3000  # rows that keep the server busy for a third of a second, and more
PATIENT = ("--request-timeout", "300")
MICROSECONDS = 1_000_000


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("slow")
    export(make_dense(CLASSES, DIM), make_contexts(dim=DIM), root / "slow" / "1", Request("full", threads=1))
    return root


@pytest.fixture(scope="module")
def server(repository):
    flags = ("--queue-rows", str(MANY + 10), "--threads", "1", "--body-limit", "4000000", "--body-timeout", "2")
    with RunningServer(repository, *flags, *PATIENT) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_held_afterwards(request):
    yield
    if "server" in request.fixturenames:
        wait_until_held(request.getfixturevalue("server"), lambda rows: rows == 0)


def held(server, what="rows"):
    for line in server.http.get("/metrics").text.splitlines():
        if line.startswith(f"shortlist_held_{what} "):
            return float(line.split()[1])
    raise AssertionError("no such metric")


def wait_until_held(server, condition, what="rows", seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = held(server, what)
        if condition(value):
            return value
        time.sleep(0.02)
    raise AssertionError(f"{value} {what} are held")


def binary(rows, **parameters):
    """Body and headers of an infer request."""
    context = {"name": "context", "shape": list(rows.shape), "datatype": "FP32"}
    context["parameters"] = {"binary_data_size": rows.nbytes}
    content = {"inputs": [context], "parameters": {"k": 1, "binary_data_output": True} | parameters}
    text = json.dumps(content).encode()
    return text + rows.tobytes(), {LENGTH: str(len(text))}


def infer(server, rows, http=None, **parameters):
    body, headers = binary(ROWS[:rows], **parameters)
    return (http or server.http).post(INFER, content=body, headers=headers, timeout=300)


def topk(server, rows=1, **fields):
    content = {"model": "slow", "contexts": ROWS[:rows].tolist(), "k": 1} | fields
    return server.http.post("/v1/topk", json=content, timeout=300)


def refused(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    assert "\n" not in response.json()["error"]
    return response


def overloaded(response):
    refused(response, 429)
    assert 1 <= int(response.headers["retry-after"]) <= 60
    return response


@contextmanager
def busy(server, rows=MANY, **parameters):
    """While the server holds this many rows, which it then answers."""
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=server.url) as http:
        running = pool.submit(infer, server, rows, http, **parameters)
        wait_until_held(server, lambda held: held >= rows)
        yield running
        assert running.result().status_code == 200


def connect(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def head_of(path=INFER, **headers):
    lines = [f"POST {path} HTTP/1.1", "Host: x", *(f"{name.replace('_', '-')}: {v}" for name, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer_on(connection):
    """Status, headers and body that come on a raw connection."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        response.close()


def executions(server):
    stats = server.http.get("/v2/models/slow/stats").json()["model_stats"][0]
    return stats["execution_count"], stats["inference_count"]


def test_one_rule_for_one_row_and_many_while_rows_are_held(server):
    with busy(server):
        assert infer(server, 1).status_code == 200
        assert infer(server, 10).status_code == 200
        overloaded(infer(server, 11))
        overloaded(topk(server, 11))
        overloaded(infer(server, 1000))
        assert topk(server).status_code == 200
    assert infer(server, 1000).status_code == 200


def test_a_full_queue_refuses_before_the_body_and_takes_again_afterwards(repository):
    with RunningServer(repository, "--queue-rows", "100", *PATIENT) as server:
        with busy(server) as running:
            overloaded(infer(server, 1))
            overloaded(topk(server, 50))
            overloaded(server.http.post("/v1/topk", content=b"{"))  # it is not even read
            with connect(server) as connection:
                connection.sendall(head_of(Content_Length=100))
                status, headers, body = answer_on(connection)
            assert (status, set(json.loads(body))) == (429, {"error"})
            assert int({name.lower(): value for name, value in headers.items()}["retry-after"]) >= 1
            assert server.http.get("/readyz").status_code == 200
            assert not running.done()
        assert infer(server, 1).status_code == 200
        assert topk(server, 90).status_code == 200
        counted = server.http.get("/metrics").text
        assert 'code="429"' in counted


def test_bytes_that_are_held_are_bounded_too(repository):
    with RunningServer(repository, "--queue-bytes", "500000", *PATIENT) as server:
        with busy(server):  # one alone is taken, whatever its size
            overloaded(infer(server, 1))
        assert infer(server, 1).status_code == 200


def test_a_lone_body_of_unknown_length_is_taken_as_one_of_known_length(repository):
    with RunningServer(repository, "--queue-bytes", "1000") as server:
        body, headers = binary(ROWS[:100])
        assert server.http.post(INFER, content=body, headers=headers).status_code == 200
        with connect(server) as connection:
            names = {LENGTH.replace("-", "_"): headers[LENGTH]}
            connection.sendall(head_of(Transfer_Encoding="chunked", **names))
            for start in range(0, len(body), 9000):
                chunk = body[start : start + 9000]
                connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                expected = {0, start + len(chunk)}  # 0: it is answered
                wait_until_held(server, expected.__contains__, "bytes")
            connection.sendall(b"0\r\n\r\n")
            assert answer_on(connection)[0] == 200


def test_connections_that_announce_much_and_send_nothing_do_not_shut_others_out(repository):
    with RunningServer(repository) as server:
        connections = [connect(server) for _ in range(12)]
        try:
            for connection in connections:
                connection.sendall(head_of(Content_Length=16 << 20) + b"{")
            time.sleep(0.5)
            assert infer(server, 1).status_code == 200
        finally:
            for connection in connections:
                connection.close()


def test_a_wait_over_half_of_the_time_is_refused_at_once(server):
    assert infer(server, 200).status_code == 200  # so that a row's time is known
    with busy(server):
        overloaded(infer(server, 1, timeout=MICROSECONDS // 100))
        overloaded(topk(server, timeout=0.01))
        assert topk(server, timeout=250).status_code == 200


@pytest.mark.parametrize("way", ["v1", "v2"])
def test_a_timeout_that_is_over_is_504_and_the_rest_is_not_computed(server, way):
    before = executions(server)[1]
    ask = topk(server, MANY, timeout=0.3) if way == "v1" else infer(server, MANY, timeout=MICROSECONDS // 10)
    assert "time was over" in refused(ask, 504).json()["error"]
    wait_until_held(server, lambda rows: rows == 0)
    assert infer(server, 1).status_code == 200
    assert executions(server)[1] - before < MANY
    assert 'code="504"' in server.http.get("/metrics").text


def test_a_request_whose_time_is_over_when_it_comes_is_not_computed_at_all(server):
    assert infer(server, 1).status_code == 200
    before = executions(server)
    refused(infer(server, 50, timeout=1), 504)
    refused(topk(server, 50, timeout=1e-6), 504)
    assert infer(server, 1).status_code == 200
    assert executions(server) == (before[0] + 1, before[1] + 1)


def test_a_time_that_is_over_is_504_however_busy_the_server_is(server):
    with busy(server):
        refused(infer(server, 1, timeout=1), 504)


def test_the_servers_own_timeout(repository):
    with RunningServer(repository, "--request-timeout", "0.02") as server:
        refused(infer(server, 4000), 504)
        assert infer(server, 1, timeout=60 * MICROSECONDS).status_code == 200


def test_empty_requests_beside_a_long_batch_harm_nobody(repository):
    empty = {"model": "slow", "contexts": [], "k": 1}
    with RunningServer(repository, "--batch-rows", "4096", *PATIENT) as server, busy(server, 4000) as running:
        statuses = set()
        while not running.done():
            statuses.add(server.http.post("/v1/topk", json=empty).status_code)
            time.sleep(0.02)
        assert statuses == {200}


def test_a_length_over_the_limit_is_413_before_the_body_is_sent(server):
    for expect in ({}, {"Expect": "100-continue"}):
        with connect(server) as connection:
            connection.sendall(head_of(Content_Length=4_000_001, **expect))
            status, _, body = answer_on(connection)
        assert status == 413
        assert "4000000" in json.loads(body)["error"]


def test_a_body_that_is_waited_for_is_asked_for(server):
    body, headers = binary(ROWS[:1])
    names = {LENGTH.replace("-", "_"): headers[LENGTH]}
    with connect(server) as connection:
        connection.sendall(head_of(Content_Length=len(body), Expect="100-continue", **names))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert answer_on(connection)[0] == 200


def test_chunks_over_the_limit_are_413(server):
    for path in (INFER, "/v1/topk", "/v2/repository/index"):
        with connect(server) as connection:
            connection.sendall(head_of(path, Transfer_Encoding="chunked"))
            for _ in range(5):
                connection.sendall(b"f4240\r\n" + b" " * 1_000_000 + b"\r\n")
            status, _, body = answer_on(connection)
        assert (status, set(json.loads(body))) == (413, {"error"})


@pytest.mark.parametrize("bomb", ["gzip", "deflate"])
def test_a_bomb_is_413(server, bomb):
    body = gzip.compress(bytes(64 << 20))
    if bomb == "deflate":
        refused(server.http.post(INFER, content=body, headers={"Content-Encoding": bomb}), 400)
        return
    refused(server.http.post(INFER, content=body, headers={"Content-Encoding": bomb}), 413)
    assert infer(server, 1).status_code == 200


@pytest.mark.parametrize("path", [INFER, "/v1/topk", "/v1/score"])
def test_a_body_that_does_not_come_is_408(server, path):
    with connect(server) as connection:
        connection.sendall(head_of(path, Content_Length=1000) + b"{")
        assert infer(server, 1).status_code == 200
        status, _, body = answer_on(connection)
    assert status == 408
    assert "did not come within 2 s" in json.loads(body)["error"]
    assert held(server, "bytes") == 0


def test_a_body_of_an_operators_question_that_does_not_come_is_408(server):
    with connect(server) as connection:
        connection.settimeout(20)
        connection.sendall(head_of("/v2/repository/index", Content_Length=1000) + b"{")
        assert answer_on(connection)[0] == 408


def test_a_body_that_drips_is_408_and_the_connection_is_good_again(server):
    body, headers = binary(ROWS[:1])
    with connect(server) as connection:
        connection.sendall(head_of("/v1/topk", Content_Length=30))
        for _ in range(10):
            connection.sendall(b" ")
            time.sleep(0.4)
        assert answer_on(connection)[0] == 408
        connection.sendall(b" " * 20)
        names = {LENGTH.replace("-", "_"): headers[LENGTH]}
        connection.sendall(head_of(Content_Length=len(body), **names) + body)
        assert answer_on(connection)[0] == 200


def sent(server, rows=MANY, **parameters):
    """A connection on which a whole request was sent."""
    body, headers = binary(ROWS[:rows], **parameters)
    connection = connect(server)
    connection.sendall(head_of(Content_Length=len(body), **{LENGTH.replace("-", "_"): headers[LENGTH]}) + body)
    return connection


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
def test_a_client_that_vanishes_frees_its_rows_and_is_not_computed_further(server, how):
    before = executions(server)[1]
    connection = sent(server)
    wait_until_held(server, lambda rows: rows >= MANY)
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    if how == "half-close":
        connection.shutdown(socket.SHUT_WR)
        assert infer(server, 1).status_code == 200
    connection.close()
    wait_until_held(server, lambda rows: rows == 0)
    assert executions(server)[1] - before < MANY
    assert infer(server, 1).status_code == 200


def test_clients_that_vanish_while_they_wait_free_their_place(server):
    before = executions(server)[1]
    with busy(server):
        gone = [sent(server, 5, priority=9) for _ in range(2)]
        wait_until_held(server, lambda rows: rows == MANY + 10)
        for connection in gone:
            connection.close()
        wait_until_held(server, lambda rows: rows <= MANY)
        assert infer(server, 10).status_code == 200
    assert executions(server)[1] - before == MANY + 10


def test_bodies_that_are_cut_off_hold_nothing(server):
    for length in (1000, 1_000_000):
        with connect(server) as connection:
            connection.sendall(head_of(Content_Length=length) + b"x" * 500)
            wait_until_held(server, lambda held: held > 0, "bytes")
    wait_until_held(server, lambda held: held == 0, "bytes")


def test_lower_priority_values_go_first(server):
    order, lock = [], threading.Lock()

    def ask(priority, rows):
        with httpx.Client(base_url=server.url) as http:
            body, headers = binary(ROWS[:rows], priority=priority)
            assert http.post(INFER, content=body, headers=headers, timeout=300).status_code == 200
        with lock:
            order.append(priority)

    with ThreadPoolExecutor(3) as pool:
        running = []
        for total, (priority, rows) in zip((2000, 2400, 2800), ((5, 2000), (9, 400), (0, 400)), strict=True):
            running.append(pool.submit(ask, priority, rows))
            wait_until_held(server, lambda held, total=total: held >= total)
        for each in running:
            each.result()
    assert order == [0, 5, 9]


def test_a_single_row_does_not_wait_for_the_whole_of_a_large_request(server):
    with busy(server) as running:
        assert infer(server, 1).status_code == 200
        assert not running.done()


def test_every_answer_under_load_is_its_own(server):
    rows = [ROWS[i : i + 7] for i in range(0, 280, 7)]
    whole = infer(server, 280, k=3)
    expected = ids_of(whole).reshape(40, 7, 3)

    def ask(i):
        body, headers = binary(rows[i], k=3)
        return ids_of(http.post(INFER, content=body, headers=headers, timeout=300)).reshape(7, 3)

    with httpx.Client(base_url=server.url) as http, ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(40)))
    np.testing.assert_array_equal(found, expected)


def ids_of(response):
    assert response.status_code == 200, response.text
    start = int(response.headers[LENGTH])
    entry = json.loads(response.content[:start])["outputs"][0]
    return np.frombuffer(response.content[start:], np.int64, int(np.prod(entry["shape"])))


VALID = head_of("/v1/topk", Content_Length=2) + b"{}"


def garbage():
    """Bytes that are no HTTP, or nearly."""
    source = random.Random(1)
    yield from (source.randbytes(source.randrange(1, 500)) for _ in range(20))
    for _ in range(30):
        mutated = bytearray(VALID)
        for _ in range(source.randrange(1, 6)):
            mutated[source.randrange(len(mutated))] = source.randrange(256)
        yield bytes(mutated)
    yield from (VALID[:i] for i in range(0, len(VALID), 7))
    yield head_of(Content_Length="-5")
    yield head_of(Content_Length="1, 2")
    yield head_of(Content_Length=5, Transfer_Encoding="chunked") + b"zz\r\n"
    yield head_of(Transfer_Encoding="chunked") + b"fffffffffffffffff\r\n"
    yield b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"GET / HTTP/1.1\r\n" + b"A: " + b"b" * 200_000 + b"\r\n\r\n"
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)


def test_garbage_and_half_closed_connections_hurt_nobody(server):
    for content in garbage():
        with connect(server) as connection:
            try:
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            except OSError:
                continue
            status = answer.split(b" ")[1:2]
            assert not status or not status[0].startswith(b"5") or status[0] in (b"501", b"503"), (content, answer)
    assert infer(server, 1).status_code == 200
    assert (held(server), held(server, "bytes")) == (0, 0)
    assert not any("Traceback" in line for line in server.log)


METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")


def test_every_failure_is_one_sentence_on_every_route(server):
    paths = server.http.get("/openapi.json").json()["paths"]
    assert INFER.replace("slow", "{name}") in paths
    for path, operations in paths.items():
        asked = path.replace("{name}", "nope").replace("{version}", "9").replace("{region}", "nope")
        for method in METHODS:
            response = server.http.request(method, asked, content=b"[" if method == "POST" else None)
            known = method.lower() in operations
            assert (response.status_code == 405) == (not known), (method, asked)
            if response.status_code != 200:
                refused(response, response.status_code)
                assert response.status_code < 500, (method, asked, response.text)
        refused(server.http.get(asked + "/x/y/z"), 404)
    for path in ("/", "/v1", "/v3", "/%00", "/v2/models/%FF/infer", "/v1/topk?x=%FF", "//v1/topk"):
        response = server.http.get(path)
        assert refused(response, response.status_code).status_code in (404, 405)


def test_names_in_sentences_stay_on_one_line(server):
    refused(server.http.get("/v2/models/a%0Ab"), 404)
    refused(server.http.post("/v2/models/a%0Ab/infer", content=b"{}"), 404)


def test_a_client_that_never_reads_is_cut_off(server):
    body, headers = binary(ROWS[:40], k=CLASSES, binary_data_output=False)
    told = [f"POST {INFER} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *map(": ".join, headers.items())]
    address = httpx.URL(server.url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((address.host, address.port))
        client.sendall("\r\n".join([*told, "", ""]).encode() + body)
        time.sleep(4)  # twice the server's patience
        client.settimeout(10)
        assert received(client) < 20_000_000  # of 26
    assert infer(server, 1).status_code == 200


def received(client):
    """Bytes until the other side closes, or resets."""
    total = 0
    with suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            total += len(part)
    return total
