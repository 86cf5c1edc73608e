"""A look that goes further keeps what the one before has previewed."""

import numpy as np
import pytest
from shortlist.core.filters import UNRESTRICTED
from shortlist.kernels.grouped.effort import EFFORT_FEATURES, list_looks

from tests.support.layers import make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow
CLASSES, DIM = 4003, 160
# So many columns that first previews read some of them alone, and so few classes that each look opens a part.
OPTIONS = {"width": "150", "groups": "60", "opened": "200", "candidates": "64", "promise": "0"}
contexts = make_contexts(800, DIM)
near = contexts.contexts[-400:]
NEVER_ENOUGH = (0.0,) * EFFORT_FEATURES + (100.0,)


@pytest.fixture(scope="module")
def wide_head(tmp_path_factory):
    return make_head(
        tmp_path_factory.mktemp("wide"), make_dense(CLASSES, DIM), contexts, method="grouped", options=OPTIONS
    )


def take_looks(plan, k, *looks):
    """What the last of the looks finds, and what it tells of each row."""
    features = np.zeros((len(near), EFFORT_FEATURES), np.float32)
    search = plan.prepare_search(k)(looks, weights=(NEVER_ENOUGH,) * len(looks))
    return plan.compiled(near, search, UNRESTRICTED, features), features


CHANGES = {
    "as wide": lambda first, _: first,
    "narrower": lambda first, _: first._replace(opened=first.opened // 2),
    "hardly wider": lambda first, _: first._replace(opened=first.opened + 1),
    "wider": lambda _, last: last,
    "more blocks of the same groups": lambda first, _: first._replace(previewed=first.opened),
    "previews raised otherwise": lambda _, last: last._replace(raise_share=0.5),
    "all classes": lambda _, last: last._replace(opened=CLASSES),
}


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_it_finds_equals_what_it_finds_alone(wide_head, change, k):
    first, last = list_looks(wide_head.plan.settings, k, CLASSES)[:2]
    assert first.opened < last.opened < CLASSES
    further = change(first, last)
    after, features = take_looks(wide_head.plan, k, first, further)
    alone, features_alone = take_looks(wide_head.plan, k, further)
    for name in ("ids", "logits"):
        np.testing.assert_array_equal(getattr(after, name), getattr(alone, name))
    np.testing.assert_array_equal(after.scored, np.maximum(alone.scored, first.candidates))
    np.testing.assert_allclose(features, features_alone, rtol=1e-4, atol=1e-4)
