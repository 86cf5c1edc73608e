"""A head whose shards are elsewhere: one packed exchange a batch, and the merge of what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path

import numpy as np

from shortlist.bundle.class_sets import SETS_FOLDER, ClassSets
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import Names
from shortlist.bundle.reader import Bundle
from shortlist.core.arrays import Array
from shortlist.core.bias import Bias
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result, find_weakest_normalizer
from shortlist.errors import NotReady, Unsupported
from shortlist.head import Head
from shortlist.plans.common.base import MAX_CALL_ROWS, Plan

from .answers import AnswerRules
from .exchange import Question, make_result, pack_question
from .merge import merge_results
from .ranges import ClassRange
from .shard import open_shard_bundle
from .shard_list import ShardList


class LostShard(NotReady):
    """A shard that does not answer, or not what it was asked."""


Ask = Callable[[bytes], Sequence[bytes | LostShard]]  # one message to all shards; what each answers, in their order


class GatheredPlan(Plan):
    """A search in all shards at once.

    partial: whether the shards that answer do so for all of them; else a lost one is raised.
    """

    def __init__(
        self, ask: Ask, shard_list: ShardList, rules: Sequence[AnswerRules], *, exact: bool, partial: bool = False
    ) -> None:
        """rules: those of each shard's answers."""
        self.ask, self.name, self.rules, self.exact, self.partial = ask, shard_list.name, rules, exact, partial
        self.cut = shard_list.make_cut_digest()
        sizes = [entry.stop - entry.start for entry in shard_list.shards]
        self.shares = np.array([size / shard_list.classes for size in sizes], np.float32)

    @cached_property
    def tolerant(self) -> GatheredPlan:
        """The same plan, answering by the shards that are left."""
        other = copy(self)
        other.partial = True
        return other

    def tolerate_loss(self) -> Plan:
        return self if self.partial else self.tolerant

    def max_rows(self) -> int:
        return MAX_CALL_ROWS

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        return self.search(contexts, k, class_filter, None)

    def search(self, contexts: FloatArray, k: int, class_filter: ClassFilter, bias: Bias | None) -> PlanResult:
        """The k best classes of B rows by logit and bias, in one exchange; raises LostShard."""
        if not len(contexts):
            return empty_result(0, k)
        answers, coverage = self.gather(Question(contexts, k, self.exact, class_filter, bias))
        result = merge_results([make_result(answer) for answer in answers], k)
        result.coverage = coverage
        return pad_classes(result, k)

    def gather(self, question: Question) -> tuple[list[dict[str, Array]], float]:
        """The arrays that the shards answer, and the share of classes that they have; raises LostShard."""
        messages = self.ask(pack_question(question._replace(cut=self.cut)))
        answers = [self.read_answer(number, message, question) for number, message in enumerate(messages)]
        losses = [answer for answer in answers if isinstance(answer, LostShard)]
        if losses and (not self.partial or len(losses) == len(answers)):
            raise losses[0]
        present = [not isinstance(answer, LostShard) for answer in answers]
        coverage = float(self.shares[present].sum()) if losses else 1.0
        return [answer for answer in answers if not isinstance(answer, LostShard)], coverage

    def read_answer(self, number: int, message: bytes | LostShard, question: Question) -> dict[str, Array] | LostShard:
        """What a shard answers, or how it was lost: as one that answers what is no answer is."""
        if isinstance(message, LostShard):
            return message
        try:
            return self.rules[number].read(message, question)
        except ValueError as error:
            return LostShard(
                f"shard {number + 1} of {len(self.rules)} of '{self.name}' answered what cannot be merged ({error}): "
                "see the logs of its replicas, or ask with partial"
            )

    def compute_logits(self, contexts: FloatArray, ids: IdArray) -> FloatArray:
        """Exact logits [B, m] of `ids` [B, m], in one exchange; raises LostShard."""
        answers, _ = self.gather(Question(contexts, 0, self.exact, ids=ids))
        logits: FloatArray = np.maximum.reduce([answer["logits"] for answer in answers])
        return logits


