"""Heads are checked, and written again without the wish for another protocol."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.server.transport.head_rules import (
    MAX_HEADERS,
    HeadTooLarge,
    MalformedRequest,
    check_head,
    write_head_without_upgrade,
)

HOST = (b"host", b"x")


def test_the_length_of_the_body_is_found():
    assert check_head(b"POST", "1.1", [HOST, (b"content-length", b"17\t")]) == 17
    assert check_head(b"POST", "1.1", [HOST, (b"transfer-encoding", b"Chunked")]) == 0
    assert check_head(b"GET", "1.0", []) == 0


@pytest.mark.parametrize(
    ("method", "version", "headers"),
    [
        (b"GET", "1.1", []),
        (b"GET", "1.1", [HOST, HOST]),
        (b"GET", "1.1", [HOST, (b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")]),
        (b"POST", "1.1", [HOST, (b"content-length", b"1"), (b"content-length", b"1")]),
        (b"GET", "2.0", [HOST]),
        (b"CONNECT", "1.1", [HOST]),
        (b"POST", "1.1", [HOST, (b"transfer-encoding", b"gzip, chunked")]),
        (b"POST", "1.0", [(b"transfer-encoding", b"chunked")]),
        *((b"GET", "1.1", [(b"host", host)]) for host in (b"a b", b"a/b", b"a@b", b"[::1", b"a:b", b"\xff", b"a, b:1")),
    ],
)
def test_unclear_heads(method, version, headers):
    with pytest.raises(MalformedRequest):
        check_head(method, version, headers)


@pytest.mark.parametrize("host", [b"", b"a", b"a.b-c_d:80", b"127.0.0.1:8000", b"[::1]:80", b"[2001:db8::1]", b"a%20b"])
def test_hosts(host):
    assert check_head(b"GET", "1.1", [(b"host", host)]) == 0


def test_many_headers():
    headers = [HOST] + [(b"a", b"b")] * (MAX_HEADERS - 1)
    check_head(b"GET", "1.1", headers)
    with pytest.raises(HeadTooLarge):
        check_head(b"GET", "1.1", [*headers, (b"a", b"b")])


class Heads:
    """What the parser says of a head."""

    def __init__(self):
        self.headers, self.url = [], b""

    def on_url(self, url):
        self.url += url

    def on_header(self, name, value):
        self.headers.append((name.lower(), value))


def parse(head):
    heads = Heads()
    parser = httptools.HttpRequestParser(heads)
    parser.feed_data(head)
    return parser, heads


NAMES = st.sampled_from([b"host", b"connection", b"upgrade", b"x-a", b"content-length", b"http2-settings"])
VALUES = st.sampled_from([b"", b"h2c", b"Upgrade", b"upgrade, close", b"keep-alive , UPGRADE", b"x:80", b"a, b"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8))
def test_what_is_written_asks_for_no_other_protocol_and_says_all_else(headers):
    headers = [(name, b"7" if name == b"content-length" else value) for name, value in headers]
    if sum(name == b"content-length" for name, _ in headers) > 1:
        return
    parser, heads = parse(write_head_without_upgrade(b"POST", b"/a?b=%20", "1.1", headers))
    assert not parser.should_upgrade()
    assert (parser.get_method(), heads.url, parser.get_http_version()) == (b"POST", b"/a?b=%20", "1.1")
    others = [header for header in headers if header[0] not in (b"connection", b"upgrade")]
    assert [header for header in heads.headers if header[0] != b"connection"] == others
    tokens = b",".join(value for name, value in heads.headers if name == b"connection").lower()
    assert b"upgrade" not in tokens
    assert (b"close" in tokens) == any(b"close" in value for name, value in headers if name == b"connection")
