"""URLs of servers."""

from __future__ import annotations

import pytest
from shortlist.client.transport.address import Address, hide_password
from shortlist.errors import BadInput


@pytest.mark.parametrize(
    ("url", "host_header", "folder"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", ""),
        ("http://Example.org/", "example.org", ""),
        ("http://example.org.:80/lm/", "example.org.", "/lm"),
        ("http://[::1]:8000", "[::1]:8000", ""),
        ("http://bücher.example", "xn--bcher-kva.example", ""),
        ("https://example.org:443/a", "example.org", "/a"),
        ("http://h/a b/ä%20?x", "h", "/a%20b/%C3%A4%20"),
        ("unix:///run/shortlist.sock", "localhost", ""),
    ],
)
def test_what_requests_say(url, host_header, folder):
    address = Address.parse(url)
    assert (address.host_header, address.folder) == (host_header, folder)


def test_paths_of_sockets_are_quoted():
    address = Address.parse("unix:///run/a%20b%23.sock")
    assert (address.is_unix, address.path) == (True, "/run/a b#.sock")


@pytest.mark.parametrize(
    "url",
    ["", "x", "http://a b", "ftp://x", "http://", "http://:80", "http://h:port", "http://h:0", "http://h:65536", "http://a..b",
     f"http://{'a' * 64}.b", "http://[::1", "unix:", "unix:///", "unix://host/x.sock", "unix:x.sock", "unix:///x?y"],
)  # fmt: skip
def test_no_address(url):
    with pytest.raises(BadInput, match=r"is no address of a server: write it as http://host:port or unix:///path"):
        Address.parse(url)


def test_credentials_are_seen():
    assert Address.parse("http://user:word@host").has_user
    assert not Address.parse("http://host").has_user


@pytest.mark.parametrize(("url", "shown"), [
    ("http://user:p@ss:word@host:8000/lm@x?a:b@c", "http://user:***@host:8000/lm@x?a:b@c"),
    ("http://host:8000/lm@stable", "http://host:8000/lm@stable"),
    ("http://user@host", "http://user@host"),
    ("unix:///run/a:b@c.sock", "unix:///run/a:b@c.sock"),
    (5, "5"),
])  # fmt: skip
def test_errors_show_no_passwords(url, shown):
    assert hide_password(url) == shown


def test_what_is_no_address_is_shown_without_its_password():
    with pytest.raises(BadInput, match=r"^'http://user:\*\*\*@host:99999' is no address of a server"):
        Address.parse("http://user:word@host:99999")
