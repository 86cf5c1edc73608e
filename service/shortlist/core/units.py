"""Factors between units of time."""

from __future__ import annotations

SECONDS_PER_MICROSECOND = 1e-6
MICROSECONDS_PER_SECOND = 1e6
NANOSECONDS_PER_SECOND = 1e9
