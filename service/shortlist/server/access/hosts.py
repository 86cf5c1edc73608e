"""The hosts that requests may name, so that a web page of somebody else cannot make a browser ask this server.

A page of another site may post to any address (its `Origin` tells), and by DNS rebinding it may even pass for this
server under a name of its own (its `Host` tells). An address in place of a name cannot be rebound.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from shortlist.server.messages.headers import Headers
from shortlist.server.settings import LOCAL_NAME

ANY_HOST = "*"
ANY_NAME_BELOW = "*."
HOST_PATTERN = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:/@\[\]]+))(?::[0-9]{1,5})?")
DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class HostRules(NamedTuple):
    """Which hosts are fine, in lower case and without ports.

    names: those listed. endings: of names that are, as `.example.org`. own: the host that the server listens on. any:
    whether all are.
    """

    names: frozenset[str]
    endings: tuple[str, ...]
    own: str
    any: bool

    @classmethod
    def parse(cls, text: str, own: str) -> HostRules:
        """The rules of a setting, as `shortlist.example.org, *.internal`, for a server that listens on `own`."""
        entries = [entry.strip().lower() for entry in text.split(",") if entry.strip()]
        endings = tuple(entry[1:] for entry in entries if entry.startswith(ANY_NAME_BELOW))
        plain = {entry for entry in entries if not entry.startswith(ANY_HOST)}
        return cls(frozenset(plain), endings, own.lower(), ANY_HOST in entries)

    def lists(self, name: str) -> bool:
        """Whether a host is one of those listed."""
        return name in self.names or name.endswith(self.endings)

    def allow_host(self, value: bytes) -> bool:
        """Whether a request may come with this value of `Host`."""
        if self.any:
            return True
        name = read_host(value)
        return name is not None and (
            name in (self.own, LOCAL_NAME) or self.lists(name) or name.endswith(f".{LOCAL_NAME}") or is_address(name)
        )

    def allow_origin(self, value: bytes, host: bytes) -> bool:
        """Whether a page of the origin `value` may ask: one of this server, at `host`, or of a host that is listed."""
        scheme, separator, place = value.decode("latin-1").lower().partition("://")
        if not separator:  # as `null`, of a page without an origin
            return False
        port = DEFAULT_PORTS.get(scheme, "")
        own = host.decode("latin-1").lower()
        if own and place.removesuffix(port) == own.removesuffix(port):
            return True
        name = read_host(place.encode("latin-1"))
        return name is not None and self.lists(name)


def read_host(value: bytes) -> str | None:
    """The host of a `Host` header in lower case, without its port; None where it is none."""
    match = HOST_PATTERN.fullmatch(value.decode("latin-1").strip().lower())
    return None if match is None else match[1] or match[2].removesuffix(".")


def is_address(name: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def list_values(headers: Headers, name: bytes) -> list[bytes]:
    """Every value of a header."""
    return [value for key, value in headers if key == name]