class GatheredHead(Head):
    """A head as the server has it, whose plans ask shards. Threads may share it.

    Its log-probabilities are normalised over all shards. It never switches to dense for the number of rows.
    """

    def __init__(self, folder: Path, shard_list: ShardList, ask: Ask) -> None:
        """folder: of `shards.json`, from which manifests, labels, names and sets are read; raises BundleError."""
        bundles = [open_shard_bundle(folder, entry, verify=False) for entry in shard_list.shards]
        manifests = [bundle.manifest for bundle in bundles]
        self.manifest = gather_manifests(shard_list, manifests)
        self.folder, self.labels, self.names = folder, gather_labels(bundles), gather_names(bundles)
        self.sets = ClassSets([folder / SETS_FOLDER], shard_list.classes, shard_list.name)
        self.device, self.threads, self.kernels = "cpu", 1, None
        self.dense = self.certified = self.row_answers = self.exact_answers = None
        rules = [
            AnswerRules(ClassRange(entry.start, entry.stop), manifest.max_k)
            for entry, manifest in zip(shard_list.shards, manifests, strict=True)
        ]
        self.plan = GatheredPlan(ask, shard_list, rules, exact=False)
        self.exact = self.exact_plan = GatheredPlan(ask, shard_list, rules, exact=True)

    def make_probe(self) -> FloatArray:
        """One context vector [1, d], of zeros, by which shards are asked whether they answer."""
        return np.zeros((1, self.manifest.dim), np.float32)

    def choose_plan(self, rows: int, k: int, exact: bool, *, proof: bool = True) -> tuple[Plan, str]:
        if not exact:
            return self.plan, self.manifest.normalizer
        return self.exact_plan, "bounded" if proof and self.manifest.exact_plan is not None else "exact"

    def choose_sample_plan(self, rows: int, top_k: int | None, bias: Bias | None) -> tuple[Plan, str]:
        if top_k is None:
            raise Unsupported(f"{self.manifest.name} is in shards, which draw from the k best alone: give a k")
        return super().choose_sample_plan(rows, top_k, bias)

    def run(
        self, plan: Plan, contexts: FloatArray, k: int, class_filter: ClassFilter, bias: Bias | None = None
    ) -> PlanResult:
        assert isinstance(plan, GatheredPlan), "a gathered head has no others"
        return plan.search(contexts, k, class_filter, bias)

    def compute_logits(self, plan: Plan, contexts: FloatArray, classes: IdArray) -> FloatArray:
        assert isinstance(plan, GatheredPlan), "a gathered head has no others"
        return plan.compute_logits(contexts, classes)


def pad_classes(result: PlanResult, k: int) -> PlanResult:
    """The result with k classes a row, -1 where shards that are left have fewer."""
    missing = k - result.ids.shape[1]
    if missing <= 0:
        return result
    padding = (0, 0), (0, missing)
    result.ids = np.pad(result.ids, padding, constant_values=-1)
    result.logits = np.pad(result.logits, padding, constant_values=-np.inf)
    if result.weights is not None:
        result.weights = np.pad(result.weights, padding)
    return result


def gather_manifests(shard_list: ShardList, manifests: Sequence[Manifest]) -> Manifest:
    """The manifest of the whole head; what is said of all shards holds for it, and no quality was measured."""
    certificates = [manifest.certificate for manifest in manifests]
    proved = all(certificate is not None for certificate in certificates)
    bounds = [certificate.logprob_bound for certificate in certificates if certificate is not None]
    certificate = manifests[0].certificate if proved else None
    return manifests[0].model_copy(
        update={
            **shard_list.model_dump(include={"name", "version", "classes", "dim", "max_k"}),
            "normalizer": find_weakest_normalizer([manifest.normalizer for manifest in manifests]),
            "exact_plan": manifests[0].exact_plan if proved else None,
            "certificate": None
            if certificate is None
            else certificate.model_copy(update={"logprob_bound": max(bounds)}),
            "dense_crossover": None,
            "quality": None,
            "digest": shard_list.source,
        }
    )


def gather_labels(bundles: Sequence[Bundle]) -> list[str] | None:
    """The labels of all classes; None where a shard has none."""
    parts = [bundle.labels() for bundle in bundles]
    return None if None in parts else [label for part in parts for label in part or ()]


def gather_names(bundles: Sequence[Bundle]) -> Names | None:
    """The names of all classes; None where a shard has none."""
    parts = [bundle.names() for bundle in bundles]
    names = [text for part in parts if part is not None for text in part.read(np.arange(len(part.classes))).tolist()]
    return None if None in parts else Names.make(names)
