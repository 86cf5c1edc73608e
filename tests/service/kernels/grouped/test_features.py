"""What a look tells of its row, by which its risk is estimated."""

import numpy as np
import pytest
from shortlist.bundle.reader import INDEX_FILE, Bundle
from shortlist.core.filters import UNRESTRICTED
from shortlist.kernels.grouped.effort import EFFORT_FEATURES, list_looks
from shortlist.kernels.primitives.layout import LANE_BYTES, LANES

from tests.support.heads.grouped import PROMISE_CLASSES, promise_contexts
from tests.support.layers import logits_of, make_dense

pytestmark = pytest.mark.slow
dense = make_dense(PROMISE_CLASSES, promise_contexts.contexts.shape[1])
near = promise_contexts.contexts[-400:]


def test_a_look_tells_how_large_the_row_is_in_columns_that_groups_are_not_compared_by(promise_head):
    plan, arrays = promise_head.plan, Bundle(promise_head.folder).tensors(INDEX_FILE)
    projected = near @ (arrays["projection"] * arrays["projection_scale"][:, None]).T
    compared = arrays["group_codes"].shape[1]
    first = compared + -compared % LANE_BYTES  # loops read whole lanes
    features = np.zeros((len(near), EFFORT_FEATURES), np.float32)
    search = plan.plan_search(1, restricts=False)
    plan.compiled(near, search, UNRESTRICTED, features)
    columns = projected[:, first:]
    padded = -(-projected.shape[1] // LANES) * LANES - first
    expected = np.log(np.sqrt((columns**2).sum(axis=1) / padded))
    assert columns.shape[1] > 0
    np.testing.assert_allclose(features[:, 9], expected, atol=0.02)


@pytest.mark.parametrize("k", [1, 20, 100])
def test_a_look_tells_how_far_the_logits_that_follow_the_kth_are_from_it(promise_head, k):
    """As shares of the difference from the best to the last of them."""
    plan, logits = promise_head.plan, np.sort(logits_of(dense, near), axis=1)[:, ::-1]
    features = np.zeros((len(near), EFFORT_FEATURES), np.float32)
    whole = list_looks(plan.settings, k, plan.order.size)[1]._replace(
        opened=PROMISE_CLASSES, previewed=PROMISE_CLASSES, candidates=PROMISE_CLASSES, full_view=PROMISE_CLASSES
    )
    plan.compiled(near, plan.prepare_search(k)((whole,), weights=plan.settings.effort[:1]), UNRESTRICTED, features)
    differences = features[:, [2, 3, 4, 5]]
    differences[:, 1:] += differences[:, :1]
    expected = logits[:, :1] - logits[:, [k - 1, k, k + 4, k + 8]]
    some = differences[:, 3] < 12  # features are no larger
    assert some.mean() > 0.5
    np.testing.assert_allclose(
        differences[some] / differences[some, 3:], expected[some] / expected[some, 3:], atol=0.002
    )


def describe(plan, rows, look, k=1):
    """What a look tells of `rows` where k classes are asked for."""
    features = np.zeros((len(rows), EFFORT_FEATURES), np.float32)
    plan.compiled(rows, plan.prepare_search(k)((look,), weights=plan.settings.effort[:1]), UNRESTRICTED, features)
    return features


def test_a_look_tells_how_far_the_best_classes_groups_are_over_the_last_that_was_opened(promise_head):
    plan = promise_head.plan
    look = list_looks(plan.settings, 1, plan.order.size)[0]
    few, more = (describe(plan, near, look._replace(opened=opened))[:, 11] for opened in (800, 1600))
    assert (few >= -1e-5).all(), "what was found was opened"
    assert few.mean() < more.mean()


@pytest.mark.parametrize("k", [1, 20])
def test_a_look_at_all_groups_is_no_surer_than_one_at_nearly_all(promise_head, k):
    """Few groups score far less than the others: what they hold, or where they begin, tells nothing of the best."""
    plan = promise_head.plan
    whole = list_looks(plan.settings, k, plan.order.size)[0]._replace(opened=PROMISE_CLASSES, previewed=PROMISE_CLASSES)
    features = describe(plan, near, whole, k)
    for opened in (PROMISE_CLASSES * 99 // 100, PROMISE_CLASSES - 1):
        expected = describe(plan, near, whole._replace(opened=opened), k)
        np.testing.assert_allclose(features[:, 11], expected[:, 11], atol=1e-4)


def test_a_look_tells_how_little_previews_say(promise_head):
    """Of contexts whose direction previews see nothing of, they are off by more."""
    plan = promise_head.plan
    look = list_looks(plan.settings, 1, plan.order.size)[0]
    arrays = Bundle(promise_head.folder).tensors(INDEX_FILE)
    projection = arrays["projection"] * arrays["projection_scale"][:, None]
    _, size, directions = np.linalg.svd(projection.astype(np.float64))
    unseen = directions[np.searchsorted(-size, -1e-3 * size[0]) :]
    assert len(unseen)
    noise = np.random.default_rng(0).standard_normal((len(near), len(unseen))) @ unseen
    rows = near + 2 * (noise * np.linalg.norm(near, axis=1).mean() / np.sqrt(len(unseen))).astype(np.float32)
    plain, noisy = describe(plan, near, look), describe(plan, rows.astype(np.float32), look)
    assert noisy[:, 13].mean() > plain[:, 13].mean() + 0.2
