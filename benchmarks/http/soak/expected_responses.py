"""Requests of mixed sizes, each with the offline answer of every row, and whether an answer is that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import FloatArray, IdArray
from shortlist.errors import ServerError
from shortlist.head import Head
from shortlist.plans.common.base import Plan

from benchmarks.http.client.connection import RawResponse
from benchmarks.http.client.requests import ResponseArrays, make_infer, read_infer

SOAK_KS = (1, 5, 10)
MAX_SOAK_ROWS = 16
SOAK_LOGPROB_TOLERANCE = 1e-4  # nats; scores closer than this may change places


@dataclass(frozen=True)
class ExpectedResponse:
    """One request, with and without a timeout, and what must come back.

    contexts: [B, d]. ids, logprobs: [B, k]. dense: whether the dense head answers requests of so many rows.
    """

    with_timeout: bytes
    without_timeout: bytes
    contexts: FloatArray
    ids: IdArray
    logprobs: FloatArray
    dense: bool

    def describe_difference(self, response: RawResponse, head: Head) -> str | None:
        """How a response differs from the offline one, or None."""
        try:
            arrays = read_infer(response.headers, response.body)
        except ServerError as error:
            return str(error)
        if arrays.ids.shape != self.ids.shape or arrays.logprobs.shape != self.ids.shape:
            return f"shape {list(arrays.ids.shape)} instead of {list(self.ids.shape)}"
        off = float(np.abs(arrays.logprobs - self.logprobs).max())
        if not off <= SOAK_LOGPROB_TOLERANCE:
            return f"log-probabilities off by {off:.2g}"
        if np.array_equal(arrays.ids, self.ids) or self.differs_by_ties(arrays, head):
            return None
        row = int(np.flatnonzero((arrays.ids != self.ids).any(axis=1))[0])
        return f"ids {arrays.ids[row].tolist()} instead of {self.ids[row].tolist()}"

    def differs_by_ties(self, arrays: ResponseArrays, head: Head) -> bool:
        """Whether every class that is not where it was expected scores as the expected one does, and comes once."""
        if any(len(set(row)) < len(row) for row in arrays.ids.tolist()):
            return False
        scores = head.logprobs(self.contexts, arrays.ids, exact=self.dense)
        return bool((np.abs(scores - self.logprobs) <= SOAK_LOGPROB_TOLERANCE).all())


def mix_requests(head: Head, contexts: FloatArray, count: int, deadline_us: int, host: str) -> list[ExpectedResponse]:
    """`count` requests of 1 to 16 rows drawn from `contexts` [n, d]; deterministic."""
    random = np.random.default_rng(2)
    offline_rows: dict[tuple[int, int, bool], tuple[IdArray, FloatArray]] = {}
    requests = []
    for _ in range(count):
        rows = random.integers(len(contexts), size=int(random.integers(1, MAX_SOAK_ROWS + 1)))
        requests.append(
            expect_response(head, contexts, rows, int(random.choice(SOAK_KS)), deadline_us, host, offline_rows)
        )
    return requests


def choose_offline_plan(head: Head, k: int, dense: bool) -> tuple[Plan, str]:
    """The plan that answers a row, and its normaliser; `dense` is that head itself, never a proof."""
    if not dense:
        return head.choose_plan(1, k, False)
    assert head.exact is not None, "dense answers many rows"
    return head.exact, "exact"


def expect_response(
    head: Head, contexts: FloatArray, rows: IdArray, k: int, deadline_us: int, host: str, offline_rows: dict[Any, Any]
) -> ExpectedResponse:
    """One request; offline answers are of each row alone, and `answers` keeps them."""
    crossover = head.manifest.dense_crossover
    dense = crossover is not None and len(rows) >= crossover
    for row in rows.tolist():
        if (row, k, dense) not in offline_rows:
            plan, normalizer = choose_offline_plan(head, k, dense)
            top = head.run(plan, contexts[row : row + 1], k, UNRESTRICTED).topk(normalizer)
            offline_rows[row, k, dense] = top.ids[0], top.logprobs[0]
    ids, logprobs = (
        np.stack(each) for each in zip(*(offline_rows[row, k, dense] for row in rows.tolist()), strict=True)
    )
    name, batch = head.manifest.name, contexts[rows]
    with_timeout, without_timeout = make_infer(name, batch, k, timeout=deadline_us), make_infer(name, batch, k)
    return ExpectedResponse(with_timeout.to_bytes(host), without_timeout.to_bytes(host), batch, ids, logprobs, dense)
