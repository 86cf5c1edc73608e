"""A process that changes items until it is killed, and prints what was acknowledged."""

import sys
from pathlib import Path

import numpy as np
from shortlist.bundle.reader import Bundle
from shortlist.items.batch import ItemBatch
from shortlist.items.ledger import Ledger
from shortlist.items.overlay import ItemOverlay
from shortlist.items.records import LogStart, find_log

DIM = 16
WAITING_BATCHES = 8  # that are on their way at a time


def open_ledger(bundle: Path, folder: Path, *, shared: bool = False) -> tuple[Ledger, ItemOverlay]:
    """The log of a bundle's model, and the items that it holds."""
    opened = Bundle(bundle, verify=False)
    ledger = Ledger(find_log(folder, "lm"), LogStart("lm", DIM, True, 0, {}), 0, shared=shared)
    overlay = ItemOverlay(opened.manifest, opened.names(), 0)
    ledger.attach(overlay)
    return ledger, overlay


def main(bundle: Path, folder: Path, prefix: str) -> None:
    """Add an item and remove the one before the last, for ever."""
    ledger, overlay = open_ledger(bundle, folder)
    number = 0
    while overlay.position >= 0:
        futures = []
        for _ in range(WAITING_BATCHES):
            vector = np.full((1, DIM), number, np.float32)
            batch = ItemBatch.make([f"{prefix}-{number}"], vector, [f"{prefix}-{number - 2}"])
            futures.append((number, ledger.submit(batch)))
            number += 1
        for done, future in futures:
            future.result()
            print(done, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
