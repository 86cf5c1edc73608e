"""Connections that end too early or carry something else, over every transport."""

from __future__ import annotations

import json
import time
import zlib
from contextlib import ExitStack

import pytest
from shortlist import errors

from tests.support.servers.clients import CLOSE, KINDS, OWN_KINDS, RESET, ScriptedServer, open_client, respond

MODELS = respond(json.dumps({"models": []}).encode())
BODY = json.dumps({"models": []}).encode()
CHUNKS = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (BODY[:3], BODY[3:])) + b"0\r\nx-trailer: 1\r\n\r\n"


pytestmark = pytest.mark.slow


@pytest.fixture
def ask(tmp_path):
    """Starts a scripted server, and opens a client of it."""
    with ExitStack() as stack:

        def start(kind, script, **options):
            server = stack.enter_context(ScriptedServer(tmp_path, script))
            return stack.enter_context(open_client(kind, server, **options)), server

        yield start


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", [CLOSE, RESET])
def test_a_connection_that_was_closed_between_requests_is_replaced(ask, kind, end):
    client, server = ask(kind, lambda number: [MODELS, end] if number == 0 else [MODELS])
    assert client.models() == []
    time.sleep(0.1)
    assert client.models() == []
    assert [number for number, _, _ in server.requests] == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_a_kept_connection_loses_is_sent_again(ask, kind):
    client, server = ask(kind, lambda number: [CLOSE] if number == 1 else [MODELS])
    assert client.models() == client.models() == []
    assert [number for number, _, _ in server.requests] == [1, 1, 2]


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_a_request_that_new_connections_lose_is_sent_three_times(ask, kind):
    client, server = ask(kind, lambda _: [CLOSE])
    with pytest.raises(errors.Unreachable, match="connection closed without a whole answer"):
        client.models()
    assert len(server.requests) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", [CLOSE, RESET])
def test_a_server_that_ends_two_connections_answers_over_the_third(ask, kind, end):
    client, server = ask(kind, lambda number: [end] if number < 2 else [MODELS])
    assert client.models() == []
    assert len(server.requests) == 3


@pytest.mark.parametrize("kind", ["httpx", "async httpx"])
def test_a_connection_that_is_reset_is_named(ask, kind):
    client, server = ask(kind, lambda _: [RESET])
    with pytest.raises(errors.Unreachable, match=r"cannot be reached \(\S.*\): is the server running"):
        client.models()
    assert len(server.requests) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_response_that_is_cut_off_is_asked_for_again(ask, kind):
    client, server = ask(kind, lambda number: [MODELS[:-4], CLOSE] if number == 0 else [MODELS])
    assert client.models() == []
    assert len(server.requests) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_must_not_come_twice_is_sent_once(ask, kind):
    client, server = ask(kind, lambda number: [MODELS] if number == 0 else [CLOSE])
    client.models()
    with pytest.raises(errors.Unreachable):
        client.delete_lists("items")
    assert len(server.requests) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_items_without_a_sequence_number_are_sent_once(ask, kind):
    """The server makes them as often as they come: the second time over what another client has changed since."""
    client, server = ask(kind, lambda number: [CLOSE] if number == 0 else [respond(b"{}")])
    with pytest.raises(errors.Unreachable):
        client.put_items("lm", remove=["item-1"], source="feed")
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_items_with_a_sequence_number_are_sent_again(ask, kind):
    client, server = ask(kind, lambda number: [CLOSE] if number == 0 else [respond(b"{}")])
    assert client.put_items("lm", remove=["item-1"], source="feed", sequence=0) == {}
    assert len(server.requests) == 2


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_what_must_not_come_twice_goes_over_a_new_connection(ask, kind):
    client, server = ask(kind, lambda _: [MODELS])
    client.models()
    client.delete_lists("items")
    assert [number for number, _, _ in server.requests] == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + CHUNKS,
        b"HTTP/1.1 100 Continue\r\n\r\n" + MODELS,
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + MODELS,
        respond(BODY, Connection="close"),
        b"HTTP/1.0 200 OK\r\n" + MODELS.partition(b"\r\n")[2],
        respond(zlib.compress(BODY, wbits=31), content_encoding="gzip"),
        respond(zlib.compress(BODY), content_encoding="deflate"),
    ],
)
def test_responses_of_every_form(ask, kind, response):
    half = len(response) // 2
    client, _ = ask(kind, lambda number: [response] if number % 2 else [response[:half], 0.05, response[half:]])
    for _ in range(3):
        assert client.models() == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\nserver: x\r\n\r\n"])
def test_a_response_without_a_length_ends_with_the_connection(ask, kind, head):
    client, server = ask(kind, lambda _: [head + BODY[:4], 0.05, BODY[4:], CLOSE])
    assert client.models() == client.models() == []
    assert [number for number, _, _ in server.requests] == [1, 2]


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_a_connection_that_the_server_will_close_is_not_used_again(ask, kind):
    client, server = ask(kind, lambda _: [respond(BODY, Connection="close")])
    assert client.models() == client.models() == []
    assert [number for number, _, _ in server.requests] == [1, 2]


@pytest.mark.parametrize("kind", OWN_KINDS)
@pytest.mark.parametrize("extra", [respond(b"408", "408 Request Timeout"), b"\0"])
def test_what_nobody_asked_for_is_no_response_to_the_next_request(ask, kind, extra):
    for steps in ([MODELS + extra], [MODELS, 0.05, extra]):
        client, server = ask(kind, lambda _, steps=steps: steps)
        assert client.models() == []
        time.sleep(0.15)
        assert client.models() == []
        assert [number for number, _, _ in server.requests] == [1, 2]
        server.path.unlink()


@pytest.mark.parametrize("kind", OWN_KINDS)
@pytest.mark.parametrize(
    ("response", "words"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "something that is no HTTP response"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", "something that is no HTTP response"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", "something that is no HTTP response"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "a response's head of over 65536 bytes"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "no HTTP response"),
        (respond(b"x", content_encoding="br"), "encoding 'br', which was not asked for"),
        (respond(b"x", content_encoding="gzip"), "or is damaged"),
    ],
)
def test_what_is_no_response_is_named(ask, kind, response, words):
    client, _ = ask(kind, lambda _: [response])
    with pytest.raises(errors.Unreachable, match=words):
        client.models()


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_the_timeout_is_for_the_whole_response(ask, kind):
    client, server = ask(kind, lambda _: [piece for byte in MODELS for piece in (bytes([byte]), 0.02)], timeout=0.3)
    with pytest.raises(errors.Unreachable, match=r"within 0.3 s"):
        client.models()
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_that_timed_out_is_not_used_again(ask, kind):
    client, server = ask(kind, lambda number: [0.4, MODELS] if number == 0 else [MODELS], timeout=0.2)
    with pytest.raises(errors.Unreachable):
        client.models()
    assert client.models() == []
    assert [number for number, _, _ in server.requests] == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_before_the_body_came_is_read(ask, kind):
    refusal = respond(b'{"error": "no room"}', "413 Content Too Large", Connection="close")
    client, server = ask(kind, lambda _: [refusal], api_key="secret")
    with pytest.raises(errors.TooLarge, match="no room"):
        client.topk("lm", [[0.0] * 8], 1)
    assert b"authorization: bearer secret" in server.requests[0][1].lower()
