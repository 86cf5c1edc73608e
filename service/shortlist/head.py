"""A loaded head: checks its input, decides between plan and dense, computes in chunks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.bundle.class_sets import SETS_FOLDER, ClassSets, SetNames
from shortlist.bundle.manifest import Manifest
from shortlist.bundle.names import require_names
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.bundle.settings import PlanSettings
from shortlist.core.bias import Bias, BiasLike, parse_bias
from shortlist.core.filters import UNRESTRICTED, ClassFilter, IdLists
from shortlist.core.results import FloatArray, IdArray, PlanResult, TopK, read_labels, require_labels
from shortlist.kernels.native.library import name_target
from shortlist.kernels.row_answers import answer_rows
from shortlist.plans.common.base import Plan, map_chunks, run_by_chunks, score_by_distribution, score_chunks
from shortlist.plans.common.biased import search_biased
from shortlist.plans.common.crossover import is_many, keep_single_rows, measure_crossover
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.list_ways import ListWays, search_free_rows_apart, search_long_lists_apart
from shortlist.plans.common.normalizer import check_overflow, cover_classes, make_scored_topk, make_topk
from shortlist.plans.registry import CertifiedPlan, FullPlan, open_plan, open_proofs
from shortlist.runtime.devices import resolve_device
from shortlist.runtime.threads import choose_threads

from .errors import BadInput, BundleError
from .head_sampling import SampledHead

CROSSOVER_K = 5  # classes asked for where plans are timed against dense


class Head(SampledHead):
    """The function contexts -> top-k classes with log-probabilities. Threads may share it.

    plan: what answers. dense: the dense head, or None. exact: what answers exact requests, the dense head or, of a head
    that is its own reference, its whole distribution; or None. certified: what proves exact answers without the dense
    layer, or None. kernels: the target of the compiled loops, as `avx2`; None where graphs answer in their place.
    exact_rows: exact logits of given classes, None of a head that is its own reference. ways: how rows with lists are
    answered, None where the plan itself does. row_answers, exact_answers: what answers few rows by one native call, as
    the plan and as exact requests; None where nothing does.
    """

    def __init__(
        self, bundle: Bundle, device: str | None = None, threads: int | None = None, dense: FullPlan | None = None
    ) -> None:
        """Open the bundle's graphs on `device`, by default the CPU, each with `threads` threads.

        dense: an open dense head of the same layer, taken for the bundle's own, so that memory holds one.
        """
        self.manifest: Manifest = bundle.manifest
        self.folder = bundle.folder
        self.labels, self.names = bundle.labels(), bundle.names()
        folders = bundle.folder.parent / SETS_FOLDER, bundle.folder / SETS_FOLDER
        self.sets = ClassSets(folders, self.manifest.classes, self.manifest.name)
        self.device = resolve_device(device)
        self.threads = choose_threads(threads)
        self.kernels = name_target() if self.device == "cpu" else None
        self.dense = self.open_dense(bundle, dense)
        with ThreadPoolExecutor(1) as pool:  # each lays out tables and opens graphs for a tenth of a second or more
            certified = pool.submit(self.open_certified, bundle, None if self.is_own_reference else self.dense)
            self.plan = self.open_plan(bundle)
        self.exact = self.plan.make_exact_plan() if self.is_own_reference else self.dense
        own = self.exact if self.is_own_reference else None
        self.certified = certified.result() or self.open_certified(bundle, own)
        if self.plan is not self.exact:  # which needs no proofs of itself, and would be kept by them in a cycle
            self.plan.prover = self.certified
        self.exact_rows = None if self.is_own_reference else ExactRows(bundle, self.device, self.threads)
        self.ways = None if self.plan is self.dense else ListWays.open(bundle, self.plan, self.exact_rows)
        self.manifest = self.with_device_crossover(bundle)
        self.row_answers = self.plan.open_answers(self.manifest.dense_crossover)
        unproved = None if self.certified else self.exact
        others = unproved.open_answers(None) if unproved and unproved is not self.plan else None
        self.exact_answers = self.row_answers if unproved is self.plan else others

    @property
    def base(self) -> Head:
        """The head as it was exported."""
        return self

    @property
    def is_own_reference(self) -> bool:
        """Whether exact answers are the head's own whole distribution; a dense head is then only compared with."""
        return self.manifest.reference == "self"

    def open_dense(self, bundle: Bundle, dense: FullPlan | None) -> FullPlan | None:
        """`dense`, or the bundle's own dense head; None where it was exported without."""
        if not bundle.has_graph("dense"):
            return None
        return dense or FullPlan(bundle, self.device, self.threads)

    def open_plan(self, bundle: Bundle) -> Plan:
        """The plan that the manifest names; dense is opened once."""
        if self.manifest.plan == "full" and self.dense is not None:
            return self.dense
        return open_plan(bundle, self.device, self.threads, None if self.is_own_reference else self.dense)

    def open_certified(self, bundle: Bundle, exact: Plan | None) -> CertifiedPlan | None:
        """What proves the answers of `exact`; None where the manifest names none, and on other devices than the CPU."""
        if exact is None or self.manifest.exact_plan is None or self.device != "cpu":
            return None
        return open_proofs(bundle, self.device, self.threads, exact)

    def with_device_crossover(self, bundle: Bundle) -> Manifest:
        """The manifest, with this device's own crossover for that of the CPU which exported the bundle."""
        if self.device == "cpu" or not self.manifest.fallback or self.is_own_reference:
            return self.manifest
        rows = self.measure_crossover(self.plan, bundle.tensors(CALIBRATION_FILE)["contexts"])
        return self.manifest.model_copy(update={"dense_crossover": keep_single_rows(rows)})

    def measure_crossover(self, plan: Plan, contexts: FloatArray) -> int | None:
        """From how many rows on the exact head is at least as fast as `plan`, by timing both on `contexts` [n, d].

        None where it never is, or where there is no exact head beside the plan.
        """
        dense, k = self.exact, min(CROSSOVER_K, self.manifest.max_k)
        if dense is None or dense is plan:
            return None
        own, exact = (partial(self.run, each, k=k, class_filter=UNRESTRICTED) for each in (plan, dense))
        return measure_crossover(own, exact, contexts)

    def with_identity(self, name: str, version: int) -> Head:
        """The same head under another name and version, which it shares everything else with."""
        other = copy(self)
        other.manifest = self.manifest.model_copy(update={"name": name, "version": version})
        return other

    def with_settings(self, **changes: Any) -> Head:
        """The same head, searching otherwise: `head.with_settings(previewed=8192)` looks further.

        changes: settings of its plan, from `shortlist.bundle.settings`. The new head shares weights, sessions, loops
        with this one, which stays as it is and may go on in other threads. Quality, certificate and dense crossover are
        of the export's settings. Searches that go less far than the export's state no promise. Raises BadInput.
        """
        settings = self.manifest.settings.with_changes(changes)
        settings.check_previews(changes, has_previews=self.plan.has_previews)
        return self.with_all_settings(settings)

    def with_all_settings(self, settings: PlanSettings) -> Head:
        """As `with_settings`, of settings that none but an export chooses, too."""
        other = copy(self)
        other.manifest = self.manifest.model_copy(update={"settings": settings})
        other.plan = self.plan if settings == self.manifest.settings else self.plan.with_settings(settings)
        other.row_answers = other.plan.open_answers(self.manifest.dense_crossover)
        other.ways = self.ways and self.ways.with_plan(other.plan)
        return other

    def topk(
        self,
        contexts: npt.ArrayLike,
        k: int,
        *,
        allow: IdLists = None,
        ban: IdLists = None,
        within: SetNames = None,
        without: SetNames = None,
        bias: BiasLike = None,
        exact: bool = False,
        labels: bool = False,
        risk: bool = False,
        scores: bool = False,
        names: bool = False,
    ) -> TopK:
        """The k best classes of each context vector.

        contexts: [B, d] float32, finite. k: 1..max_k. allow, ban: ids for all rows [m], or a list for each row, of any
        lengths or padded with -1; names in place of ids where the bundle has some, of which `ban` leaves out those that
        no class has. within, without: a name or a list of names of sets, for all rows: only classes in all of them,
        and in none of them. bias: {id: weight} for all rows, or a list of such, added to the logits before the k best
        are taken; the log-probabilities are those without it. exact: the dense head's answer, by proof where the bundle
        has bounds (`bounded`), else by that head itself; of a head that is its own reference, that of its whole
        distribution. labels, risk, scores, names: also those of `TopK`. From `manifest.dense_crossover` rows on the
        dense head answers, where there is one. Raises BadInput, and NotFound for a set that there is not.
        """
        answers, members = self.exact_answers if exact else self.row_answers, self.find_members(within, without)
        is_plain = bias is None and not (labels or scores or names) and (not risk or (answers and answers.states_risk))
        if is_plain and answers and (answer := answer_rows(answers, contexts, k, allow, ban, members)) is not None:
            top = TopK(*answer, "exact" if exact else self.manifest.normalizer, promise=answers.find_promise(k))
            top.risk = answers.read_risk(answer) if risk else None
            return top
        label_array = require_labels(self.label_array, self.manifest.name) if labels else None
        name_table = require_names(self.names, self.manifest.name) if names else None
        rows, k = self.check_contexts(contexts), self.check_k(k)
        class_filter = self.restrict_lists(allow, ban, len(rows), members)
        weights = parse_bias(bias, len(rows), self.classes)
        plan, normalizer = self.choose_plan(len(rows), k, exact, proof=weights is None)
        top = (make_scored_topk if scores else make_topk)(self.run(plan, rows, k, class_filter, weights), normalizer)
        top.labels = None if label_array is None else read_labels(label_array, top.ids)
        top.names = None if name_table is None else name_table.read(top.ids)
        top.risk = top.complete_risk(self.manifest.classes) if risk else None
        top.promise = self.manifest.find_promise(normalizer, k)
        return top

    def topk_by_plan(self, contexts: FloatArray, k: int) -> TopK:
        """As `topk`, by the plan alone: never by dense for its number of rows or its k. For measuring a head."""
        return make_topk(self.run(self.plan, contexts, k, UNRESTRICTED), self.manifest.normalizer)

    def logprobs(self, contexts: npt.ArrayLike, ids: npt.ArrayLike, *, exact: bool = False) -> FloatArray:
        """Log-probabilities [B, m] float32 of `ids` (-1 gives -inf), normalised as `topk` does.

        ids: [m] for all rows, or a list for each row, of any lengths or padded with -1. exact: normalised as exact
        answers of `topk` are. None is over 0, and the probabilities of one row's classes add up to at most 1: the
        normaliser holds all of them. Raises BadInput.
        """
        rows = self.check_contexts(contexts)
        class_ids = self.check_ids(ids, len(rows))
        plan, _ = self.choose_score_plan(len(rows), class_ids.shape[1], exact)
        return self.score(plan, rows, class_ids)

    def score(self, plan: Plan, rows: FloatArray, class_ids: IdArray, first_row: int = 0) -> FloatArray:
        """`logprobs` of checked arrays, normalised by `plan`; errors count rows from `first_row`."""
        if class_ids.size == 0:
            return np.empty(class_ids.shape, np.float32)

        def score_chunk(contexts: FloatArray, start: int) -> FloatArray:
            return self.score_rows(plan, contexts, class_ids[start : start + len(contexts)], first_row + start)

        try:
            return np.concatenate(map_chunks(plan.max_rows(), rows, score_chunk))
        except IndexError as error:
            raise self.make_contradiction_error() from error

    def score_rows(self, plan: Plan, contexts: FloatArray, ids: IdArray, start: int) -> FloatArray:
        """`score` of the rows from `start` on, so few that the plan takes them in one call."""
        classes = np.maximum(ids, 0)
        logits = self.compute_logits(plan, contexts, classes)
        check_overflow(logits.max(axis=1), start)
        normalizer = cover_classes(plan.compute_log_normalizer(contexts, ids, logits), ids, logits)
        check_overflow(normalizer, start)
        return np.where(ids < 0, np.float32(-np.inf), logits - normalizer[:, None])

    def compute_logits(self, plan: Plan, contexts: FloatArray, classes: IdArray) -> FloatArray:
        """Exact logits [b, m] of `classes` [b, m], of so few rows that the plan takes them; padding has -inf."""
        if self.exact_rows is None:
            return score_by_distribution(plan, contexts, classes)
        return self.exact_rows(contexts, classes)

    def choose_plan(self, rows: int, k: int, exact: bool, *, proof: bool = True) -> tuple[Plan, str]:
        """The plan for the k best of one request and its normaliser; decided by its number of rows and its k alone.

        proof: whether an exact answer may be a proved one; what is proved of logits says nothing of biased ones.
        """
        plan = self.certified if proof else None
        if exact and plan is not None and not plan.prefers_dense(k) and not is_many(rows, plan.crossover):
            return plan, "bounded"
        if self.exact is not None and (
            exact or is_many(rows, self.manifest.dense_crossover) or self.plan.prefers_dense(k)
        ):
            return self.exact, "exact"
        if exact:
            raise BadInput(f"{self.manifest.name} was exported with --no-dense, so it has no exact answers")
        return self.plan, self.manifest.normalizer

    def choose_score_plan(self, rows: int, classes: int, exact: bool) -> tuple[Plan, str]:
        """As `choose_plan`, for log-probabilities of so many given `classes` a row; exact ones agree with `topk`'s."""
        return self.choose_plan(rows, classes if exact else 1, exact)

    def run(
        self, plan: Plan, contexts: FloatArray, k: int, class_filter: ClassFilter, bias: Bias | None = None
    ) -> PlanResult:
        """`plan` over the rows, chunk by chunk; raises BundleError where the bundle's graphs contradict its arrays."""
        if bias is not None:
            score = partial(score_chunks, partial(self.compute_logits, plan), plan, contexts)
            return search_biased(partial(self.run, plan, contexts, k), score, class_filter, bias, self.classes)
        return search_free_rows_apart(partial(self.run_chunks, plan), contexts, k, class_filter)

    def run_chunks(self, plan: Plan, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """`run`, chunk by chunk, of rows that all have lists or that all have none."""
        try:
            search = plan.topk if self.ways is None else self.ways.choose_search(plan, class_filter)
            search = partial(search_long_lists_apart, search, plan)
            if 0 < len(contexts) <= plan.max_rows():
                return search(contexts, k, class_filter)
            return run_by_chunks(lambda rows, part: search(rows, k, part), contexts, class_filter, plan.max_rows())
        except IndexError as error:
            raise self.make_contradiction_error() from error

    def make_contradiction_error(self) -> BundleError:
        """The error for a place that a graph returned and that its array does not have."""
        return BundleError(f"a graph of {self.folder} answers what its arrays do not hold: export the bundle again")


def load(path: str | Path, *, device: str | None = None, threads: int | None = None, verify: bool = True) -> Head:
    """Open the bundle at `path` (`<name>/<version>`).

    device: `cpu` or `cuda:N`; by default SHORTLIST_DEVICE, else cpu. threads: of each session; by default what
    the control group grants. verify: hash every file first (about 1 s per GB).
    Raises NotFound, BundleError, DeviceError, MissingExtra.
    """
    return Head(Bundle(Path(path), verify=verify), device, threads)
