"""Alarms come soon after a fall and hardly ever without one; intervals hold however often they are looked at."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.evaluation.sequential import (
    FALSE_ALARM_ROWS,
    HOLD_ROWS,
    WINDOW_ROWS,
    FallDetector,
    ShareWindow,
    add_evidence,
    bound_share,
    choose_stakes,
)

PROMISE, FALLEN = 0.99, 0.97
THRESHOLD = 2 * FALSE_ALARM_ROWS  # of a head whose P@1 and P@5 are both watched


def find_first_alarms(draw_misses, paths, rows, threshold=THRESHOLD, promise=PROMISE, calm_rows=0):
    """The row of the first alarm of each path, `rows` where none comes, and the number of alarms, with restarts.

    draw_misses: number of rows before the fall (negative) or after -> misses [paths].
    """
    stakes = choose_stakes(1 - promise)
    evidence, first, alarms = np.zeros((paths, len(stakes))), np.full(paths, rows), 0
    for row in range(-calm_rows, rows):
        evidence = add_evidence(evidence, draw_misses(row), 1 - promise, stakes)
        raised = evidence.mean(axis=1) >= threshold
        if raised.any():
            evidence[raised] = 0
            if row >= 0:
                alarms += int(raised.sum())
                first[raised] = np.minimum(first[raised], row + 1)
    return first, alarms


@pytest.mark.parametrize("calm_rows", [0, 5000])
def test_a_fall_is_noticed_in_time(calm_rows):
    random, paths = np.random.default_rng(1), 2000

    def draw_misses(row):
        return (random.random(paths) > (FALLEN if row >= 0 else PROMISE)).astype(float)

    first, _ = find_first_alarms(draw_misses, paths, 4000, calm_rows=calm_rows)
    median, late = np.quantile(first, [0.5, 0.95])
    print(f"median {median:.0f}, 95 % within {late:.0f}")
    assert median <= 1500
    assert late <= 2500


def test_false_alarms_are_rare_at_exactly_the_promise():
    random, paths, rows = np.random.default_rng(2), 1000, 40_000
    _, alarms = find_first_alarms(lambda row: (random.random(paths) > PROMISE).astype(float), paths, rows)
    print(f"{alarms} alarms in {paths * rows} rows")
    assert alarms * FALSE_ALARM_ROWS <= paths * rows


def test_false_alarms_of_shares_between_0_and_1_are_as_rare():
    """P@5: shares of fifths, of the promised mean. A lower threshold, so that there are some."""
    random, paths, rows, threshold = np.random.default_rng(3), 1000, 10_000, 1e4
    _, alarms = find_first_alarms(lambda row: random.binomial(5, 1 - PROMISE, paths) / 5, paths, rows, threshold)
    print(f"{alarms} alarms in {paths * rows} rows")
    assert 0 < alarms * threshold <= paths * rows


@pytest.mark.parametrize("promise", [0.3, 0.9, 0.99, 0.9999])
def test_bets_are_fair_at_the_promise_and_cannot_lose_all(promise):
    stakes = choose_stakes(1 - promise)
    after_miss, after_hit = (add_evidence(np.zeros(5), np.array(miss), 1 - promise, stakes) for miss in (1.0, 0.0))
    assert (1 - promise) * after_miss + promise * after_hit == pytest.approx(1)
    assert after_hit.min() > 0
    assert np.all(after_miss > 1)


def test_the_detector_is_that_of_the_simulation_and_starts_anew():
    misses = np.random.default_rng(4).random(20_000) > FALLEN
    detector = FallDetector(PROMISE, THRESHOLD)
    rows = [row for row, miss in enumerate(misses, 1) if detector.observe(1.0 - miss)]
    first, alarms = find_first_alarms(lambda row: np.array([float(misses[row])]), 1, len(misses))
    assert (rows[0], len(rows), detector.alarms) == (first[0], alarms, alarms)
    assert 0 <= detector.level < 1


def test_an_alarm_stands_until_enough_rows_have_come_without_another():
    detector = FallDetector(PROMISE)
    assert not detector.stands
    while not detector.observe(0.0):
        pass
    assert detector.stands
    for _ in range(HOLD_ROWS - 1):
        detector.observe(1.0)
    assert detector.stands
    detector.observe(1.0)
    assert (detector.stands, detector.alarms) == (False, 1)


def test_one_miss_is_no_proof_against_a_promise_of_everything():
    detector = FallDetector(1.0)
    assert not detector.observe(0.0)


def test_a_promise_of_nothing_cannot_be_broken():
    detector = FallDetector(0.0)
    assert not any(detector.observe(0.0) for _ in range(100))
    assert 0 <= detector.level < 1


def test_the_interval_holds_at_every_row():
    random, truth, looks = np.random.default_rng(5), 0.97, np.unique(np.geomspace(1, 4000, 40).astype(int))
    hits = np.cumsum(random.random((300, looks[-1])) < truth, axis=1)[:, looks - 1]
    intervals = [[bound_share(float(sum_), int(rows)) for sum_, rows in zip(path, looks, strict=True)] for path in hits]
    failures = sum(any(not each.low <= truth <= each.high for each in path) for path in intervals)
    print(f"{failures} of {len(intervals)} paths leave their interval")
    assert failures <= 0.05 * len(intervals)
    assert intervals[0][-1].high - intervals[0][-1].low < 0.03


@pytest.mark.parametrize(("hits", "rows"), [(0, 0), (0.0, 7), (7.0, 7), (6.4, 7), (9999.0, 10_000)])
def test_the_interval_is_of_shares_and_holds_the_mean(hits, rows):
    share = bound_share(hits, rows)
    assert 0 <= share.low <= share.mean <= share.high <= 1
    assert share.mean == (hits / rows if rows else 1)


def test_the_window_is_of_the_last_rows():
    window = ShareWindow()
    assert window.rows == 0
    sizes = []
    for row in range(3 * WINDOW_ROWS):
        window.add(float(row >= WINDOW_ROWS))
        sizes.append(window.rows)
    assert max(sizes) < WINDOW_ROWS
    assert min(sizes[WINDOW_ROWS:]) >= WINDOW_ROWS // 2
    assert window.estimate().mean == 1.0
