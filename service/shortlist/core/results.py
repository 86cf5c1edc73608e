"""What a head answers with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.object_]

FloatArray = npt.NDArray[np.float32]
IdArray = npt.NDArray[np.int64]
IntArray = npt.NDArray[np.int32]

NO_CLASS = -1


@dataclass(slots=True)  # not frozen: that takes a microsecond for each
class TopK:
    """The k best classes of B context vectors, best first; equal scores by lower id.

    ids: [B, k] int64, -1 where fewer than k classes are legal.
    logprobs: [B, k] float32, natural logarithms, -inf beside an id of -1.
    scored: [B] int32, how many classes were scored for the row; V means that the dense head answered.
    normalizer: what the log-probabilities are normalised over: `exact`, `bounded`, `estimated` or `shortlist`.
    """

    ids: IdArray
    logprobs: FloatArray
    scored: IntArray
    normalizer: str


@dataclass(slots=True)  # not frozen: that takes a microsecond for each
class PlanResult:
    """A plan's answer before normalisation: what sharding and beam search need.

    ids: [B, k] int64. logits: [B, k] float32. log_normalizer: [B] float32, log of the sum of exp(logit).
    scored: [B] int32.
    """

    ids: IdArray
    logits: FloatArray
    log_normalizer: FloatArray
    scored: IntArray

    def put(self, rows: IdArray | list[int], other: PlanResult) -> None:
        """Another answer's [b] in the place of these `rows`."""
        self.ids[rows], self.logits[rows] = other.ids, other.logits
        self.log_normalizer[rows], self.scored[rows] = other.log_normalizer, other.scored

    def topk(self, normalizer: str) -> TopK:
        """The same answer as log-probabilities."""
        by_row = self.log_normalizer[0] if len(self.ids) == 1 else self.log_normalizer[:, None]  # numbers are cheap
        return TopK(self.ids, self.logits - by_row, self.scored, normalizer)


def joined(parts: list[PlanResult]) -> PlanResult:
    """The rows of several answers, in order."""
    if len(parts) == 1:
        return parts[0]
    return PlanResult(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.log_normalizer for part in parts]),
        np.concatenate([part.scored for part in parts]),
    )


def empty_result(rows: int, k: int) -> PlanResult:
    """Uninitialised arrays for `rows` answers."""
    return PlanResult(
        np.empty((rows, k), np.int64),
        np.empty((rows, k), np.float32),
        np.empty(rows, np.float32),
        np.empty(rows, np.int32),
    )
