"""Plan `gated`: the gate picks one expert, and only its classes are scored.

The search never widens: outside the chosen expert every class has probability 0 in the head's own distribution. A row
is filled up with id -1 and log-probability -inf where the expert has fewer than k permitted classes.
"""

from __future__ import annotations

import numpy as np

from shortlist.bundle.reader import INDEX_FILE, Bundle
from shortlist.bundle.settings import GatedSettings
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult
from shortlist.kernels.row_answers import RowAnswers
from shortlist.kernels.screen import GateLoops
from shortlist.plans.common.base import MAX_SETS_K, RESCORED_PER_K, Plan, chunk_rows, take_best
from shortlist.plans.common.normalizer import log_sum_exp
from shortlist.runtime.session import Graph

from .merge import RowGroup, scatter
from .set_graphs import BEST_OUTPUTS, open_set_graphs
from .sets import CandidateSets

ONE_CALL_OUTPUTS = ["cluster", "top_logits", "top_position", "log_normalizer"]
MAX_FUSED_ROWS = 4  # rows that are faster by a call of `fused` each than by one of `batch`
MAX_LOOP_ROWS = 32  # rows that loops score faster than `batch`, which reads an expert once for all its rows


class GatedPlan(Plan):
    """Over gate.onnx and one graph an expert, each scaled by the gate's score.

    gate: `context` [B, d] -> `scores` [B, K]. expert-NNNN: `context` [B, d], `scale` [B, 1], `k` [1] -> `logits`
    [B, n], `top_logits`, `top_index` [B, k], `log_normalizer` [B]. preview-NNNN, where there is one: as the expert's,
    without `logits` and with `n` [1], how many previews are scored exactly, at least the setting `full_view`. fused,
    where there is one: the gate and the best expert of a single row in one call. batch, where there is one: the same
    of any number of rows. any, where there is one: as every expert's, with `first` and `last` [1], its classes' place
    among all; the experts' own graphs are not opened then.

    index.safetensors: `ids` of all experts end to end, ascending in each, and `offsets` [K + 1].
    """

    settings: GatedSettings

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        self.settings, self.fallback = bundle.settings(GatedSettings), fallback
        index = bundle.tensors(INDEX_FILE)
        self.classes = bundle.manifest.classes
        self.sets = CandidateSets(index)
        self.gate = Graph(bundle.graph("gate"), device, threads)
        self.experts = open_set_graphs(bundle, "expert", self.sets.offsets, device, threads)
        self.previews = {
            number: Graph(bundle.graph(f"preview-{number:04d}"), device, threads)
            for number in range(self.sets.count)
            if bundle.has_graph(f"preview-{number:04d}")
        }
        self.fused = Graph(bundle.graph("fused"), device, threads) if bundle.has_graph("fused") else None
        self.loops = GateLoops.open(bundle, index, threads) if device == "cpu" else None
        # Hundreds of small nodes: on the CPU alone is launching them cheap
        batch = device == "cpu" and bundle.has_graph("batch")
        self.batch = Graph(bundle.graph("batch"), device, threads, prepack=True) if batch else None
        self.most_rows = chunk_rows(max(self.sets.count, self.sets.largest))

    @property
    def has_previews(self) -> bool:
        return bool(self.previews)

    def make_exact_plan(self) -> Plan:
        """This plan with every expert scored whole."""
        whole = self.settings.model_copy(update={"previews": False})
        return self.with_settings(whole) if self.previews else self

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best permitted classes of `contexts` [B, d]; `scored` is the number of classes scored exactly."""
        if len(contexts) and k <= self.sets.smallest and not class_filter.restricts:
            if self.loops is not None and len(contexts) <= MAX_LOOP_ROWS and k <= MAX_SETS_K:
                return self.loops.run(contexts, k)
            if self.fused is not None and len(contexts) <= MAX_FUSED_ROWS:
                return PlanResult.concat([self.score_in_one_call(self.fused, row[None], k) for row in contexts])
            if self.batch is not None:
                return self.score_in_one_call(self.batch, contexts, k)
        groups = []
        for expert, rows, scale in self.route(contexts):
            if class_filter.restricts or k > self.sets.sizes[expert]:
                result = self.score_listed(contexts[rows], expert, scale, k, class_filter, rows)
            else:
                result = self.score_expert(contexts[rows], expert, scale, k)
            groups.append(RowGroup(rows.tolist(), result))
        return scatter(groups, len(contexts), k)

    def open_row_answers(self) -> RowAnswers | None:
        if self.loops is None:
            return None
        return self.loops.make_row_answers(min(self.sets.smallest, MAX_SETS_K), MAX_LOOP_ROWS)

    def score_in_one_call(self, graph: Graph, contexts: FloatArray, k: int) -> PlanResult:
        """Rows [b, d] by a graph that equals the gate and the best experts one after the other."""
        expert, top, position, log_normalizer = graph.run_outputs(
            ONE_CALL_OUTPUTS, {"context": contexts, "k": np.array([k])}
        )
        return PlanResult(self.sets.ids[position], top, log_normalizer, self.sets.sizes[expert])

    def route(self, contexts: FloatArray) -> list[tuple[int, IdArray, FloatArray]]:
        """Expert, its rows and their gate scores [n, 1], for every expert that gets any."""
        scores: FloatArray = self.gate(context=contexts)[0]
        best = scores.argmax(axis=1)
        scale = np.take_along_axis(scores, best[:, None], axis=1)
        rows_of = ((int(expert), np.flatnonzero(best == expert)) for expert in np.unique(best))
        return [(expert, rows, scale[rows]) for expert, rows in rows_of]

    def score_expert(self, contexts: FloatArray, expert: int, scale: FloatArray, k: int) -> PlanResult:
        """Rows [b, d] of one expert without lists, by its previews where it has them. scale: [b, 1], gate scores."""
        inputs = {"context": contexts, "scale": scale, "k": np.array([k])}
        preview = self.previews.get(expert) if self.settings.previews else None
        ids = self.sets.by_number[expert]
        if preview is None:
            scored, (graph, place) = ids.size, self.experts[expert]
            top, index, log_normalizer = graph.run_outputs(BEST_OUTPUTS, inputs | place)
        else:
            scored = min(ids.size, self.width(k))
            top, index, log_normalizer = preview.run_outputs(BEST_OUTPUTS, inputs | {"n": np.array([scored])})
        return PlanResult(ids[index], top, log_normalizer, np.full(len(contexts), scored, np.int32))

    def score_listed(
        self, contexts: FloatArray, expert: int, scale: FloatArray, k: int, class_filter: ClassFilter, rows: IdArray
    ) -> PlanResult:
        """Rows [b, d] of one expert with lists, or with fewer classes than k; -1 and -inf fill up a row.

        rows: [b], their numbers in `class_filter`.
        """
        ids, logits = self.sets.by_number[expert], self.score_whole(contexts, expert, scale)
        masks = (class_filter.mask(ids, row) for row in rows.tolist())
        best = [
            take_best(np.where(mask, own, np.float32(-np.inf)), ids, k) for mask, own in zip(masks, logits, strict=True)
        ]
        return PlanResult(
            np.stack([best_ids for best_ids, _ in best]),
            np.stack([best_logits for _, best_logits in best]),
            np.array([log_sum_exp(row) for row in logits], np.float32),
            np.full(len(contexts), ids.size, np.int32),
        )

    def score_whole(self, contexts: FloatArray, expert: int, scale: FloatArray) -> FloatArray:
        """Exact logits [b, n] of all of one expert's classes for rows [b, d] with gate scores [b, 1]."""
        graph, place = self.experts[expert]
        inputs = {"context": contexts, "scale": scale, "k": np.array([1])}
        logits: FloatArray = graph.run_outputs(["logits"], inputs | place)[0]
        return logits

    def compute_distribution(self, contexts: FloatArray) -> FloatArray:
        """Logits [B, V] of `contexts` [B, d], -inf outside the chosen expert."""
        logits = np.full((len(contexts), self.classes), -np.inf, np.float32)
        for expert, rows, scale in self.route(contexts):
            logits[rows[:, None], self.sets.by_number[expert]] = self.score_whole(contexts[rows], expert, scale)
        return logits

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        """Over the chosen expert, every class of which is scored exactly, as `compute_distribution` does."""
        del ids, logits
        return self.make_exact_plan().topk(contexts, 1, UNRESTRICTED).log_normalizer

    def width(self, k: int) -> int:
        """How many previews are scored exactly; without previews an expert is scored whole, whatever k."""
        previewed = self.settings.previews and self.previews
        return max(self.settings.full_view, RESCORED_PER_K * k) if previewed else 0

    def max_rows(self) -> int:
        return self.most_rows
