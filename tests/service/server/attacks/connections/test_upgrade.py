"""Requests that ask for another protocol keep their body: it is never taken for a request of its own."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess

import pytest

from tests.service.server.attacks.wire import (
    ROWS,
    connect,
    converse,
    infer,
    read_responses,
    request,
    statuses,
    topk,
    topk_body,
)

pytestmark = pytest.mark.slow

UPGRADE = ("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAARAAAAA")
SMUGGLED = request("/v2/repository/models/dense/unload", b"{}")


def test_a_request_in_the_body_is_not_executed(server):
    head, _, _ = request("/v1/topk", SMUGGLED, "Upgrade: foo", "Connection: Upgrade").partition(b"\r\n\r\n")
    assert statuses(converse(server, head + b"\r\n\r\n", SMUGGLED)) == [400]
    assert statuses(converse(server, head + b"\r\n\r\n" + SMUGGLED)) == [400]
    index = server.http.post("/v2/repository/index").json()
    assert {entry["name"]: entry["state"] for entry in index} == {"lm": "READY", "dense": "READY"}


@pytest.mark.parametrize("connection", ["Upgrade", "upgrade, keep-alive", "keep-alive,  UPGRADE ,HTTP2-Settings"])
def test_upgrades_are_ignored(server, connection):
    plain, wishful = topk(), topk("Upgrade: h2c", f"Connection: {connection}")
    expected = converse(server, plain).partition(b"\r\n\r\n")[2]
    for cuts in ((), (3,), (len(wishful) - 100,), tuple(range(0, len(wishful), 7))):
        marks = [0, *cuts, len(wishful)]
        parts = [wishful[start:end] for start, end in itertools.pairwise(marks)]
        content = converse(server, *parts, pause=0.005)
        assert statuses(content) == [200]
        assert content.endswith(expected)


def test_requests_after_an_upgrade_are_answered_in_order(server):
    asks = [infer(ROWS[:1], *UPGRADE, k=k) for k in (1, 2, 3, 4)]
    with connect(server) as connection:
        connection.sendall(b"".join(asks) + topk(k=5))
        responses = read_responses(connection)
        for k in (1, 2, 3, 4):
            status, body = next(responses)
            assert (status, f'"shape":[1,{k}]'.encode() in body) == (200, True)
        assert len(json.loads(next(responses)[1])["ids"][0]) == 5


def test_an_upgrade_in_chunks(server):
    body = topk_body()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:])) + b"0\r\n\r\n"
    head = request("/v1/topk", b"", "Transfer-Encoding: chunked", *UPGRADE)
    assert statuses(converse(server, head, chunks, topk())) == [200, 200]


def test_tunnels_are_refused(server):
    content = converse(server, b"CONNECT x:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n" + SMUGGLED)
    assert statuses(content) == [400]
    assert b"CONNECT" in content


def test_no_line_of_the_log_for_each(server):
    before = len(server.log)
    for _ in range(20):
        converse(server, topk(*UPGRADE), pause=0)
    assert [line for line in server.log[before:] if "CONNECT" not in line] == []  # of an earlier test, read late


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_that_would_like_http_2(server):
    command = ["curl", "-s", "--http2", "-d", topk_body().decode(), f"{server.url}/v1/topk"]
    process = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert len(json.loads(process.stdout)["ids"][0]) == 3


JAVA = """
import java.net.URI;
import java.net.http.*;

public class Ask {
    public static void main(String[] arguments) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
            .POST(HttpRequest.BodyPublishers.ofString(arguments[1])).build();
        HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(response.statusCode() + " " + response.body());
    }
}
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
def test_javas_client_with_its_defaults(server, tmp_path):
    source = tmp_path / "Ask.java"
    source.write_text(JAVA)
    command = ["java", str(source), f"{server.url}/v1/topk", topk_body().decode()]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if process.returncode:
        pytest.skip(f"this Java runs no source: {process.stderr.strip()[-200:]}")
    assert process.stdout.startswith("200 ")
