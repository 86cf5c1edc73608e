"""What several tests of the transport use."""

from __future__ import annotations

import pytest

from tests.support.servers.fast_path import (
    Servers,
    infer,
    topk,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers(small_repository):
    pair = Servers(small_repository)
    for _ in range(20):  # speeds are known, so that small work is known to be small
        pair.talk(*[infer(model="dense"), infer(), topk()] * 3)
    yield pair
    pair.close()
