"""Fixtures of the service's tests."""

from __future__ import annotations

import pytest
import shortlist

from tests.support.evaluation import OPTIONS, SAMPLE
from tests.support.layers import make_dense, make_head
from tests.support.proofs import CLASSES, DIM, proved


@pytest.fixture(scope="session")
def head(small_repository):
    """Model `lm` of the small repository, in this process."""
    return shortlist.load(small_repository / "lm" / "1", threads=1)


@pytest.fixture
def proved_head(tmp_path, prove_small_layers):
    """A head whose exact answers are proved."""
    return proved(tmp_path, make_dense(CLASSES, DIM))


@pytest.fixture(scope="session")
def narrow_head(tmp_path_factory):
    """A head whose previews are narrow: it misses some of the best classes."""
    return make_head(tmp_path_factory.mktemp("narrow"), make_dense(), SAMPLE, options=OPTIONS)
