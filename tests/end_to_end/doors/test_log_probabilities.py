"""Log-probabilities of given classes: every door answers alike or refuses alike."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support.layers import DIM

from .doors import ROWS, WIDTHS, Doors, find_outcome
from .sending import convert_to_json, convert_to_tensor

pytestmark = pytest.mark.slow


class ScoreCase(NamedTuple):
    """Arguments of one request for log-probabilities, and the sentence that refuses it."""

    ids: Any
    sentence: str | None = None
    contexts: Any = ROWS


SCORES = {
    "a flat list": ScoreCase([1, 2, 299]),
    "one list, nested": ScoreCase([[1, 2, 299]]),
    "lists": ScoreCase([[1, 2], [3, 4], [5, -1]]),
    "ragged lists": ScoreCase([[1, 2], [3], []]),
    "an empty list": ScoreCase([]),
    "empty lists": ScoreCase([[], [], []]),
    **{f"flat {np.dtype(width)}": ScoreCase(np.array([1, 2, 100], width)) for width in WIDTHS},
    "no rows": ScoreCase([1, 2], contexts=[]),
    "too few lists": ScoreCase([[1], [2]], "ids has 2 rows for 3 contexts: give one list for all, or one a row"),
    "a class too high": ScoreCase([300], "ids holds id 300 but classes go from 0 to 299"),
    "half a class": ScoreCase([[0.5]], "ids row 0 must be a list of whole numbers alone"),
    "too wide": ScoreCase([1], "contexts have shape [3, 15] but lm takes [rows, 16]", ROWS[:, 1:]),
    "scores over float32": ScoreCase(
        [1], "contexts row 1 is so large that its scores overflow float32: scale it down",
        np.concatenate([ROWS[:1], np.full((1, DIM), 3e38, np.float32)])
    ),
}  # fmt: skip


def score_by_head(doors: Doors, case: ScoreCase) -> np.ndarray:
    return doors.heads["lm"].logprobs(case.contexts, case.ids)


def score_by_client(doors: Doors, case: ScoreCase) -> np.ndarray:
    return doors.client.logprobs("lm", case.contexts, case.ids)


def score_by_async_client(doors: Doors, case: ScoreCase) -> np.ndarray:
    return doors.call_async_client("logprobs", "lm", case.contexts, case.ids)


def score_by_v1(doors: Doors, case: ScoreCase) -> np.ndarray:
    fields = {"model": "lm", "contexts": convert_to_json(case.contexts), "ids": convert_to_json(case.ids)}
    logprobs = np.array(doors.post("/v1/score", fields)["logprobs"], np.float64)
    return np.where(np.isnan(logprobs), -np.inf, logprobs)


def score_by_v2(doors: Doors, case: ScoreCase) -> np.ndarray:
    ids = convert_to_tensor(case.ids, np.int64)
    inputs = {"context": convert_to_tensor(case.contexts, np.float32), "ids": ids}
    logprobs = doors.infer("lm", inputs, ["logprobs"], {})[0]["logprobs"]
    return np.where(np.broadcast_to(ids, logprobs.shape) < 0, -np.inf, logprobs)


DOORS = {
    "head": score_by_head,
    "client": score_by_client,
    "async client": score_by_async_client,
    "v1": score_by_v1,
    "v2": score_by_v2,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", SCORES)
def test_log_probabilities_of_given_classes(doors, name, door):
    case = SCORES[name]
    outcome = find_outcome(DOORS[door], doors, case)
    if case.sentence is not None:
        assert outcome == case.sentence
        return
    expected = score_by_head(doors, case)
    assert len(expected) == len(case.contexts)
    if expected.size:
        np.testing.assert_allclose(outcome, expected, atol=1e-5)
    else:
        assert outcome.size == 0
