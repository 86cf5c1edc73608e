"""Beam steps: every door answers alike or refuses alike."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from shortlist.core.queries import BeamStep
from shortlist.decoding.step import beam_step

from tests.support.layers import make_contexts

from .doors import TABLE, Doors, find_outcome
from .sending import Unsendable, convert_to_inputs, convert_to_json, convert_to_tensor

pytestmark = pytest.mark.slow

BEAM_ROWS = make_contexts(rows=6, seed=8).contexts
BEAM_SCORES = np.array([-1.5, -0.25, -3.0, 0.0, -2.0, -7.5])


class BeamCase(NamedTuple):
    """Arguments of one beam step, and the sentence that refuses it."""

    options: dict[str, Any]
    sentence: str | None = None
    contexts: Any = BEAM_ROWS
    scores: Any = BEAM_SCORES
    finished: Any = None


BEAMS = {
    "plain": BeamCase({}),
    "exact": BeamCase({"exact": True}),
    "n": BeamCase({"n": 7}),
    "ends": BeamCase({"eos": [2, 9]}),
    "one end": BeamCase({"eos": 2}),
    "finished beams": BeamCase({}, finished=[False, True, False, False, True, True]),
    "all finished": BeamCase({}, finished=[True] * 6),
    "beams that are not there": BeamCase({}, scores=[-1.0, -np.inf, -np.inf, -2.0, -0.5, -np.inf]),
    "no beam at all": BeamCase({}, scores=[-np.inf] * 6),
    "lists": BeamCase({"allow": [[1, 2], [3], [], [4], [5], [6]], "ban": [3]}),
    "a table of lists": BeamCase({"allow": TABLE.for_rows([0, 1, 2, 0, 1, 2])}),
    "a bias": BeamCase({"bias": {5: 3.5, 200: -1.25}}),
    "a bias a row": BeamCase({"bias": [{5: 3.5}, {}, {7: 1.0, 8: 2.0}, {}, {1: 1.0}, {}]}),
    "forced": BeamCase({"forced": [3, -1, -1, 4, 5, -1]}),
    "minimum length": BeamCase({"eos": [2, 9], "min_length": 3, "lengths": [1, 2, 3, 4, 5, 6]}),
    "minimum length of all": BeamCase({"eos": [2, 9], "min_length": 3, "lengths": 2}),
    "warm": BeamCase({"temperature": 1.5}),
    "warm by row": BeamCase({"temperature": [1.5, 1.0, 0.5, 2.0, 1.0, 1.0]}),
    "over the vocabulary": BeamCase({"n": 1000}),
    "no groups": BeamCase({}, contexts=[], scores=[]),
    "rows of no whole group": BeamCase(
        {}, "contexts have 5 rows, no whole number of groups of 3: give every group 3", BEAM_ROWS[:5], BEAM_SCORES[:5]
    ),
    "too few scores": BeamCase({}, "scores has 5 entries for 6 contexts: give one a row", scores=BEAM_SCORES[:5]),
    "scores that are no numbers": BeamCase(
        {}, "scores row 1 is nan: give log-probabilities, -inf for no beam", scores=[0.0, np.nan, 0.0, 0.0, 0.0, 0.0]
    ),
    "too few flags": BeamCase({}, "finished has 2 entries for 6 contexts: give one a row", finished=[True, False]),
    "no beams": BeamCase({"beam": 0}, "beam is 0: give 1 or more"),
    "half a beam": BeamCase({"beam": 1.5}, "beam is 1.5: give a whole number"),
    "n of 0": BeamCase({"n": 0}, "n is 0: give 1 or more"),
    "an end that is no class": BeamCase({"eos": [300]}, "eos holds id 300 but classes go from 0 to 299"),
    "too few forced": BeamCase({"forced": [1]}, "forced has 1 entries for 6 contexts: give one a row"),
    "too few lists": BeamCase(
        {"allow": [[1], [2]]}, "allow has 2 rows for 6 contexts: give one list for all, or one a row"
    ),
    "no lengths": BeamCase(
        {"min_length": 2}, "min_length is 2 but lengths are missing: say how many tokens each row has"
    ),
    "cold": BeamCase({"temperature": 0.0}, "temperature is 0.0: give numbers from 0.01 to 100"),
}  # fmt: skip


def step_by_head(doors: Doors, case: BeamCase) -> BeamStep:
    return beam_step(doors.heads["lm"], case.contexts, case.scores, case.finished, **{"beam": 3} | case.options)


def step_by_client(doors: Doors, case: BeamCase) -> BeamStep:
    options = {"beam": 3} | case.options
    return doors.client.beam_step("lm", case.contexts, case.scores, case.finished, **options)


def step_by_async_client(doors: Doors, case: BeamCase) -> BeamStep:
    options = {"beam": 3} | case.options
    return doors.call_async_client("beam_step", "lm", case.contexts, case.scores, case.finished, **options)


def step_by_v1(doors: Doors, case: BeamCase) -> BeamStep:
    if np.isnan(case.scores).any():
        raise Unsendable
    fields = {"model": "lm", "beam": 3} | case.options
    body = {name: convert_to_json(value) for name, value in fields.items()}
    scores = [None if score == -np.inf else score for score in np.asarray(case.scores).tolist()]
    body |= {"contexts": convert_to_json(case.contexts), "scores": scores, "finished": case.finished}
    content = doors.post("/v1/beam/step", body)
    return read_step(content, len(content["ids"]), content["normalizer"])


def step_by_v2(doors: Doors, case: BeamCase) -> BeamStep:
    options = {"beam": 3} | case.options
    inputs = {"context": convert_to_tensor(case.contexts, np.float32), "scores": np.asarray(case.scores, np.float64)}
    if not np.isfinite(case.scores).all():
        raise Unsendable
    inputs |= convert_to_inputs(options)
    if case.finished is not None:
        inputs["finished"] = np.array(case.finished)
    for name in ("eos", "forced", "lengths"):
        if isinstance(options.get(name), list):
            inputs[name] = np.array(options[name])
    if isinstance(options.get("temperature"), list):
        inputs["temperature"] = np.array(options["temperature"])
    names = ("beam", "n", "eos", "min_length", "lengths", "temperature", "exact")
    parameters = {name: options[name] for name in names if name in options and name not in inputs}
    arrays, normalizer = doors.infer("lm", inputs, ["parents", "ids", "scores", "logprobs"], parameters)
    return read_step(arrays, len(arrays["ids"]), normalizer)


def read_step(content: dict[str, Any], groups: int, normalizer: str) -> BeamStep:
    """The arrays of a step in JSON, where null or the least float32 stands for minus infinity."""
    ids = np.array(content["ids"], np.int64).reshape(groups, -1 if groups else 0)
    parents = np.array(content["parents"], np.int32).reshape(ids.shape)
    scores, logprobs = (np.array(content[name], np.float64).reshape(ids.shape) for name in ("scores", "logprobs"))
    scores, logprobs = (np.where(parents < 0, -np.inf, values) for values in (scores, logprobs))
    return BeamStep(parents, ids, scores, logprobs, normalizer)


DOORS = {
    "head": step_by_head,
    "client": step_by_client,
    "async client": step_by_async_client,
    "v1": step_by_v1,
    "v2": step_by_v2,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", BEAMS)
def test_beam_steps(doors, name, door):
    case = BEAMS[name]
    outcome = find_outcome(DOORS[door], doors, case)
    if case.sentence is not None:
        assert outcome == case.sentence
        return
    expected = step_by_head(doors, case)
    if not len(case.contexts):
        assert outcome.ids.size == 0
        return
    np.testing.assert_array_equal(outcome.parents, expected.parents)
    np.testing.assert_array_equal(outcome.ids, expected.ids)
    np.testing.assert_allclose(outcome.scores, expected.scores, atol=1e-5)
    np.testing.assert_allclose(outcome.logprobs, expected.logprobs, atol=1e-5)
    assert outcome.normalizer == expected.normalizer
