"""How many threads torch takes, which fits heads and computes what they are measured against."""

from __future__ import annotations

from shortlist.core.extras import require
from shortlist.runtime.threads import count_available_threads


def limit_torch(threads: int | None) -> None:
    """Let torch use `threads`, or as many as it would where None, but no more than this process may.

    More would wait for each other. By itself torch takes OMP_NUM_THREADS or all cores of the machine, also in a
    container that may use two of 64.
    """
    torch = require("torch")  # takes seconds, which a command's help does not wait for
    torch.set_num_threads(min(threads or torch.get_num_threads(), count_available_threads()))
