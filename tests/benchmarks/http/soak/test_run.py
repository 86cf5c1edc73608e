"""The soak, short and whole, against a real server."""

import json
import subprocess
import sys

import pytest

from benchmarks.http.soak.checks import PROMISES, QUICK_PROMISES

pytestmark = pytest.mark.slow


def check_soak(folder, *options, timeout):
    command = [sys.executable, "-m", "benchmarks.http", "soak", *options, "--cache", str(folder)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    report = json.loads(process.stdout.strip().rpartition("\n")[2])
    assert report["broken"] == []
    assert process.returncode == 0
    assert report["wrong"] == 0
    assert report["lost"] == 0
    assert report["statuses"]["200"] > 0
    promises = QUICK_PROMISES if "--quick" in options else PROMISES
    assert report["goodput_share"] >= promises.goodput_share
    assert report["healthz_p99_ms"] < 100
    assert report["memory_growth"] < promises.growth


@pytest.mark.alone
def test_a_short_soak_breaks_no_promise(tmp_path):
    check_soak(tmp_path, "--quick", timeout=180)


@pytest.mark.long
def test_ten_minutes_at_twice_the_capacity_break_no_promise(tmp_path):
    check_soak(tmp_path, timeout=900)
