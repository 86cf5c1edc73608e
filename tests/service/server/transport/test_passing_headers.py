"""Headers that differ in every request are left out of what is compared, and nothing else is."""

from __future__ import annotations

import pytest
from shortlist.server.transport.passing_headers import drop_passing_headers, read_passing_headers

HEAD = b"POST /v1/topk HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n"


@pytest.mark.parametrize(
    "line",
    [
        b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"TraceState: a=1,b=2",
        b"X-Request-ID:",
        b"x-b3-TraceId: 1",
        b"b3:\t1",
        b"X-Datadog-Trace-Id: 1",
        b"baggage: k=\xc3\xbc",
    ],
)
def test_passing_headers_are_dropped_wherever_they_stand(line):
    for behind in (b"HTTP/1.1", b"Host: x", b"Content-Length: 7"):
        assert drop_passing_headers(HEAD.replace(behind, behind + b"\r\n" + line)) == HEAD
    assert drop_passing_headers(HEAD.replace(b"Host: x", line + b"\r\nHost: x\r\n" + line)) == HEAD


@pytest.mark.parametrize(
    "line",
    [
        b"X-Forwarded-For: 1.2.3.4",
        b"Authorization: Bearer x",
        b"traceparents: 1",
        b"x-traceparent: 1",
        b"traceparent : 1",
        b"traceparent: \x00",
        b"traceparent: 1\r",
        b"traceparent: 1\n",
        b"X-Not: \ntraceparent: 1",
    ],
)
def test_others_are_kept(line):
    head = HEAD.replace(b"Host: x", b"Host: x\r\n" + line)
    assert drop_passing_headers(head) == head
    assert drop_passing_headers(HEAD) == HEAD


def test_they_are_read_by_name():
    head = HEAD.replace(b"Host: x", b"Host: x\r\nX-Request-ID:  7 \r\ntraceparent: 00-a-b-01\r\nAccept: y")
    assert read_passing_headers(head) == {b"x-request-id": b"7", b"traceparent": b"00-a-b-01"}
    assert read_passing_headers(HEAD) == {}
