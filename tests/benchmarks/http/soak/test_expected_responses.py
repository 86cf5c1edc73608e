"""Every way in which a response may differ from the offline one is seen, and ties are none."""

import numpy as np
import orjson
import pytest
from shortlist.wire.open_inference import describe_tensor

from benchmarks.http.client.connection import RawResponse
from benchmarks.http.soak.expected_responses import mix_requests
from tests.support.layers import make_contexts, make_dense, make_head


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("bundle"), make_dense(), method="svd")


@pytest.fixture(scope="module")
def response(head):
    requests = mix_requests(head, make_contexts(32).contexts, 8, 250_000, "localhost")
    return max(requests, key=lambda each: each.ids.size)


def response_of(ids, logprobs):
    arrays = {"ids": ids, "logprobs": logprobs}
    entries = [describe_tensor(name, values, binary=True) for name, values in arrays.items()]
    text = orjson.dumps({"model_name": "lm", "outputs": entries})
    return RawResponse(
        200,
        {"inference-header-content-length": str(len(text))},
        b"".join([text, *(values.tobytes() for values in arrays.values())]),
    )


def test_the_offline_answer_differs_in_nothing(head, response):
    assert response.describe_difference(response_of(response.ids, response.logprobs), head) is None


def test_another_class_is_a_difference(head, response):
    ids = response.ids.copy()
    ids[0, 0] = (ids[0].max() + 1) % 300
    assert "instead of" in response.describe_difference(response_of(ids, response.logprobs), head)


def test_a_class_twice_is_a_difference(head, response):
    ids = response.ids.copy()
    ids[0, 1] = ids[0, 0]
    assert "instead of" in response.describe_difference(response_of(ids, response.logprobs), head)


def test_another_log_probability_is_a_difference(head, response):
    off = response.logprobs.copy()
    off[-1, -1] += 2e-4
    assert "off by" in response.describe_difference(response_of(response.ids, off), head)
    off[-1, -1] = np.nan
    assert "off by" in response.describe_difference(response_of(response.ids, off), head)


def test_somebody_elses_shape_is_a_difference(head, response):
    assert "shape" in response.describe_difference(response_of(response.ids[:, :1], response.logprobs[:, :1]), head)


def test_near_ties_may_change_places(tmp_path):
    dense = make_dense()
    dense.weight[7] = dense.weight[11] = 3 * dense.weight[11]
    head = make_head(tmp_path, dense, method="full", options={})
    towards = dense.weight[[7]] / 10
    request_of_classes = next(each for each in mix_requests(head, towards, 64, 1, "localhost") if each.ids.shape[1] > 1)
    assert request_of_classes.ids[0, :2].tolist() == [7, 11]
    ids = request_of_classes.ids.copy()
    ids[:, :2] = [11, 7]
    assert request_of_classes.describe_difference(response_of(ids, request_of_classes.logprobs), head) is None


def test_requests_are_mixed_and_the_same_every_time(head):
    first, again = (mix_requests(head, make_contexts(32).contexts, 200, 250_000, "localhost") for _ in range(2))
    assert {each.ids.shape[1] for each in first} == {1, 5, 10}
    assert {len(each.ids) for each in first} == set(range(1, 17))
    assert [each.with_timeout for each in first] == [each.with_timeout for each in again]
    assert all(b'"timeout"' in each.with_timeout and b'"timeout"' not in each.without_timeout for each in first)
