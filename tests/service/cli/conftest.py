"""Fixtures of the command line's tests."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def bundle(small_repository):
    """The folder of model `lm`."""
    return small_repository / "lm" / "1"
