"""A soak's checks see every promise that is broken."""

from array import array

import numpy as np
import pytest

from benchmarks.http.client.connection import RawResponse
from benchmarks.http.soak.checks import PROMISES, FaultyClient, Memory, SoakResult, Tally, list_broken_promises

STEADY = [100.0] * 30 + [120.0] * 170  # grows while warming up alone


def tally(*replies, seconds=0.01):
    result = Tally()
    for reply in [RawResponse(200, {}, b""), *replies]:
        result.count(reply, seconds, None)
    return result


def findings(**changes):
    good = {
        "capacity": 0.2,
        "rate": 200,
        "sending_rate": 199,
        "seconds": 10,
        "deadline_ms": 250,
        "promises": PROMISES,
        "tally": tally(RawResponse(429, {"retry-after": "1"}, b""), RawResponse(504, {}, b"")),
        "memory": Memory(STEADY),
        "health_latencies": array("d", [0.01] * 98 + [0.05] * 2),
        "faulty_clients": [FaultyClient("vanishes mid-body", outcomes={"went": 3})],
    }
    return SoakResult(**good | changes)


def test_nothing_is_broken():
    assert list_broken_promises(findings()) == []


def test_a_wrong_answer_is_found():
    wrong = tally()
    wrong.count(RawResponse(200, {}, b""), 0.01, "ids [1] instead of [2]")
    assert list_broken_promises(findings(tally=wrong)) == [
        "1 answers differ from the offline ones: ids [1] instead of [2]"
    ]


def test_growth_after_warm_up_is_found():
    [sentence] = list_broken_promises(findings(memory=Memory(list(np.linspace(100, 110, 200)))))
    assert sentence.startswith("memory grew by")


def test_slow_health_is_found():
    [sentence] = list_broken_promises(findings(health_latencies=array("d", [0.01] * 98 + [0.2] * 2)))
    assert sentence == "p99 of /healthz is 200 ms, over 100 ms"


def test_health_that_nobody_asked_for_is_found():
    assert any("/healthz" in sentence for sentence in list_broken_promises(findings(health_latencies=array("d"))))


def test_clients_that_got_too_little_are_found():
    [sentence] = list_broken_promises(findings(capacity=1.0))
    assert sentence == "well-behaved clients got 10% of the capacity: 50% is promised"


def test_a_missing_retry_after_is_found():
    [sentence] = list_broken_promises(findings(tally=tally(RawResponse(429, {}, b""))))
    assert "no Retry-After" in sentence


@pytest.mark.parametrize("status", [400, 408, 500])
def test_another_status_is_found(status):
    assert list_broken_promises(findings(tally=tally(RawResponse(status, {}, b"")))) == [
        f"other failures than 429, 503 and 504 came: 1 x {status}"
    ]


def test_a_lost_connection_is_found():
    result = tally()
    result.losses["connection reset"] += 2
    assert list_broken_promises(findings(tally=result)) == ["2 requests were not answered at all: 2 x connection reset"]


def test_a_missed_deadline_is_found():
    [sentence] = list_broken_promises(findings(tally=tally(seconds=0.3)))
    assert "over the deadline of 250 ms" in sentence


def test_no_admitted_request_keeps_no_deadline():
    assert any("p99" in sentence for sentence in list_broken_promises(findings(tally=Tally())))


def test_a_load_that_was_none_is_found():
    [sentence] = list_broken_promises(findings(sending_rate=150))
    assert "nothing is proven" in sentence


def test_a_harmed_neighbour_is_found():
    harmful = FaultyClient("vanishes mid-body", outcomes={"went": 1}, harms=["connection reset"])
    [sentence] = list_broken_promises(findings(faulty_clients=[harmful]))
    assert "harmed 1 others" in sentence


def test_a_faulty_client_that_never_came_is_found():
    [sentence] = list_broken_promises(findings(faulty_clients=[FaultyClient("half-closes")]))
    assert "nothing is known of it" in sentence
