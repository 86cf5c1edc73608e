"""The short soak, against a real server."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_a_short_soak_breaks_no_promise(tmp_path):
    command = [sys.executable, "-m", "benchmarks.http", "soak", "--quick", "--cache", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    told = json.loads(done.stdout.strip().rpartition("\n")[2])
    assert told["broken"] == []
    assert done.returncode == 0
    assert told["wrong"] == 0
    assert told["statuses"]["200"] > 0
