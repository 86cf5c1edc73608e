"""Interleaved timing, by the same code as `shortlist tune`: see `shortlist_exporter.core.timing`."""

from __future__ import annotations

from shortlist_exporter.core.timing import Call, Contexts, Ids, Timed, fastest, fresh, one, times

__all__ = ["Call", "Contexts", "Ids", "Timed", "fastest", "fresh", "one", "times"]
