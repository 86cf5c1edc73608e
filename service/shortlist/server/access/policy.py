"""The policy of one server: whether a request's host, origin and API key permit what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from shortlist.core.checks import cut
from shortlist.errors import Forbidden, ShortlistError, Unauthorized
from shortlist.server.messages.headers import AUTHORIZATION, HOST, Headers, RawHeaders
from shortlist.server.settings import Settings

from .hosts import ANY_HOST, HostRules, list_values
from .keys import ALL_ROLES, Key, KeyRing, Role, read_keys

ORIGIN = b"origin"
BEARER = b"bearer"
REFUSAL_REASONS = ("host", "origin", "key", "role", "connections", "malformed")  # the last two are the transport's


class Counter(Protocol):
    """What counts refusals for one reason."""

    def inc(self) -> None:
        """Count one."""


class Refusal(NamedTuple):
    """Why a request is refused: one of `REFUSAL_REASONS`, and the error to answer with."""

    reason: str
    error: ShortlistError


class AccessPolicy:
    """Who may do what. keys: those known, None where the server wants none; `reload` replaces them."""

    def __init__(self, settings: Settings, counters: Mapping[str, Counter]) -> None:
        """counters: of refusals, by reason. Raises BadInput where the keys cannot be read."""
        self.settings, self.counters = settings, counters
        default = "" if settings.is_local else ANY_HOST
        hosts = default if settings.allowed_hosts is None else settings.allowed_hosts
        self.hosts = HostRules.parse(hosts, settings.host)
        # without keys, changes are for those on this machine
        self.anonymous_roles = ALL_ROLES if settings.is_local else ALL_ROLES - {Role.ADMINISTER}
        self.keys: KeyRing | None = None
        self.reload()

    def reload(self) -> None:
        """Read the keys again; raises BadInput, and those in force stay then."""
        secret = self.settings.api_keys
        self.keys = read_keys(self.settings.api_keys_file, None if secret is None else secret.get_secret_value())

    def check_site(self, headers: Headers) -> None:
        """Raise Forbidden where a request's host or origin is not permitted."""
        self.enforce(self.find_site_refusal(headers))

    def check_role(self, headers: RawHeaders, *roles: Role) -> None:
        """Raise Unauthorized or Forbidden unless a request's key has one of `roles`."""
        self.enforce(self.find_role_refusal(headers, *roles))

    def enforce(self, refusal: Refusal | None) -> None:
        """Count and raise a refusal, if there is one."""
        if refusal is not None:
            self.counters[refusal.reason].inc()
            raise refusal.error

    def permits(self, headers: Headers, *roles: Role) -> bool:
        """Whether a request would be let through, by its site and its key."""
        return self.find_site_refusal(headers) is None and self.find_role_refusal(dict(headers), *roles) is None

    def find_site_refusal(self, headers: Headers) -> Refusal | None:
        """Why a request's `Host` or `Origin` is refused, or None."""
        hosts = list_values(headers, HOST)
        for host in hosts:
            if not self.hosts.allow_host(host):
                name = cut(host.decode("latin-1"))
                return Refusal("host", Forbidden(f"host '{name}' is not served here: add it with --allowed-hosts"))
        for origin in list_values(headers, ORIGIN):
            if not self.hosts.allow_origin(origin, hosts[-1] if hosts else b""):
                page = cut(origin.decode("latin-1"))
                error = Forbidden(f"pages of '{page}' may not ask this server: add its host with --allowed-hosts")
                return Refusal("origin", error)
        return None

    def find_role_refusal(self, headers: RawHeaders, *roles: Role) -> Refusal | None:
        """Why a request's key does not permit what any of `roles` permits, or None."""
        if self.keys is None:
            return None if not self.anonymous_roles.isdisjoint(roles) else Refusal("role", make_anonymous_error())
        secret = read_bearer(headers)
        if secret is None:
            error = Unauthorized("this server wants an API key: send it as `Authorization: Bearer KEY`")
            return Refusal("key", error)
        key = self.keys.find(secret)
        if key is None:
            return Refusal("key", Unauthorized("the API key is not known: check it, or ask who runs the server"))
        if key.roles.isdisjoint(roles):
            wanted = " or ".join(roles)
            return Refusal("role", Forbidden(f"the API key '{key.name}' may not do this: it wants the role {wanted}"))
        return None

    def find_key(self, headers: RawHeaders) -> Key | None:
        """The known key that a request was sent with, None where there is none or the server wants none."""
        if self.keys is None:
            return None
        secret = read_bearer(headers)
        return None if secret is None else self.keys.find(secret)


def make_anonymous_error() -> Forbidden:
    """The error of who may not change a server without keys that other machines reach."""
    return Forbidden("a server that other machines reach is administered with an API key: give it --api-keys-file")


def read_bearer(headers: RawHeaders) -> bytes | None:
    """The bearer token of a request, None where it has none."""
    scheme, _, token = headers.get(AUTHORIZATION, b"").partition(b" ")
    return token.strip() if scheme.lower() == BEARER else None
