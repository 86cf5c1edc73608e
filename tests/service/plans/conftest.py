"""Layers of any size are proved here."""

from __future__ import annotations

import pytest
from shortlist_exporter.graphs import bounds

from tests.support.layers import make_dense

from .proofs import CLASSES, DIM, proved


@pytest.fixture(autouse=True)
def small_layers_too(monkeypatch):
    monkeypatch.setattr(bounds, "MIN_WEIGHTS", 0)


@pytest.fixture
def head(tmp_path):
    return proved(tmp_path, make_dense(CLASSES, DIM))
