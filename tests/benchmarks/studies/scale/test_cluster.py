"""A Ray cluster of three nodes: a replica and a node are killed under load, then everything is replaced under load."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from benchmarks.studies.scale.ray_bundle import open_ray_shards
from tests.support.servers.ray import QUIET, ROOT, find_python

pytestmark = pytest.mark.long

SECONDS = 30
MAX_GAP_SECONDS = 10


def test_nothing_is_wrong_and_an_update_loses_nothing(tmp_path, free_port):
    python = find_python()
    _, folder = open_ray_shards(tmp_path)
    command = [python, "-m", "benchmarks.studies.scale.cluster", str(folder), "--seconds", str(SECONDS)]
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "service"), str(ROOT)])}
    environment = os.environ | QUIET | {"RAY_USAGE_STATS_ENABLED": "0"} | paths
    process = subprocess.run(
        [*command, "--port", str(free_port)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
        cwd=ROOT,
        timeout=300,
    )
    figures = json.loads([line for line in process.stdout.splitlines() if line.startswith("{")][-1])
    kills, update = figures["kills"], figures["update"]
    assert kills["right"] > 50
    assert kills["wrong"] == 0
    assert kills["longest_gap_s"] < MAX_GAP_SECONDS
    assert update["right"] > 10
    assert update | {"right": 0, "seconds": 0, "longest_gap_s": 0} == dict.fromkeys(update, 0)
