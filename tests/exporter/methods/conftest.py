"""Fixtures of the methods' tests."""

from __future__ import annotations

import pytest

from tests.support.heads.ds import make_module


@pytest.fixture(scope="module")
def module():
    """A small Doubly Sparse Softmax."""
    return make_module()
