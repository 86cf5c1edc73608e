"""A deadline for all that one blocking request through httpx reads and writes: httpx's timeout is for each piece."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

PIECE_BYTES = 16 << 10  # written at a time, as TLS does


class Deadline(threading.local):
    """When the request must be answered that this thread sends, by the monotonic clock; None between requests."""

    moment: float | None = None

    @contextmanager
    def hold(self, moment: float) -> Iterator[None]:
        """Let what this thread does end at `moment`."""
        self.moment = moment
        try:
            yield
        finally:
            self.moment = None

    def limit(self, timeout: float | None) -> float | None:
        """The seconds that are left, at most `timeout`; raises httpx.ReadTimeout where none are."""
        if self.moment is None:
            return timeout
        left = self.moment - time.monotonic()
        if left <= 0:
            raise httpx.ReadTimeout("the whole response took too long")
        return left if timeout is None else min(left, timeout)


class LimitedStream:
    """A connection of httpcore, which reads and writes until the deadline alone."""

    def __init__(self, stream: Any, deadline: Deadline) -> None:
        self.stream, self.deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, once something has."""
        data: bytes = self.stream.read(max_bytes, self.deadline.limit(timeout))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of `buffer`, piece by piece: the other side may take them slowly."""
        view = memoryview(buffer)
        for start in range(0, len(view), PIECE_BYTES):
            self.stream.write(bytes(view[start : start + PIECE_BYTES]), self.deadline.limit(timeout))

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> Any:
        """The same connection with TLS."""
        secure = self.stream.start_tls(ssl_context, server_hostname, self.deadline.limit(timeout))
        return LimitedStream(secure, self.deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class LimitedBackend:
    """What httpcore opens connections by, each as a `LimitedStream`."""

    def __init__(self, backend: Any, deadline: Deadline) -> None:
        self.backend, self.deadline = backend, deadline

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> LimitedStream:
        """A connection to a host."""
        return LimitedStream(
            self.backend.connect_tcp(host, port, timeout=self.deadline.limit(timeout), **options), self.deadline
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


def open_transport(deadline: Deadline, verify: Any, proxy: str | None) -> httpx.HTTPTransport:
    """A transport of httpx whose connections keep to the deadline; raises what httpx does for a wrong proxy.

    httpx hides its pool, and httpcore what that connects by. Where a later version has other names for them, each
    read has the timeout, as without this.
    """
    transport = httpx.HTTPTransport(verify=verify, proxy=proxy, trust_env=False)
    pool = getattr(transport, "_pool", None)
    backend = getattr(pool, "_network_backend", None)
    if backend is not None:
        pool._network_backend = LimitedBackend(backend, deadline)  # type: ignore[union-attr]
    return transport
