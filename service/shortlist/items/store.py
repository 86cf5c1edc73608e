"""The logs of changed items of all models of a server, in a folder of their own."""

from __future__ import annotations

import threading
from pathlib import Path

from shortlist.bundle.manifest import read_manifest
from shortlist.bundle.repository import find_version_folders
from shortlist.errors import BadInput, BundleError
from shortlist.head import Head

from .ledger import Ledger
from .live_head import LiveHead
from .overlay import ItemOverlay
from .records import LogStart, find_log, find_position


class ItemStore:
    """Opens a log for each model whose items may change. Threads may share it.

    folder: of the logs. repository: of the versions, which say up to which change they hold them. shared: whether other
    processes of the server write the logs, too.
    """

    def __init__(self, folder: Path, repository: Path, *, shared: bool = False) -> None:
        """Raises BadInput where the folder cannot be made."""
        self.folder, self.repository, self.shared = folder, repository, shared
        self.ledgers: dict[str, Ledger] = {}
        self.opening = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"the folder of item changes {folder} cannot be made: {error.strerror}") from None

    def attach(self, head: Head) -> Head:
        """The head with all changes of its items, now and from now on; raises BundleError.

        A head that is its own reference takes no changes, and comes back as it is.
        """
        if head.is_own_reference:
            return head
        rows = None if head.exact_rows is None else head.exact_rows.loops
        overlay = ItemOverlay(head.manifest, head.names, find_position(head.manifest), head.threads, rows)
        self.open_ledger(head).attach(overlay)
        return LiveHead.make(head, overlay)

    def open_ledger(self, head: Head) -> Ledger:
        """The ledger of a head's model; raises BundleError."""
        manifest = head.manifest
        with self.opening:
            ledger = self.ledgers.get(manifest.name)
            if ledger is None:
                start = LogStart(manifest.name, manifest.dim, head.names is not None, 0, {})
                through = self.find_oldest_position(manifest.name)
                log = find_log(self.folder, manifest.name)
                ledger = self.ledgers[manifest.name] = Ledger(log, start, through, shared=self.shared)
        if (ledger.start.dim, ledger.start.names) != (manifest.dim, head.names is not None):
            raise BundleError(
                f"{ledger.path} holds changes of items with other vectors or names than {head.folder}: "
                "stop the server, move the log away, and start it again"
            )
        return ledger

    def find_oldest_position(self, name: str) -> int:
        """Up to which change every version of a model holds them; 0 where one cannot be read."""
        try:
            folders = find_version_folders(self.repository / name).values()
            return min((find_position(read_manifest(folder)) for folder in folders), default=0)
        except (OSError, BundleError):
            return 0

    def find_ledger(self, head: Head) -> Ledger:
        """The ledger of a head that is served; raises BadInput for one that takes no changes."""
        if not isinstance(head, LiveHead):
            raise BadInput(f"{head.manifest.name} is its own reference, so its items do not change: train it again")
        return self.ledgers[head.manifest.name]

    def close(self) -> None:
        """Write what waits, and let go of all logs."""
        for ledger in list(self.ledgers.values()):
            ledger.close()
