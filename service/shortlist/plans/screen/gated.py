"""Plan `screen` with a gate: the gate picks one expert, whose classes are all there is.

Nothing widens: outside the chosen expert every class has probability 0 in the head's own distribution. A row is short
(id -1, log-probability -inf) where the expert has fewer than k legal classes.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist.bundle.reader import INDEX, Bundle
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import MOST_COMPILED, Plan, chunk_rows, log_sum_exp, take_best
from shortlist.runtime.session import Graph

if TYPE_CHECKING:
    from shortlist.kernels.screen import CompiledGate

OUTPUTS = ["top_logits", "top_index", "log_normalizer"]
FUSED = ["cluster", "top_logits", "top_position", "log_normalizer"]
FEW = 4  # rows that are faster by a call of `fused` each than by one of `batch`
FEW_COMPILED = 32  # rows that compiled loops answer faster than `batch`, which reads an expert once for all its rows
WIDEN = 4  # a request for k classes scores at least 4 k candidates of a previewed expert


class GatedPlan(Plan):
    """Over gate.onnx and one graph an expert, each scaled by the gate's score.

    gate: `context` [B, d] -> `scores` [B, K]. expert-NNNN: `context` [B, d], `scale` [B, 1], `k` [1] -> `logits`
    [B, n], `top_logits`, `top_index` [B, k], `log_normalizer` [B]. preview-NNNN, where there is one: as the expert's,
    without `logits` and with `n` [1], how many previews are scored exactly, at least the option `full_view`. fused,
    where there is one: the gate and the best expert of a single row by one call. batch, where there is one: the same
    of any number of rows. any, where there is one: as every expert's, with `first` and `last` [1], its classes' place
    among all; the experts' own graphs are not opened then.

    index.safetensors: `ids` of all experts end to end, ascending in each, and `offsets` [K + 1].
    """

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open the gate and every expert's graph."""
        index = bundle.tensors(INDEX)
        self.classes = bundle.manifest.classes
        self.full_view = int(bundle.manifest.options.get("full_view", 0))
        self.ids: IdArray = index["ids"]
        self.sets: list[IdArray] = np.split(self.ids, index["offsets"][1:-1])
        self.sizes = np.array([ids.size for ids in self.sets], np.int32)
        self.smallest = int(self.sizes.min())
        self.gate = Graph(bundle.graph("gate"), device, threads)
        names = [f"{number:04d}" for number in range(len(self.sets))]
        self.offsets: IdArray = index["offsets"]
        self.any = Graph(bundle.graph("any"), device, threads) if bundle.has_graph("any") else None
        self.experts = [] if self.any else [Graph(bundle.graph(f"expert-{name}"), device, threads) for name in names]
        self.previews = {
            number: Graph(bundle.graph(f"preview-{name}"), device, threads)
            for number, name in enumerate(names)
            if bundle.has_graph(f"preview-{name}")
        }
        self.fused = Graph(bundle.graph("fused"), device, threads) if bundle.has_graph("fused") else None
        self.compiled = compiled(bundle, index, threads) if self.fused and device == "cpu" else None
        # hundreds of small nodes: on the CPU alone is launching them cheap
        batch = device == "cpu" and bundle.has_graph("batch")
        self.batch = Graph(bundle.graph("batch"), device, threads, prepack=True) if batch else None
        self.most_rows = chunk_rows(max(len(self.sets), int(self.sizes.max())))

    def truth(self) -> Plan:
        """See Plan.truth: every expert whole."""
        if not self.previews:
            return self
        whole = copy.copy(self)
        whole.previews = {}
        return whole

    def topk(self, contexts: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
        """See Plan.topk; `scored` is the number of classes scored exactly."""
        at_once = len(contexts) and k <= self.smallest and not legal.restricts
        if at_once and self.compiled is not None and len(contexts) <= FEW_COMPILED and k <= MOST_COMPILED:
            return self.compiled(contexts, k)
        if at_once and self.fused is not None and len(contexts) <= FEW:
            return PlanResult.concat([self.answer_at_once(self.fused, row[None], k) for row in contexts])
        if at_once and self.batch is not None:
            return self.answer_at_once(self.batch, contexts, k)
        result = empty_result(len(contexts), k)
        for expert, rows, scale in self.routed(contexts):
            if legal.restricts or k > self.sizes[expert]:
                self.answer_some(contexts, expert, rows, scale, legal, result)
            else:
                self.answer_best(contexts[rows], expert, rows, scale, result)
        return result

    def answer_at_once(self, graph: Graph, contexts: FloatArray, k: int) -> PlanResult:
        """Equals the gate and the best experts one after the other, but with one call."""
        expert, top, position, normalizer = graph.run_outputs(FUSED, {"context": contexts, "k": np.array([k])})
        return PlanResult(self.ids[position], top, normalizer, self.sizes[expert])

    def routed(self, contexts: FloatArray) -> list[tuple[int, IdArray, FloatArray]]:
        """Expert, its rows and their gate scores [n, 1], for every expert that gets any."""
        scores: FloatArray = self.gate(context=contexts)[0]
        chosen = scores.argmax(axis=1)
        scale = np.take_along_axis(scores, chosen[:, None], axis=1)
        rows_of = ((int(expert), np.flatnonzero(chosen == expert)) for expert in np.unique(chosen))
        return [(expert, rows, scale[rows]) for expert, rows in rows_of]

    def answer_best(
        self, contexts: FloatArray, expert: int, rows: IdArray, scale: FloatArray, result: PlanResult
    ) -> None:
        """Rows of one expert without lists, by its preview where it has one."""
        k, size = result.ids.shape[1], int(self.sizes[expert])
        inputs = {"context": contexts, "scale": scale, "k": np.array([k])}
        graph = self.previews.get(expert)
        scored = size if graph is None else min(size, self.width(k))
        if graph is None:
            found = self.ask(expert, OUTPUTS, inputs)
        else:
            found = graph.run_outputs(OUTPUTS, inputs | {"n": np.array([scored])})
        result.logits[rows], index, result.log_normalizer[rows] = found
        result.ids[rows], result.scored[rows] = self.sets[expert][index], scored

    def ask(self, expert: int, outputs: list[str], inputs: dict[str, Any]) -> list[Any]:
        """Outputs of one expert's graph, or of the one for any."""
        if self.any is None:
            return self.experts[expert].run_outputs(outputs, inputs)
        first, last = self.offsets[expert : expert + 1], self.offsets[expert + 1 : expert + 2]
        return self.any.run_outputs(outputs, inputs | {"first": first, "last": last})

    def answer_some(
        self,
        contexts: FloatArray,
        expert: int,
        rows: IdArray,
        scale: FloatArray,
        legal: ClassFilter,
        result: PlanResult,
    ) -> None:
        """Rows of one expert with lists, or with fewer classes than are asked for: short where these run out."""
        ids = self.sets[expert]
        for row, logits in zip(rows.tolist(), self.logits(contexts[rows], expert, scale), strict=True):
            wanted = np.where(legal.mask(ids, row), logits, np.float32(-np.inf)) if legal.restricts else logits
            result.ids[row], result.logits[row] = take_best(wanted, ids, result.ids.shape[1])
            result.log_normalizer[row], result.scored[row] = log_sum_exp(logits.copy()), ids.size

    def logits(self, contexts: FloatArray, expert: int, scale: FloatArray) -> FloatArray:
        """[b, n] of one expert, exactly."""
        inputs = {"context": contexts, "scale": scale, "k": np.array([1])}
        logits: FloatArray = self.ask(expert, ["logits"], inputs)[0]
        return logits

    def log_normalizer(self, contexts: FloatArray) -> FloatArray:
        """See Plan.log_normalizer."""
        return self.topk(contexts, 1, UNRESTRICTED).log_normalizer

    def distribution(self, contexts: FloatArray) -> FloatArray:
        """See Plan.distribution; -inf outside the chosen expert."""
        found = np.full((len(contexts), self.classes), -np.inf, np.float32)
        for expert, rows, scale in self.routed(contexts):
            found[rows[:, None], self.sets[expert]] = self.logits(contexts[rows], expert, scale)
        return found

    def width(self, k: int) -> int:
        """See Plan.width: without previews an expert is scored whole, whatever k."""
        return max(self.full_view, WIDEN * k) if self.previews else 0

    def max_rows(self) -> int:
        """See Plan.max_rows."""
        return self.most_rows


def compiled(bundle: Bundle, index: dict[str, Any], threads: int) -> CompiledGate | None:
    """Rows' compiled loop; None without numba for this numpy, or with weights where it cannot read them."""
    try:
        from shortlist.kernels.screen import CompiledGate
    except ImportError:
        return None
    return CompiledGate(bundle, index, threads) if CompiledGate.reads(bundle, index) else None
