"""Headers that differ in every request and that nothing here reads, such as those of tracing.

A proxy or a client with tracing puts one into every request, so that no two heads are equal but for them.
"""

from __future__ import annotations

import re

PASSING_NAMES = (
    "b3",
    "baggage",
    "traceparent",
    "tracestate",
    "uber-trace-id",
    "x-amzn-trace-id",
    "x-b3-[a-z]+",
    "x-client-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-datadog-[a-z-]+",
    "x-envoy-[a-z-]+",
    "x-ot-span-context",
    "x-request-id",
    "x-request-start",
)
# The value as the parser takes it: what it would refuse is no match, and is left to it.
PASSING_LINE = re.compile(rb"\r\n(?:%b):[\t\x20-\x7e\x80-\xff]*(?=\r\n)" % "|".join(PASSING_NAMES).encode(), re.I)


def read_passing_headers(head: bytes) -> dict[bytes, bytes]:
    """The same headers, by names in lower case; of a name that comes twice the last value."""
    lines = (line.strip().partition(b":") for line in PASSING_LINE.findall(head))
    return {name.lower(): value.strip() for name, _, value in lines}


def drop_passing_headers(head: bytes) -> bytes:
    """The same head of a request without these headers."""
    return PASSING_LINE.sub(b"", head)
