"""A soak's judgement finds every promise that is broken."""

import numpy as np
import orjson
import pytest
from shortlist.wire.open_inference import describe_tensor, join_body

from benchmarks.http.client import wire
from benchmarks.http.client.wire import Lost, Reply
from benchmarks.http.soak import mischief
from benchmarks.http.soak.expected import mixture
from benchmarks.http.soak.judgement import Findings, Memory, Mischief, Tally, broken
from tests.support.layers import make_contexts, make_dense, make_head

STEADY = [100.0] * 30 + [120.0] * 170  # grows while warming up alone


def tally(*replies, seconds=0.01):
    counted = Tally()
    for reply in [Reply(200, {}, b""), *replies]:
        counted.count(reply, seconds, None)
    return counted


def findings(**changes):
    good = {
        "capacity": 100,
        "rate": 200,
        "sent": 199,
        "seconds": 10,
        "deadline_ms": 250,
        "growth": 0.05,
        "tally": tally(Reply(429, {"retry-after": "1"}, b""), Reply(504, {}, b"")),
        "memory": Memory(STEADY),
        "mischief": [Mischief("vanishes mid-body", outcomes={"went": 3})],
    }
    return Findings(**good | changes)


def test_nothing_is_broken():
    assert broken(findings()) == []


def test_a_wrong_answer_is_found():
    wrong = tally()
    wrong.count(Reply(200, {}, b""), 0.01, "ids [1] instead of [2]")
    assert broken(findings(tally=wrong)) == ["1 answers differ from the offline ones: ids [1] instead of [2]"]


def test_growth_after_warm_up_is_found():
    [sentence] = broken(findings(memory=Memory(list(np.linspace(100, 110, 200)))))
    assert sentence.startswith("memory grew by")


def test_a_missing_retry_after_is_found():
    [sentence] = broken(findings(tally=tally(Reply(429, {}, b""))))
    assert "no Retry-After" in sentence


@pytest.mark.parametrize("status", [400, 500, 503])
def test_another_status_is_found(status):
    assert broken(findings(tally=tally(Reply(status, {}, b"")))) == [
        f"other failures than 429 and 504 came: 1 x {status}"
    ]


def test_a_lost_connection_is_found():
    lost = tally()
    lost.lost["connection reset"] += 2
    assert broken(findings(tally=lost)) == ["2 requests were not answered at all: 2 x connection reset"]


def test_a_missed_deadline_is_found():
    [sentence] = broken(findings(tally=tally(seconds=0.3)))
    assert "over the deadline of 250 ms" in sentence


def test_no_admitted_request_keeps_no_deadline():
    assert any("p99" in sentence for sentence in broken(findings(tally=Tally())))


def test_a_load_that_was_none_is_found():
    [sentence] = broken(findings(sent=150))
    assert "nothing is proven" in sentence


def test_a_harmed_neighbour_is_found():
    harmful = Mischief("vanishes mid-body", outcomes={"went": 1}, harmed=["connection reset"])
    [sentence] = broken(findings(mischief=[harmful]))
    assert "harmed 1 others" in sentence


def test_mischief_that_never_happened_is_found():
    [sentence] = broken(findings(mischief=[Mischief("half-closes")]))
    assert "nothing is known of it" in sentence


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("bundle"), make_dense(), method="svd")


@pytest.fixture(scope="module")
def question(head):
    found = mixture(head, make_contexts(32).contexts, 8, 250_000, "localhost")
    return max(found, key=lambda each: each.ids.size)


def reply_of(ids, logprobs):
    arrays = {"ids": ids, "logprobs": logprobs}
    entries = [describe_tensor(name, values, binary=True) for name, values in arrays.items()]
    text = orjson.dumps({"model_name": "lm", "outputs": entries})
    return Reply(200, {"inference-header-content-length": str(len(text))}, join_body(text, arrays.values()))


def test_the_offline_answer_differs_in_nothing(head, question):
    assert question.difference(reply_of(question.ids, question.logprobs), head) is None


def test_another_class_is_a_difference(head, question):
    ids = question.ids.copy()
    ids[0, 0] = (ids[0].max() + 1) % 300
    assert "instead of" in question.difference(reply_of(ids, question.logprobs), head)


def test_a_class_twice_is_a_difference(head, question):
    ids = question.ids.copy()
    ids[0, 1] = ids[0, 0]
    assert "instead of" in question.difference(reply_of(ids, question.logprobs), head)


def test_another_log_probability_is_a_difference(head, question):
    off = question.logprobs.copy()
    off[-1, -1] += 2e-4
    assert "off by" in question.difference(reply_of(question.ids, off), head)
    off[-1, -1] = np.nan
    assert "off by" in question.difference(reply_of(question.ids, off), head)


def test_somebody_elses_shape_is_a_difference(head, question):
    assert "shape" in question.difference(reply_of(question.ids[:, :1], question.logprobs[:, :1]), head)


def test_near_ties_may_change_places(tmp_path):
    dense = make_dense()
    dense.weight[7] = dense.weight[11] = 3 * dense.weight[11]
    head = make_head(tmp_path, dense, method="full", options={})
    towards = dense.weight[[7]] / 10
    asked = next(each for each in mixture(head, towards, 64, 1, "localhost") if each.ids.shape[1] > 1)
    assert asked.ids[0, :2].tolist() == [7, 11]
    swapped = asked.ids.copy()
    swapped[:, :2] = [11, 7]
    assert asked.difference(reply_of(swapped, asked.logprobs), head) is None


def test_requests_are_mixed_and_the_same_every_time(head):
    made, again = (mixture(head, make_contexts(32).contexts, 200, 250_000, "localhost") for _ in range(2))
    assert {each.ids.shape[1] for each in made} == {1, 5, 10}
    assert {len(each.ids) for each in made} == set(range(1, 17))
    assert [each.timed for each in made] == [each.timed for each in again]
    assert all(b'"timeout"' in each.timed and b'"timeout"' not in each.untimed for each in made)


def test_a_response_is_read_once_it_is_whole():
    whole = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\ncontent-length: 2\r\n\r\n{}"
    assert all(wire.parsed(whole[:end]) is None for end in range(len(whole)))
    assert wire.parsed(whole) == Reply(429, {"retry-after": "3", "content-length": "2"}, b"{}")
    with pytest.raises(Lost, match="no HTTP"):
        wire.parsed(b"garbage\r\n\r\n")


def test_lies_change_the_length_alone():
    request = b"POST / HTTP/1.1\r\nContent-Length: 300\r\n\r\n" + b"x" * 300
    assert mischief.with_length(request, 200) == request.replace(b"300", b"500")
    assert mischief.with_length(request, -200) == request.replace(b"300", b"100")
