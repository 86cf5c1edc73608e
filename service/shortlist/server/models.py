"""A version of a model: it is loaded, checked against its canary and warmed before it serves."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Literal

from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.core.results import FloatArray, Labels
from shortlist.errors import NotReady
from shortlist.evaluation.checked_head import explain_failures, load_and_check, open_bundle
from shortlist.head import Head
from shortlist.items.store import ItemStore
from shortlist.wire.open_inference import LABELS, NAMES

State = Literal["loading", "ready", "failed", "rolled_back", "unloaded"]

WARM_BATCH_ROWS = (1, 8)
WARM_CALLS = 3  # of each batch
WARM_K = 10  # classes asked for

log = logging.getLogger(__name__)


def warm_up_head(head: Head, contexts: FloatArray) -> None:
    """Search some of `contexts` [n, d] in batches of the commonest sizes: the first request is not the slowest then."""
    k = min(WARM_K, head.manifest.max_k)
    for batch in WARM_BATCH_ROWS:
        for _ in range(WARM_CALLS):
            head.topk(contexts[:batch], k)
            if head.exact is not None:
                head.topk(contexts[:batch], k, exact=True)
    head.label_array  # noqa: B018 - laid out now
    if head.plan.tally is not None:
        head.plan.tally.reset()  # these calls are no requests


class Model:
    """One version of a model, from its folder to a warmed head."""

    def __init__(self, name: str, version: int, folder: Path, *, delays_readiness: bool = True) -> None:
        """Read nothing yet. delays_readiness: whether the server is not ready until this model is."""
        self.name = name
        self.version = version
        self.folder = folder
        self.delays_readiness = delays_readiness
        self.state: State = "loading"
        self.reason = "it is still loading"
        self.bundle: Bundle | None = None
        self._head: Head | None = None
        self.changing = threading.Lock()  # of the head: another thread may load one

    @property
    def labels(self) -> Labels | None:
        """The label array of the warmed head; None where it has no labels, or where there is no head."""
        head = self._head
        return None if head is None else head.label_array

    @property
    def text_outputs(self) -> list[str]:
        """The outputs of texts that answers may have; raises NotReady."""
        texts = {LABELS: self.labels, NAMES: self.head.names}
        return [name for name, present in texts.items() if present is not None]

    def __str__(self) -> str:
        return f"model '{self.name}' version {self.version}"

    @property
    def head(self) -> Head:
        """The warmed head; raises NotReady with the reason where there is none."""
        head = self._head  # read once: another thread may unload the model
        if head is None:
            raise NotReady(f"{self} is not ready: {self.reason}")
        return head

    @property
    def head_in_use(self) -> Head | None:
        """The warmed head, None where there is none."""
        return self._head

    @property
    def classes(self) -> int:
        """V, the number of classes; 0 while there is no head."""
        head = self._head
        return 0 if head is None else head.manifest.classes

    @property
    def dense_row_candidates(self) -> int:
        """`scored` of a row that dense computed: V; -1, which no row has, where the head is its own reference."""
        head = self._head
        return -1 if head is None or head.is_own_reference else head.manifest.classes

    def load(
        self, device: str | None, threads: int | None, bundle: Bundle | None = None, items: ItemStore | None = None
    ) -> None:
        """Become ready; a head in use is replaced once the new one is warmed. Raises ShortlistError.

        bundle: verified before; None to open the folder's. items: of the changes that the head has; None for none.
        """
        bundle = bundle or open_bundle(self.folder)
        head = prepare_head(bundle, device, threads)
        # a bundle may have been copied to another name or version: the folder's is what is served
        head = head.with_identity(self.name, self.version)
        with explain_failures(self.folder):
            head = head if items is None else items.attach(head)
        with self.changing:
            self._head, self.bundle = head, bundle
        self.state, self.reason = "ready", ""
        log.info("%s is ready on %s: %s", self, head.device, head.manifest.method)

    def adjust(self, former: Head | None, head: Head) -> bool:
        """Answer by `head`, which has the weights of `former`; False where that is not in use any more."""
        with self.changing:
            if former is None or self._head is not former:
                return False
            self._head = head
            return True

    def set_aside(self, state: State, reason: str) -> None:
        """Say why this version does not answer; it has no head."""
        self.state, self.reason = state, reason

    def unload(self) -> None:
        """Serve no more, and free the memory once running requests are done."""
        self.state, self.reason = "unloaded", "unloaded"
        self.delays_readiness = False
        with self.changing:
            self._head = self.bundle = None
        log.info("%s is unloaded", self)


def prepare_head(bundle: Bundle, device: str | None, threads: int | None) -> Head:
    """The checked and warmed head of a verified bundle; raises ShortlistError."""
    head = load_and_check(bundle, device, threads).head
    with explain_failures(bundle.folder):
        warm_up_head(head, bundle.tensors(CALIBRATION_FILE)["contexts"])
    return head
