"""A real app that loads nothing."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from shortlist.server.app import create_app
from shortlist.server.settings import Settings


@pytest.fixture
def client(small_repository):
    return TestClient(create_app(Settings(repository=small_repository)), raise_server_exceptions=False)
