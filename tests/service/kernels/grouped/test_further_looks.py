"""A look that goes further begins with what the one before has previewed."""

import numpy as np
import pytest
from shortlist.core.filters import UNRESTRICTED
from shortlist.kernels.grouped.effort import EFFORT_FEATURES, list_looks

from tests.support.heads.grouped import PROMISE_CLASSES, promise_contexts

pytestmark = pytest.mark.slow
near = promise_contexts.contexts[-400:]
NEVER_ENOUGH = (0.0,) * EFFORT_FEATURES + (100.0,)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_what_it_finds_equals_what_it_finds_alone(promise_head, k):
    plan = promise_head.plan
    first, last = list_looks(plan.settings, k, PROMISE_CLASSES)
    assert first.opened < last.opened < PROMISE_CLASSES
    assert first.raise_share == last.raise_share
    search = plan.prepare_search(k)
    after = plan.compiled(near, search((first, last), weights=(NEVER_ENOUGH,) * 2), UNRESTRICTED)
    alone = plan.compiled(near, search((last,), weights=(NEVER_ENOUGH,)), UNRESTRICTED)
    for name in ("ids", "logits", "scored"):
        np.testing.assert_array_equal(getattr(after, name), getattr(alone, name))
