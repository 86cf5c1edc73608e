"""Times blocks of `Head.topk` as lines of JSON on stdin ask; for any version of the package, so it imports little.

python worker.py '{"bundle": "repo/lm/1", "contexts": "rows.npy", "settings": {}, "graphs": false}'

Prints one line once the head is open: which loops it has. Then one line for each that it reads, [first, calls, batch]:
the seconds of so many calls with the next `batch` rows each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import shortlist

TIMED_K = 5


def open_head(order: dict[str, Any]) -> Any:
    """Open the head with the order's settings, one thread a session; `graphs` leaves the native library out."""
    if order["graphs"]:
        from shortlist.kernels.native import library

        vars(library)["SOURCE_FOLDER"] = Path(os.devnull)
    head = shortlist.load(order["bundle"], device="cpu", threads=1, verify=False)
    return head.with_settings(**order["settings"])


def name_loops(head: Any) -> str:
    """What searches: the target's name, `numba` in versions that had no targets, or `graphs`."""
    if head.plan.compiled is None:
        return "graphs"
    return getattr(head, "kernels", None) or "numba"


def time_block(head: Any, rows: Any, first: int, calls: int, batch: int) -> list[float]:
    """Seconds of each call; rows are taken in turn, from the beginning again after the last ones."""
    seconds = []
    for call in range(first, first + calls):
        start = call * batch % (len(rows) - batch + 1)
        some = rows[start : start + batch]
        before = time.perf_counter()
        head.topk(some, TIMED_K)
        seconds.append(time.perf_counter() - before)
    return seconds


def main() -> None:
    order = json.loads(sys.argv[1])
    head, rows = open_head(order), np.load(order["contexts"])
    print(json.dumps(name_loops(head)), flush=True)
    for line in sys.stdin:
        print(json.dumps(time_block(head, rows, *json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
