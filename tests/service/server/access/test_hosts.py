"""Which hosts and origins a request may name."""

from __future__ import annotations

import pytest
from shortlist.server.access.hosts import HostRules, read_host

LOCAL = HostRules.parse("", "127.0.0.1")
NAMED = HostRules.parse("shortlist.example.org, *.internal", "0.0.0.0")
ANY = HostRules.parse("*", "0.0.0.0")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (b"localhost", "localhost"),
        (b"LOCALHOST:8000", "localhost"),
        (b"localhost.", "localhost"),
        (b"[::1]:8000", "::1"),
        (b"127.0.0.1:8000", "127.0.0.1"),
        (b"", None),
        (b"a b", None),
        (b"evil.example/@localhost", None),
        (b"user@localhost", None),
        (b"localhost:8000:8000", None),
        (b"localhost:http", None),
        (b"[::1", None),
        (b"\xff", "\u00ff"),
    ],
)
def test_a_host_is_read_without_its_port(host, name):
    assert read_host(host) == name


@pytest.mark.parametrize("host", [b"localhost:8000", b"api.localhost", b"127.0.0.1", b"10.1.2.3:8000", b"[::1]:8000"])
def test_local_names_and_addresses_are_always_fine(host):
    assert LOCAL.allow_host(host)
    assert NAMED.allow_host(host)


@pytest.mark.parametrize(
    "host", [b"evil.example", b"localhost.evil.example", b"evillocalhost", b"127.0.0.1.evil.example", b"x", b"", b"*"]
)
def test_other_names_are_refused(host):
    assert not LOCAL.allow_host(host)
    assert not NAMED.allow_host(host)
    assert ANY.allow_host(host)


def test_names_that_are_listed():
    for host in (b"shortlist.example.org", b"Shortlist.Example.Org:443", b"a.internal", b"a.b.internal:80"):
        assert NAMED.allow_host(host)
    for host in (b"internal", b"example.org", b"x.shortlist.example.org", b"evilinternal"):
        assert not NAMED.allow_host(host)


@pytest.mark.parametrize("rules", [LOCAL, NAMED, ANY])
def test_a_page_of_this_server_may_ask_and_others_may_not(rules):
    assert rules.allow_origin(b"http://127.0.0.1:8000", b"127.0.0.1:8000")
    assert rules.allow_origin(b"https://LOCALHOST", b"localhost:443")
    assert rules.allow_origin(b"http://localhost:80", b"localhost")
    for origin in (
        b"null",
        b"",
        b"http://evil.example",
        b"http://localhost:3000",
        b"file://",
        b"http://127.0.0.1:8001",
    ):
        assert not rules.allow_origin(origin, b"127.0.0.1:8000")
        assert not rules.allow_origin(origin, b"")


def test_pages_of_a_host_that_is_listed_may_ask():
    assert NAMED.allow_origin(b"https://shortlist.example.org", b"127.0.0.1:8000")
    assert NAMED.allow_origin(b"http://dashboard.internal:3000", b"127.0.0.1:8000")
    assert not NAMED.allow_origin(b"http://evil.example", b"shortlist.example.org")
