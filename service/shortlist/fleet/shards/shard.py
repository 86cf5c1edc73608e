"""One shard of a head: it answers the messages that all shards get."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.core.results import FloatArray, IdArray
from shortlist.errors import BundleError, NotReady
from shortlist.evaluation.canary import check_canary
from shortlist.head import Head

from .exchange import Question, pack_answer, pack_logits, unpack_question
from .ranges import ClassRange
from .shard_list import SHARDS_FILE, ShardEntry, read_shard_list


class OtherCut(NotReady):
    """A shard of another version, or of another cut of the same one, than is asked."""


class Shard:
    """A head of one range of classes. Threads may share it."""

    def __init__(self, head: Head, part: ClassRange, cut: bytes = b"") -> None:
        """cut: the digest of the cut that it belongs to."""
        self.head, self.part, self.cut = head, part, cut

    def answer(self, message: bytes) -> bytes:
        """The packed answer to a packed question of the whole layer; raises BadInput, OtherCut."""
        question = unpack_question(message)
        if question.cut != self.cut:
            raise OtherCut(
                f"{self.head.folder} is of another version or cut than the shards that are asked: "
                "ask again once all are replaced"
            )
        if question.ids is not None:
            return pack_logits(self.compute_logits(question.contexts, question.ids))
        return self.search(question)

    def search(self, question: Question) -> bytes:
        """The k best of the range's classes.

        Whether dense answers is decided as for one row, since the rows of a message are of several requests.
        """
        head, part = self.head, self.part
        k = min(question.k, head.manifest.max_k)
        plan, _ = head.choose_plan(1, k, question.exact, proof=question.bias is None)
        class_filter, bias = part.localize_filter(question.class_filter), part.localize_bias(question.bias)
        return pack_answer(part.globalize(head.run(plan, question.contexts, k, class_filter, bias)))

    def compute_logits(self, contexts: FloatArray, ids: IdArray) -> FloatArray:
        """Exact logits [B, m] of `ids` [B, m] of the whole layer, -inf where another shard has the class."""
        places = self.part.localize(ids)
        logits = self.head.compute_logits(self.head.plan, contexts, np.maximum(places, 0))
        return np.where(places >= 0, logits, np.float32(-np.inf))


def open_shard(folder: Path, number: int, *, device: str | None = None, threads: int | None = None) -> Shard:
    """Open, verify and warm one shard of what `shortlist shard` wrote; raises NotFound, BundleError, DeviceError."""
    shard_list = read_shard_list(folder)
    entry = shard_list.shards[number]
    bundle = open_shard_bundle(folder, entry)
    head = Head(bundle, device, threads)
    check_canary(head, bundle)
    head.topk(bundle.tensors(CALIBRATION_FILE)["contexts"][:1], 1)
    return Shard(head, ClassRange(entry.start, entry.stop), shard_list.make_cut_digest())


def open_shard_bundle(folder: Path, entry: ShardEntry, *, verify: bool = True) -> Bundle:
    """The bundle of a shard; raises NotFound, and BundleError where it is not the one that the list names."""
    bundle = Bundle(folder / entry.bundle, verify=verify)
    if bundle.manifest.digest != entry.digest:
        raise BundleError(f"{bundle.folder} is not the shard that {folder / SHARDS_FILE} names: cut again")
    return bundle
