"""Classes outside a row's best in its normaliser, by a sum of a few exponentials."""

from __future__ import annotations

import numpy as np

from shortlist.core.results import FloatArray, PlanResult
from shortlist.kernels.unscored import TO_DENSE
from shortlist.runtime.session import Graph


class TermTail:
    """Over terms.onnx: `context` [B, d] -> `tail` [B], the log of the sum of exp(logit) over all but the best classes.

    beside: how many best classes. limit: nats that the rest may be over these.
    """

    def __init__(self, graph: Graph, beside: int, limit: float) -> None:
        self.graph, self.beside, self.limit = graph, beside, np.float32(limit)

    def guess(self, contexts: FloatArray, logits: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log-normalisers [B] of `contexts` [B, d] whose clusters' best classes have these exact `logits` [B, m].

        Beside them the log [B] of the rest over the best classes. A normaliser is no less than all `logits` add up to.
        """
        ordered = -np.sort(-logits, axis=1)
        inside, scored = sum_rows(ordered[:, : self.beside]), sum_rows(ordered)
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what overflows
            rest = np.minimum(self.graph(context=contexts)[0], inside + self.limit)
            return np.maximum(np.logaddexp(inside, rest), scored), rest - inside

    def finish(self, result: PlanResult, contexts: FloatArray, logits: FloatArray, dense_tail: float | None) -> None:
        """Normalise the rows of `result` in place, and mark with TO_DENSE those that dense has to answer.

        contexts: [B, d]. logits: [B, m], of all classes that are scored exactly. dense_tail: nats of the rest over the
        best classes above which that is; None for no row. Rows without an answer stay so.
        """
        rows = np.flatnonzero(result.scored > 0)
        if rows.size:
            result.log_normalizer[rows], over = self.guess(contexts[rows], logits[rows])
            if dense_tail is not None:
                result.scored[rows[over > dense_tail]] = TO_DENSE


def sum_rows(logits: FloatArray) -> FloatArray:
    """Logs [B] of the sums of exp over `logits` [B, m], whose first column has the best of each row."""
    peak = logits[:, :1]
    with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what overflows
        total: FloatArray = peak[:, 0] + np.log(np.exp(logits - peak).sum(axis=1))
    return total
