import numpy as np
import pytest
from shortlist.bundle import Bundle
from shortlist.canary import check_canary
from shortlist.errors import BundleError
from shortlist.head import Head


@pytest.fixture
def bundle(small_repository):
    return Bundle(small_repository / "lm" / "1")


def test_a_healthy_head_passes(bundle):
    assert check_canary(Head(bundle, "cpu", 1), bundle) > 0.5


def test_other_answers_fail(bundle):
    """As a kernel that saturates would: the same graphs, another result."""
    head = Head(bundle, "cpu", 1)
    rows = head.plan.rows
    head.plan.rows = lambda contexts, ids: -rows(contexts, ids)
    with pytest.raises(BundleError, match="failed its canary on cpu"):
        check_canary(head, bundle)


def test_other_logprobs_fail(bundle):
    head = Head(bundle, "cpu", 1)
    head.plan.tail_shift = np.float32(30)
    with pytest.raises(BundleError, match="log-probabilities off"):
        check_canary(head, bundle)


def test_not_a_number_fails(bundle):
    head = Head(bundle, "cpu", 1)
    rows = head.plan.rows
    head.plan.rows = lambda contexts, ids: rows(contexts, ids) * np.float32(np.nan)
    with pytest.raises(BundleError):
        check_canary(head, bundle)
