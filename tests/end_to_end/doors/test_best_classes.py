"""Best classes: every door answers alike or refuses alike."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import shortlist
from shortlist.core.results import TopK

from tests.support.heads.grouped import promise_contexts
from tests.support.layers import DIM

from .doors import Doors, find_outcome
from .sending import Unsendable, convert_to_inputs, convert_to_json, convert_to_tensor
from .topk_cases import PROMISE_ROWS, TOPK, Case

pytestmark = pytest.mark.slow


def ask_head(doors: Doors, case: Case) -> TopK:
    return doors.heads[case.model].topk(case.contexts, case.k, **case.options)


def ask_client(doors: Doors, case: Case) -> TopK:
    return doors.client.topk(case.model, case.contexts, case.k, **case.options)


def ask_async_client(doors: Doors, case: Case) -> TopK:
    return doors.call_async_client("topk", case.model, case.contexts, case.k, **case.options)


def ask_v1(doors: Doors, case: Case) -> TopK:
    if len(case.contexts) == 0 and np.shape(case.contexts) not in ((0,), (0, DIM)):
        raise Unsendable
    fields = {"model": case.model, "contexts": case.contexts, "k": case.k} | case.options
    content = doors.post("/v1/topk", {name: convert_to_json(value) for name, value in fields.items()})
    shape = len(content["ids"]), int(case.k)
    risk = np.array(content["risk"], np.float32) if "risk" in content else None
    logprobs = np.array(content["logprobs"], np.float64).reshape(shape)
    return TopK(
        np.array(content["ids"], np.int64).reshape(shape),
        np.where(np.isnan(logprobs), -np.inf, logprobs),
        np.array(content["scored"], np.int32),
        content["normalizer"],
        np.array(content["labels"], object).reshape(shape) if "labels" in content else None,
        risk,
    )


def ask_v2(doors: Doors, case: Case) -> TopK:
    options = dict(case.options)
    inputs = {"context": convert_to_tensor(case.contexts, np.float32)} | convert_to_inputs(options)
    outputs = ["ids", "logprobs", "scored"] + ["labels"] * bool(options.get("labels"))
    outputs += ["risk"] * bool(options.get("risk"))
    parameters = {"k": convert_to_json(case.k), "exact": options.get("exact", False)}
    arrays, normalizer = doors.infer(case.model, inputs, outputs, parameters)
    if "labels" in arrays:
        arrays["labels"] = np.where(arrays["ids"] < 0, None, arrays["labels"].astype(object))
    arrays["logprobs"] = np.where(arrays["ids"] < 0, -np.inf, arrays["logprobs"])
    names = ("ids", "logprobs", "scored")
    risk = arrays["risk"].astype(np.float32) if "risk" in arrays else None
    return TopK(*(arrays[name] for name in names), normalizer, arrays.get("labels"), risk)


DOORS = {
    "head": ask_head,
    "client": ask_client,
    "async client": ask_async_client,
    "v1": ask_v1,
    "v2": ask_v2,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", TOPK)
def test_best_classes(doors, name, door):
    case = TOPK[name]
    outcome = find_outcome(DOORS[door], doors, case)
    if case.sentence is not None:
        assert outcome == case.sentence
        return
    expected = ask_head(doors, case)
    assert outcome.ids.shape == (len(case.contexts), case.k)
    np.testing.assert_array_equal(outcome.ids, expected.ids)
    np.testing.assert_allclose(outcome.logprobs, expected.logprobs, atol=1e-5)
    np.testing.assert_array_equal(outcome.scored, expected.scored)
    assert outcome.normalizer == expected.normalizer
    assert (outcome.risk is None) == (not case.options.get("risk"))
    if outcome.risk is not None:
        np.testing.assert_allclose(outcome.risk, expected.risk, rtol=1e-5, equal_nan=True)
    wanted = [[None if id < 0 else f"word {id}" for id in row] for row in expected.ids.tolist()]
    assert (None if outcome.labels is None else outcome.labels.tolist()) == (
        wanted if case.options.get("labels") else None
    )


def test_risk_is_of_the_answer(doors):
    """0 where dense or a proof answered, a probability where the plan estimates one, not a number elsewhere."""
    estimated = ask_head(doors, TOPK["risk by a promise"]).risk
    assert ((estimated >= 0) & (estimated < 1)).all()
    assert (estimated > 0).any()
    assert np.isnan(ask_head(doors, TOPK["risk where none is estimated"]).risk).all()
    for name in ("risk of exact answers", "risk of a dense head"):
        np.testing.assert_array_equal(ask_head(doors, TOPK[name]).risk, np.zeros(3, np.float32))


def test_risk_is_the_row_s_own_in_batches_of_many(doors):
    """Rows of several requests share a call; each gets its own risk."""
    rows = promise_contexts.contexts[-64:]
    expected = doors.heads["grouped"].topk(rows, 4, risk=True).risk

    async def ask() -> list[TopK]:
        async with shortlist.AsyncClient(doors.url) as client:
            parts = np.split(rows, 16)
            return await asyncio.gather(*(client.topk("grouped", part, 4, risk=True) for part in parts))

    np.testing.assert_allclose(TopK.concat(asyncio.run(ask())).risk, expected, rtol=1e-5)


def test_risks_are_counted(doors):
    ask_client(doors, TOPK["risk by a promise"])
    ask_client(doors, TOPK["plain"])
    lines = doors.http.get("/metrics").text.splitlines()
    counts = [line for line in lines if line.startswith("shortlist_risk_count")]
    assert len(counts) == 1
    assert 'model="grouped"' in counts[0]
    assert float(counts[0].split()[-1]) >= len(PROMISE_ROWS)
