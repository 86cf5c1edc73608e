"""Addresses that clients ask from, and their names."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Sequence

from starlette.types import Scope

from shortlist.server.messages.headers import FORWARDED_FOR, RawHeaders
from shortlist.server.settings import Network

IPV6_PREFIX_BITS = 64  # that one network gives to one customer
MAX_KNOWN_ADDRESSES = 4096
UNIX_CLIENT = "unix"


class ClientAddresses:
    """Names clients by their addresses: of the connection, or where that is a proxy's, the one that the proxy names."""

    def __init__(self, proxies: Sequence[Network]) -> None:
        """proxies: networks whose X-Forwarded-For is believed."""
        self.proxies = proxies

    def __call__(self, headers: RawHeaders, address: str) -> str:
        """The name of the client that sent a request with these headers over a connection from `address`."""
        if not self.proxies:
            return name_address(address)
        forwarded = headers.get(FORWARDED_FOR, b"").decode("latin-1").split(",")
        hops = [address, *(strip_port(hop.strip()) for hop in reversed(forwarded) if hop.strip())]
        return name_address(next((hop for hop in hops if not self.is_proxy(hop)), hops[-1]))

    def is_proxy(self, address: str) -> bool:
        """Whether an address is one of a proxy that is believed."""
        number = parse_address(address)
        return number is not None and any(number in network for network in self.proxies)


def read_address(scope: Scope) -> str:
    """The address that a request's connection comes from; empty over a Unix socket."""
    address, _ = scope.get("client") or ("", 0)
    return str(address)


def strip_port(hop: str) -> str:
    """The address of a hop that may have a port, and of IPv6 brackets, as some proxies write it."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


@functools.lru_cache(MAX_KNOWN_ADDRESSES)
def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address; an IPv4 one that is written as IPv6 is what it stands for. None for what is no address."""
    try:
        number = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(number, "ipv4_mapped", None) or number


@functools.lru_cache(MAX_KNOWN_ADDRESSES)
def name_address(text: str) -> str:
    """The name of an address; the 2^64 of an IPv6 network, which one customer has, share one.

    Nothing is the address of who comes over a Unix socket.
    """
    number = parse_address(text)
    if number is None:
        return text or UNIX_CLIENT
    if number.version == 4:
        return str(number)
    return str(ipaddress.IPv6Network((number, IPV6_PREFIX_BITS), strict=False))
