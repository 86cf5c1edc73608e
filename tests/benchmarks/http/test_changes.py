"""Items that change under query load, shortly and for ten minutes, against a real server."""

import json
import subprocess
import sys

import numpy as np
import pytest
from shortlist.errors import BadInput

from benchmarks.http.changes.catalogue import DIM, LIVING_ITEMS, Feed
from benchmarks.http.changes.run import ChangePlan, run_changes

pytestmark = pytest.mark.slow


def run(folder, *options, timeout):
    command = [sys.executable, "-m", "benchmarks.http", "changes", *options, "--cache", str(folder)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    assert process.stdout, process.stderr
    return json.loads(process.stdout.strip().rpartition("\n")[2])


def test_a_short_run_loses_nothing(tmp_path):
    options = ["--classes", "1500", "--seconds", "1", "--kills", "1", "--changes", "400", "--removed", "90"]
    report = run(tmp_path, *options, timeout=120)
    assert (report["lost"], report["removed_served"], report["not_visible"]) == (0, 0, 0)
    assert report["changed"] == 400
    assert report["visible_ms"] < 1000


def test_more_items_than_may_go_are_not_removed(tmp_path):
    with pytest.raises(BadInput, match="--removed 751 is more than half of 1500 items"):
        run_changes(tmp_path, ChangePlan(1500, 1.0, 200, 400, 10, 0, removed=751))


@pytest.mark.long
@pytest.mark.alone
def test_ten_minutes_and_two_hundred_kills_break_no_promise(tmp_path):
    report = run(tmp_path, "--seconds", "600", "--kills", "200", timeout=3600)
    assert report["broken"] == []


def test_a_feed_knows_what_has_to_hold():
    feed = Feed(1000, seed=1)
    for _ in range(3):
        names, vectors, gone = feed.next_batch(8)
        assert (len(names), vectors.shape, len(gone)) == (4, (4, DIM), 4)
        feed.acknowledge(names, vectors, gone, list(range(1000 + feed.count - 4, 1000 + feed.count)))
    assert (len(feed.living), len(feed.removed), len(feed.removed_base)) == (12, 12, 12)
    feed.living = {f"{i}": np.zeros(DIM, np.float32) for i in range(LIVING_ITEMS + 20)}
    feed.ids = {name: int(name) for name in feed.living}
    names, vectors, gone = feed.next_batch(20)
    assert len(feed.leaving) == LIVING_ITEMS + 20 - len(feed.living) >= 5
    assert not feed.living.keys() & set(gone)
