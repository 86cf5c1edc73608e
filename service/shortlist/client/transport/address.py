"""Where a server is, taken from its URL."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from shortlist.errors import BadInput

PORTS = {"http": 80, "https": 443}
UNIX_SCHEME = "unix"
UNIX_HOST = "localhost"  # what a request over a Unix socket calls the server: a name that every server serves
PATH_MARKS = "/%:@!$&'()*+,;="  # that a path may hold as they are
MAX_LABEL_LENGTH = 63  # of a host's name, between its dots
PASSWORD = re.compile(r"(//[^/?#:]*:)[^/?#]*@")  # of a URL, with what stands before it


class Address(NamedTuple):
    """A server's address.

    scheme: http, https or unix. host: in ASCII, as name resolution takes it. path: of the socket in the file system
    where the scheme is unix, else the folder that all requests lie in, without a slash at its end. has_user: the URL
    holds credentials.
    """

    scheme: str
    host: str
    port: int
    path: str
    has_user: bool = False

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises BadInput for what is no URL of a server."""
        try:
            parts = urlsplit(url)
            if parts.scheme == UNIX_SCHEME:
                return parse_unix(url, parts)
            port, host = parts.port, encode_host(parts.hostname or "")
        except ValueError:  # a UnicodeError is one, too
            raise make_url_error(url) from None
        if parts.scheme not in PORTS or not host or port == 0:
            raise make_url_error(url)
        has_user = parts.username is not None
        folder = quote(parts.path.rstrip("/"), safe=PATH_MARKS)
        return cls(parts.scheme, host, port or PORTS[parts.scheme], folder, has_user)

    @property
    def is_unix(self) -> bool:
        """Whether the server listens on a Unix socket."""
        return self.scheme == UNIX_SCHEME

    @property
    def folder(self) -> str:
        """What the path of every request begins with."""
        return "" if self.is_unix else self.path

    @property
    def host_header(self) -> str:
        """The value of `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.is_unix or self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def parse_unix(url: str, parts: SplitResult) -> Address:
    """The address of unix:///path/of.sock; raises BadInput."""
    path = unquote(parts.path)
    if parts.netloc or parts.query or parts.fragment or not path.startswith("/") or path == "/" or "\0" in path:
        raise make_url_error(url)
    return Address(UNIX_SCHEME, UNIX_HOST, 0, path)


def encode_host(host: str) -> str:
    """A host's name in ASCII; raises ValueError for what is none, such as a..b."""
    labels = host.removesuffix(".").split(".")
    if not host.isprintable() or " " in host:
        raise ValueError("no name of a host")
    if host.isascii() and "" not in labels and max(map(len, labels)) <= MAX_LABEL_LENGTH:
        return host
    return host.encode("idna").decode()  # which refuses what is wrong; the codec takes milliseconds to import


def hide_password(url: object) -> str:
    """The URL as errors show it, which end up in logs."""
    return PASSWORD.sub(r"\1***@", str(url))


def make_url_error(url: object) -> BadInput:
    """The error for what is no URL of a server."""
    return BadInput(
        f"'{hide_password(url)}' is no address of a server: write it as http://host:port or unix:///path/of.sock"
    )
