"""Clients are named by their addresses, or by what proxies that are trusted say of them."""

from __future__ import annotations

import pytest
from shortlist.server.access.clients import ClientAddresses, name_address, read_address
from shortlist.server.settings import parse_networks

PROXIES = parse_networks("127.0.0.1, 10.0.0.0/8, fd00::/8")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", "unix"),
        ("no address", "no address"),
    ],
)
def test_names_of_addresses(address, name):
    assert name_address(address) == name


@pytest.mark.parametrize(
    ("address", "forwarded", "name"),
    [
        ("8.8.8.8", b"1.2.3.4", "8.8.8.8"),
        ("127.0.0.1", b"1.2.3.4", "1.2.3.4"),
        ("127.0.0.1", b"9.9.9.9, 1.2.3.4", "1.2.3.4"),
        ("127.0.0.1", b"9.9.9.9, 1.2.3.4, 10.0.0.7", "1.2.3.4"),
        ("fd00::5", b" 2001:db8::1 ,10.0.0.7", "2001:db8::/64"),
        ("127.0.0.1", b"10.0.0.9, 10.0.0.7", "10.0.0.9"),
        ("127.0.0.1", b"1.2.3.4:40001", "1.2.3.4"),
        ("127.0.0.1", b"[2001:db8::1]:40001, [fd00::9]", "2001:db8::/64"),
        ("127.0.0.1", b"8.8.8.8, 10.0.0.7:80", "8.8.8.8"),
        ("127.0.0.1", b"nonsense", "nonsense"),
        ("127.0.0.1", b"", "127.0.0.1"),
        ("127.0.0.1", None, "127.0.0.1"),
    ],
)
def test_forwarded_addresses(address, forwarded, name):
    headers = {} if forwarded is None else {b"x-forwarded-for": forwarded}
    assert ClientAddresses(PROXIES)(headers, address) == name
    assert ClientAddresses(())(headers, address) == name_address(address)


@pytest.mark.parametrize(
    ("scope", "address"), [({"client": ("1.2.3.4", 5)}, "1.2.3.4"), ({"client": None}, ""), ({}, "")]
)
def test_addresses_of_connections(scope, address):
    assert read_address(scope) == address
