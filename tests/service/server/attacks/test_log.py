"""A log that nobody can write."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import shortlist

from .wire import ROWS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("processes", [1, 2])
def test_a_log_whose_disk_is_full_keeps_no_server_from_serving(small_repository, tmp_path, processes):
    """It did at the start: the line that says where it listens ended the server."""
    path = tmp_path / "s.sock"
    flags = ["--unix-socket", str(path), "--no-tcp", "--access-log", "--processes", str(processes)]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "shortlist", "serve", str(small_repository), *flags], stderr=full
        )
    try:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.05)
        with shortlist.Client(f"unix://{path}") as client:
            while not client.ready():
                time.sleep(0.05)
            assert client.topk("lm", ROWS, 1).ids.shape == (8, 1)
    finally:
        process.terminate()
    assert process.wait(timeout=30) == 0
