"""Counting of opened tails, and how Prometheus sees it."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from shortlist.plans.common.tally import Tally
from shortlist.server.metrics.prometheus import Metrics

from tests.service.runtime.forks import run_forked


def test_counts_and_mean():
    tally = Tally(3)
    assert tally.mean == 0
    tally.count_row(2)
    tally.count_rows(np.array([0, 0, 3, 2]))
    assert (tally.counts, tally.mean) == ([2, 0, 2, 1], 7 / 5)
    tally.reset()
    assert tally.counts == [0, 0, 0, 0]


def test_no_row_is_lost_between_threads():
    tally = Tally(2)

    def work(turn):
        for _ in range(2000):
            tally.count_row(1)
            tally.count_rows(np.array([0, 2]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert tally.counts == [16_000, 16_000, 16_000]


def test_a_process_that_is_forked_while_a_row_is_counted_can_count():
    tally = Tally(2)
    with tally._lock():
        assert run_forked(lambda: tally.count_row(1) or tally.counts == [0, 1, 0]) == 0


def test_prometheus_sees_a_histogram():
    metrics, tally = Metrics("1", CollectorRegistry()), Tally(2)
    tally.count_rows(np.array([0, 0, 1, 2, 2, 2]))
    metrics.opened.tallies["lm", "1"] = tally
    found = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if family.name == "shortlist_opened_tails"
    }
    assert found == {
        ("shortlist_opened_tails_bucket", "0.0"): 2,
        ("shortlist_opened_tails_bucket", "1.0"): 3,
        ("shortlist_opened_tails_bucket", "2.0"): 6,
        ("shortlist_opened_tails_bucket", "+Inf"): 6,
        ("shortlist_opened_tails_count", None): 6,
        ("shortlist_opened_tails_sum", None): 7,
    }
