"""A look that goes further keeps what the one before has previewed."""

import numpy as np
import pytest
from shortlist.core.filters import UNRESTRICTED
from shortlist.kernels.grouped.effort import EFFORT_FEATURES, list_looks

from tests.support.heads.grouped import PROMISE_CLASSES, promise_contexts

pytestmark = pytest.mark.slow
near = promise_contexts.contexts[-400:]
NEVER_ENOUGH = (0.0,) * EFFORT_FEATURES + (100.0,)


def take_looks(plan, k, *looks):
    return plan.compiled(near, plan.prepare_search(k)(looks, weights=(NEVER_ENOUGH,) * len(looks)), UNRESTRICTED)


CHANGES = {
    "as wide": lambda first, _: first,
    "narrower": lambda first, _: first._replace(opened=first.opened // 2),
    "hardly wider": lambda first, _: first._replace(opened=first.opened + 1),
    "wider": lambda _, last: last,
    "more blocks of the same groups": lambda first, _: first._replace(previewed=first.opened),
    "previews raised otherwise": lambda _, last: last._replace(raise_share=0.5),
    "all classes": lambda _, last: last._replace(opened=PROMISE_CLASSES),
}


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_it_finds_equals_what_it_finds_alone(promise_head, change, k):
    first, last = list_looks(promise_head.plan.settings, k, PROMISE_CLASSES)
    assert first.opened < last.opened < PROMISE_CLASSES
    further = change(first, last)
    after, alone = (take_looks(promise_head.plan, k, *looks) for looks in ((first, further), (further,)))
    for name in ("ids", "logits"):
        np.testing.assert_array_equal(getattr(after, name), getattr(alone, name))
    np.testing.assert_array_equal(after.scored, np.maximum(alone.scored, first.candidates))
