"""What requests are called: by their clients, by proxies, and by nobody."""

from __future__ import annotations

import logging

import pytest
from shortlist.errors import BadInput
from shortlist.server.messages.request_ids import RequestIds, read_request_ids
from shortlist.server.messages.responses import make_error_response

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("headers", "ids"),
    [
        ({}, RequestIds()),
        ({b"x-request-id": b"a-1_B.2"}, RequestIds("a-1_B.2")),
        ({b"x-request-id": b" a "}, RequestIds("a")),
        ({b"x-request-id": b""}, RequestIds()),
        ({b"x-request-id": b"a b"}, RequestIds()),
        ({b"x-request-id": b"a\xe9"}, RequestIds()),
        ({b"x-request-id": b"a" * 129}, RequestIds()),
        ({b"traceparent": PARENT.encode()}, RequestIds("", TRACE)),
        ({b"traceparent": b"01" + PARENT[2:].encode() + b"-more"}, RequestIds("", TRACE)),
        ({b"traceparent": b"ff" + PARENT[2:].encode()}, RequestIds()),
        ({b"traceparent": PARENT.upper().encode()}, RequestIds()),
        ({b"traceparent": PARENT.replace(TRACE, "0" * 32).encode()}, RequestIds()),
        ({b"traceparent": b"00-1-2-3"}, RequestIds()),
        ({b"x-request-id": b"7", b"traceparent": PARENT.encode()}, RequestIds("7", TRACE)),
    ],
)
def test_ids_are_those_of_the_headers_and_forge_nothing(headers, ids):
    assert read_request_ids(headers) == ids


@pytest.mark.parametrize(
    ("ids", "name"), [(RequestIds("7", TRACE), "7"), (RequestIds("", TRACE), TRACE), (RequestIds(), None)]
)
def test_an_unforeseen_error_is_found_in_the_log_by_what_the_client_knows(ids, name, caplog):
    response = make_error_response(ValueError("never shown"), ids)
    assert response.status == 500
    given = dict(response.headers)[b"x-request-id"].decode()
    assert name is None or given == name
    assert len(given) >= 1
    assert given.encode() in response.content
    assert b"never shown" not in response.content
    (record,) = caplog.records
    assert given in record.getMessage()
    assert record.exc_info is not None


def test_other_errors_repeat_the_id_that_came(caplog):
    caplog.set_level(logging.DEBUG, "shortlist")
    assert dict(make_error_response(BadInput("no"), RequestIds("7", TRACE)).headers)[b"x-request-id"] == b"7"
    assert "request 7" in caplog.text
    assert TRACE in caplog.text
    assert b"x-request-id" not in dict(make_error_response(BadInput("no")).headers)
