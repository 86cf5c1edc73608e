"""Fixtures of the service's tests."""

from __future__ import annotations

import pytest
from shortlist_exporter.graphs import bounds


@pytest.fixture
def prove_small_layers(monkeypatch):
    """Exports write certificates for layers of any size, not for large ones alone."""
    monkeypatch.setattr(bounds, "MIN_WEIGHTS", 0)
