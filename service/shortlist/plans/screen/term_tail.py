"""Classes outside a row's sets in its normaliser, by a sum of a few exponentials."""

from __future__ import annotations

import numpy as np

from shortlist.core.results import FloatArray, PlanResult
from shortlist.kernels.unscored import TO_DENSE
from shortlist.runtime.session import Graph


class TermTail:
    """Over terms.onnx: `context` [B, d] -> `tail` [B], the log of the sum of exp(logit) over the classes in no set.

    limit: nats that this may be over the sets' own sum.
    """

    def __init__(self, graph: Graph, limit: float) -> None:
        self.graph, self.limit = graph, np.float32(limit)

    def guess(self, contexts: FloatArray, inside: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log-normalisers [B] of `contexts` [B, d] whose sets add up to exp(inside) [B].

        Beside them the log [B] of the rest over the sets' sum.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what overflows
            rest = np.minimum(self.graph(context=contexts)[0], inside + self.limit)
            return np.logaddexp(inside, rest), rest - inside

    def finish(self, result: PlanResult, contexts: FloatArray, dense_tail: float | None) -> PlanResult:
        """Add the rest to the normalisers of `result` in place; mark with TO_DENSE the rows that dense has to answer.

        contexts: [B, d]. dense_tail: nats of the rest over the sets' sum above which that is; None for no row. Rows
        without an answer stay so.
        """
        rows = np.flatnonzero(result.scored > 0)
        if rows.size:
            result.log_normalizer[rows], over = self.guess(contexts[rows], result.log_normalizer[rows])
            if dense_tail is not None:
                result.scored[rows[over > dense_tail]] = TO_DENSE
        return result
