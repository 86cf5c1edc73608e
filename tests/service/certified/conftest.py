"""Layers of any size are proved here."""

from __future__ import annotations

import pytest
from shortlist_exporter import certificate

from tests.service.certified.proofs import CLASSES, DIM, proved
from tests.support import make_dense


@pytest.fixture(autouse=True)
def small_layers_too(monkeypatch):
    monkeypatch.setattr(certificate, "LEAST_WEIGHTS", 0)


@pytest.fixture
def head(tmp_path):
    return proved(tmp_path, make_dense(CLASSES, DIM))
