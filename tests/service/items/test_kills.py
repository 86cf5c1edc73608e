"""A writer that is killed at random moments loses nothing that it has acknowledged."""

import random
import subprocess
import sys
import time

import numpy as np
import pytest
from shortlist.items.overlay import GONE

from .writer import open_ledger

MAX_SECONDS = 0.2  # until the kill, from the first acknowledgement on


def kill_a_writer(bundle, folder, prefix, seconds):
    """Run a writer, kill it, and return the numbers of the items that it acknowledged."""
    command = [sys.executable, "-m", "tests.service.items.writer", str(bundle), str(folder), prefix]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        time.sleep(seconds)
        process.kill()
        return [int(line) for line in (first + process.stdout.read()).splitlines(keepends=True) if line.endswith("\n")]


def check_kills(repository, folder, count):
    folder.mkdir()
    bundle, random_seconds = repository / "lm" / "1", random.Random(count)
    for number in range(count):
        prefix = f"new{number}"
        acknowledged = kill_a_writer(bundle, folder, prefix, random_seconds.uniform(0, MAX_SECONDS))
        assert acknowledged == list(range(len(acknowledged)))
        last = acknowledged[-1]
        ledger, overlay = open_ledger(bundle, folder)
        ids = np.array(overlay.find_ids([f"{prefix}-{item}" for item in range(last + 3)]))
        assert ids[: last + 1].min() >= 300
        rows = overlay.snapshot.find_rows(ids)
        assert (rows[: last - 1] == GONE).all()  # each was removed with the next but one
        for item in range(max(0, last - 1), last + 1):
            if ids[item + 2] < 0:  # what would have removed it was not written
                assert overlay.table.vectors[rows[item], 0] == item
        ledger.close()


@pytest.mark.slow
def test_five_kills_lose_nothing(small_repository, tmp_path):
    check_kills(small_repository, tmp_path / "changes", 5)


@pytest.mark.long
def test_two_hundred_kills_lose_nothing(small_repository, tmp_path):
    check_kills(small_repository, tmp_path / "changes", 200)
