"""When httpx carries requests: TLS, proxies, and credentials in the URL."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import shortlist
from shortlist.client.transport.through_httpx import AsyncHttpxTransport, HttpxTransport
from shortlist.client.transport.whole_timeout import Deadline, LimitedStream
from shortlist.errors import BadInput, Unreachable

from tests.support.servers.clients import ScriptedServer, open_client, respond

MODELS = respond(b'{"models": []}')


@pytest.mark.parametrize(("url", "options"), [
    ("https://host", {}), ("http://host", {"proxy": "http://proxy:1"}), ("http://user:word@host", {}),
])  # fmt: skip
def test_who_needs_it_gets_it(url, options):
    with shortlist.Client(url, **options) as client:
        assert isinstance(client.transport, HttpxTransport)
    assert isinstance(shortlist.AsyncClient(url, **options).transport, AsyncHttpxTransport)


def test_a_proxy_is_asked_for_the_whole_url(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://nobody.invalid:1")  # the environment names none
    with ScriptedServer(tmp_path, lambda _: [MODELS]) as server:
        with shortlist.Client("http://server.invalid/lm", proxy=server.url) as client:
            assert client.models() == []
        with shortlist.Client(server.url) as client:
            assert client.models() == []
        assert server.requests[0][1].startswith(b"GET http://server.invalid/lm/v1/models HTTP/1.1\r\n")
        assert server.requests[1][1].startswith(b"GET /v1/models HTTP/1.1\r\n")


def test_credentials_in_the_url_are_sent(tmp_path):
    with ScriptedServer(tmp_path, lambda _: [MODELS]) as server:
        with shortlist.Client(server.url.replace("//", "//user:word@")) as client:
            client.models()
        assert base64.b64encode(b"user:word") in server.requests[0][1]


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_credentials_in_the_url_are_in_no_error(kind):
    """Errors end up in logs."""
    nobody = SimpleNamespace(url="http://user:word@127.0.0.1:9")
    with (
        contextlib.closing(open_client(kind, nobody, timeout=2)) as client,
        pytest.raises(Unreachable, match=r"^http://user:\*\*\*@127\.0\.0\.1:9 cannot be reached") as caught,
    ):
        client.models()
    assert "word" not in str(caught.value)


@pytest.mark.parametrize("make", [shortlist.Client, shortlist.AsyncClient])
def test_a_wrong_proxy_is_refused(make):
    with pytest.raises(BadInput, match="proxy cannot be used"):
        make("http://host", proxy="ftp://proxy")
    with pytest.raises(BadInput, match="is a Unix socket"):
        make("unix:///x.sock", proxy="http://proxy:1")


def make_client(server):
    return shortlist.Client(server.url.replace("//", "//user:word@"))


LOOPS = """
import asyncio, sys, shortlist
client = shortlist.AsyncClient(sys.argv[1].replace("//", "//user:word@"))
async def run():
    return [await client.models() for _ in range(2)]
for _ in range(3):
    print(asyncio.run(run()))
asyncio.run(client.close())
"""


def test_one_event_loop_after_another(tmp_path):
    """In a process of its own: what belonged to a loop that is closed is nobody's to close, which is a warning."""
    with ScriptedServer(tmp_path, lambda _: [MODELS]) as server:
        process = subprocess.run(
            [sys.executable, "-c", LOOPS, server.url], capture_output=True, text=True, timeout=60, check=False
        )
        assert (process.stdout, process.returncode) == ("[[], []]\n" * 3, 0)
        assert [number for number, _, _ in server.requests] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("kind", ["httpx", "async httpx"])
@pytest.mark.parametrize("begin", [0, 20, len(MODELS) - 14])  # within the first line, a header, the body
def test_the_timeout_is_for_a_whole_response(tmp_path, kind, begin):
    """Each piece comes in time."""
    steps = [step for number in range(begin, len(MODELS)) for step in (0.05, MODELS[number : number + 1])]
    with (
        ScriptedServer(tmp_path, lambda _: [MODELS[:begin], *steps]) as server,
        contextlib.closing(open_client(kind, server, timeout=0.3)) as client,
    ):
        start = time.monotonic()
        with pytest.raises(Unreachable, match=r"did not answer within 0\.3 s"):
            client.models()
        assert time.monotonic() - start < 0.6


def test_a_request_that_follows_has_all_its_time(tmp_path):
    """On the same connection, and in another thread, which has a deadline of its own."""
    with ScriptedServer(tmp_path, lambda _: [0.2, MODELS]) as server, make_client(server) as client:
        client.transport.timeout = 0.3
        for _ in range(3):
            assert client.models() == []
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: client.models(), range(8))) == [[]] * 8


def test_large_requests_arrive_whole(tmp_path):
    values = np.arange(1_200_000, dtype=np.float32).reshape(3000, 400)
    with ScriptedServer(tmp_path, lambda _: [respond(b"{}", "400 Bad Request")]) as server:
        with make_client(server) as client, pytest.raises(BadInput):
            client.topk("lm", values, 1)
        assert server.requests[0][2].endswith(values.tobytes())


class SlowStream:
    """Takes every piece of a request after a while."""

    def __init__(self):
        self.pieces = []

    def write(self, buffer, timeout):
        assert 0 < timeout <= 0.2
        time.sleep(0.03)
        self.pieces.append(buffer)


def test_a_server_that_takes_a_request_slowly_is_given_up():
    stream, deadline, data = SlowStream(), Deadline(), bytes(range(256)) * 1024
    with deadline.hold(time.monotonic() + 0.2), pytest.raises(httpx.ReadTimeout):
        LimitedStream(stream, deadline).write(data, 0.2)
    assert 1 <= len(stream.pieces) <= 7
    assert data.startswith(b"".join(stream.pieces))
