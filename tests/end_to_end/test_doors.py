"""One table of inputs for every door: `Head`, both clients, `/v1` and `/v2` answer alike or refuse alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import shortlist
from shortlist.core.results import TopK
from shortlist.errors import BadInput

from tests.support.layers import CLASSES, DIM, make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=6).contexts
WIDTHS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
SENTENCE_OF_LABELS = "dense was exported without labels: ask for ids alone"


class Unsendable(Exception):
    """A door has no way to say this: JSON has no NaN, a tensor no rows of different lengths."""


class Case(NamedTuple):
    """Arguments of one call, and the sentence that refuses it; None where it is answered."""

    options: dict[str, Any]
    sentence: str | None = None
    contexts: Any = ROWS
    k: Any = 4
    model: str = "lm"


TOPK = {
    "plain": Case({}),
    "exact": Case({"exact": True}),
    "a flat list": Case({"allow": [5, 1, 200]}),
    "a flat ban list": Case({"ban": [5, 1, 200]}),
    "both": Case({"allow": [5, 1, 200, 7, 8], "ban": [[5], [1], [200]]}),
    "a tuple": Case({"ban": (5, 1, 200)}),
    "numbers of numpy": Case({"ban": [np.int32(5), np.int64(1)]}),
    "a range": Case({"allow": range(20)}),
    "a list with padding": Case({"allow": [5, -1, 200, -1]}),
    "more ids than classes": Case({"allow": list(range(CLASSES)) * 2}),
    "ragged lists": Case({"allow": [[1, 2, 3], [4], []]}),
    "ragged ban lists": Case({"ban": [[1], [4, 5, 6, 7], [8, 9]]}),
    "ragged tuples": Case({"allow": ((1, 2, 3), (4,), (5, 6))}),
    "ragged arrays": Case({"allow": [np.array([1, 2, 3]), np.array([4], np.uint8), np.array([5, 6], np.int16)]}),
    "one list for all, nested": Case({"ban": [[1, 2, 3]]}),
    "an empty list": Case({"allow": []}),
    "an empty ban list": Case({"ban": []}),
    "empty lists": Case({"allow": [[], [], []]}),
    "an empty array": Case({"ban": np.empty((3, 0), np.int64)}),
    **{f"flat {np.dtype(width)}": Case({"allow": np.array([5, 1, 100], width)}) for width in WIDTHS},
    **{f"rows of {np.dtype(width)}": Case({"ban": np.array([[5, 1], [2, 3], [4, 9]], width)}) for width in WIDTHS},
    "labels": Case({"labels": True}),
    "labels of short rows": Case({"labels": True, "allow": [[5, 6], [7], []]}),
    "labels there are none of": Case({"labels": True}, SENTENCE_OF_LABELS, model="dense"),
    "no rows": Case({}, contexts=[]),
    "no rows, in an array": Case({}, contexts=np.empty((0, DIM), np.float32)),
    "no rows, with lists and labels": Case({"allow": [1, 2], "labels": True}, contexts=[]),
    "rows in lists": Case({}, contexts=ROWS.tolist()),
    "rows in float64": Case({}, contexts=ROWS.astype(np.float64)),
    "whole numbers": Case({}, contexts=np.arange(3 * DIM).reshape(3, DIM) % 5 - 2),
    "every class": Case({}, k=CLASSES),
    "numpy's k": Case({}, k=np.int16(3)),
    "too few lists": Case({"ban": [[1], [2]]}, "ban has 2 rows for 3 contexts: give one list for all, or one a row"),
    "a class too high": Case({"allow": [1, 300]}, "allow holds id 300 but classes go from 0 to 299"),
    "a class too low": Case({"ban": [[1], [2], [-2]]}, "ban holds id -2 but classes go from 0 to 299"),
    "half a class": Case({"allow": [1.5]}, "allow row 0 must be a list of whole numbers alone"),
    "half classes": Case({"allow": [[1], [2.5], [3]]}, "allow row 1 must be a list of whole numbers alone"),
    "true": Case({"ban": [True]}, "ban row 0 must be a list of whole numbers alone, not of true or false"),
    "text": Case({"ban": ["1"]}, "ban row 0 must be a list of whole numbers alone"),
    "null": Case({"ban": [None]}, "ban row 0 must be a list of whole numbers alone"),
    "a number among lists": Case({"allow": [[1], 2, [3]]}, "allow row 1 must be a list of whole numbers alone"),
    "lists too deep": Case({"allow": [[[1]]]}, "allow row 0 must be a list of whole numbers alone"),
    "a number too large": Case({"allow": [2**63]}, "allow row 0 holds a number that is too large: send smaller ones"),
    "numpy's, too large": Case(
        {"allow": np.array([[1], [2**64 - 1], [2]], np.uint64)},
        "allow row 1 holds a number that is too large: send smaller ones",
    ),
    "too wide": Case({}, "contexts have shape [2, 17] but lm takes [rows, 16]", contexts=np.zeros((2, DIM + 1))),
    "no numbers in a row": Case({}, "contexts have shape [1, 0] but lm takes [rows, 16]", contexts=[[]]),
    "too wide, no rows": Case({}, "contexts have shape [0, 7] but lm takes [rows, 16]", contexts=np.zeros((0, 7))),
    "one vector": Case(
        {}, "contexts must be a list of rows, each a list of numbers, not of shape [16]", contexts=np.zeros(DIM)
    ),
    "ragged rows": Case(
        {}, "contexts row 1 has 15 numbers but row 0 has 16: make them equal", contexts=[[0.0] * DIM, [0.0] * 15]
    ),
    "text in a row": Case({}, "contexts row 0 must be a list of numbers alone", contexts=[["1"] * DIM]),
    "null in a row": Case({}, "contexts row 1 must be a list of numbers alone", contexts=[[0.0] * DIM, [None] * DIM]),
    "true in a row": Case(
        {}, "contexts row 0 must be a list of numbers alone, not of true or false", contexts=[[True] * DIM]
    ),
    "not a number": Case(
        {}, "contexts row 1 holds NaN or infinity: send finite numbers", contexts=np.where([[0], [1]], np.nan, 1.0)
        + np.zeros((2, DIM))
    ),
    "infinite": Case(
        {}, "contexts row 0 holds NaN or infinity: send finite numbers", contexts=np.full((1, DIM), -np.inf)
    ),
    "over float32": Case(
        {}, "contexts row 0 holds NaN or infinity: send finite numbers", contexts=np.full((1, DIM), 1e300)
    ),
    "scores over float32": Case(
        {},
        "contexts row 2 is so large that its scores overflow float32: scale it down",
        contexts=np.concatenate([ROWS[:2], np.full((1, DIM), 3e38, np.float32)]),
    ),
    "k too large": Case({}, "k is 301 but lm answers k from 1 to 300", k=301),
    "k of 0": Case({}, "k is 0 but lm answers k from 1 to 300", k=0),
    "a negative k": Case({}, "k is -1 but lm answers k from 1 to 300", k=-1),
    "half a k": Case({}, "k is 2.5: give a whole number", k=2.5),
    "a k of true": Case({}, "k is True: give a whole number", k=True),
    "a k of text": Case({}, "k is 5: give a whole number", k="5"),
}  # fmt: skip


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


def to_json(values: Any) -> Any:
    """`values` as JSON holds them; raises Unsendable."""
    if isinstance(values, np.ndarray | np.generic | range):
        values = np.asarray(values).tolist()
    if isinstance(values, list | tuple):
        return [to_json(value) for value in values]
    if isinstance(values, float) and not np.isfinite(values):
        raise Unsendable
    return values


def to_tensor(values: Any, dtype: type) -> np.ndarray:
    """`values` as a client sends them, ragged lists of ids padded; raises Unsendable for what no tensor holds."""
    if isinstance(values, list | tuple) and any(isinstance(row, list | tuple | np.ndarray) for row in values):
        if not all(isinstance(row, list | tuple | np.ndarray) for row in values):
            raise Unsendable
        width = max(map(np.size, values))
        if dtype is np.int64:
            values = [[*np.atleast_1d(row).tolist(), *[-1] * (width - np.size(row))] for row in values]
    try:
        array = np.asarray(values)
    except ValueError:
        raise Unsendable from None
    if array.size == 0:
        array = array.reshape(0, DIM) if array.shape == (0,) and dtype is np.float32 else array.astype(dtype)
    whole = array.dtype.kind in "iu" and (array.size == 0 or array.max() < 2**63)
    if array.ndim > 2 or (not whole if dtype is np.int64 else array.dtype.kind not in "fiu"):
        raise Unsendable
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array.astype(dtype))


class Doors:
    """Every way to ask, with the arguments of `Head`."""

    def __init__(self, url: str, heads: dict[str, shortlist.Head]) -> None:
        self.url, self.heads = url, heads
        self.client, self.http = shortlist.Client(url), httpx.Client(base_url=url)

    def close(self) -> None:
        self.client.close()
        self.http.close()

    def ask_head(self, case: Case) -> TopK:
        return self.heads[case.model].topk(case.contexts, case.k, **case.options)

    def ask_client(self, case: Case) -> TopK:
        return self.client.topk(case.model, case.contexts, case.k, **case.options)

    def ask_async_client(self, case: Case) -> TopK:
        async def ask() -> TopK:
            async with shortlist.AsyncClient(self.url) as client:
                return await client.topk(case.model, case.contexts, case.k, **case.options)

        return asyncio.run(ask())

    def ask_v1(self, case: Case) -> TopK:
        if len(case.contexts) == 0 and np.shape(case.contexts) not in ((0,), (0, DIM)):
            raise Unsendable
        fields = {"model": case.model, "contexts": case.contexts, "k": case.k} | case.options
        content = self.post("/v1/topk", {name: to_json(value) for name, value in fields.items()})
        shape = len(content["ids"]), int(case.k)
        logprobs = np.array(content["logprobs"], np.float64).reshape(shape)
        return TopK(
            np.array(content["ids"], np.int64).reshape(shape),
            np.where(np.isnan(logprobs), -np.inf, logprobs),
            np.array(content["scored"], np.int32),
            content["normalizer"],
            np.array(content["labels"], object).reshape(shape) if "labels" in content else None,
        )

    def ask_v2(self, case: Case) -> TopK:
        options = dict(case.options)
        inputs = {"context": to_tensor(case.contexts, np.float32)}
        inputs |= {name: to_tensor(options[name], np.int64) for name in ("allow", "ban") if name in options}
        outputs = ["ids", "logprobs", "scored"] + ["labels"] * bool(options.get("labels"))
        parameters = {"k": to_json(case.k), "exact": options.get("exact", False)}
        arrays, normalizer = self.infer(case.model, inputs, outputs, parameters)
        if "labels" in arrays:
            arrays["labels"] = np.where(arrays["ids"] < 0, None, arrays["labels"].astype(object))
        arrays["logprobs"] = np.where(arrays["ids"] < 0, -np.inf, arrays["logprobs"])
        names = ("ids", "logprobs", "scored")
        return TopK(*(arrays[name] for name in names), normalizer, arrays.get("labels"))

    def score_by_head(self, case: ScoreCase) -> np.ndarray:
        return self.heads["lm"].logprobs(case.contexts, case.ids)

    def score_by_client(self, case: ScoreCase) -> np.ndarray:
        return self.client.logprobs("lm", case.contexts, case.ids)

    def score_by_async_client(self, case: ScoreCase) -> np.ndarray:
        async def ask() -> np.ndarray:
            async with shortlist.AsyncClient(self.url) as client:
                return await client.logprobs("lm", case.contexts, case.ids)

        return asyncio.run(ask())

    def score_by_v1(self, case: ScoreCase) -> np.ndarray:
        fields = {"model": "lm", "contexts": to_json(case.contexts), "ids": to_json(case.ids)}
        logprobs = np.array(self.post("/v1/score", fields)["logprobs"], np.float64)
        return np.where(np.isnan(logprobs), -np.inf, logprobs)

    def score_by_v2(self, case: ScoreCase) -> np.ndarray:
        ids = to_tensor(case.ids, np.int64)
        inputs = {"context": to_tensor(case.contexts, np.float32), "ids": ids}
        logprobs = self.infer("lm", inputs, ["logprobs"], {})[0]["logprobs"]
        return np.where(np.broadcast_to(ids, logprobs.shape) < 0, -np.inf, logprobs)

    def infer(self, model: str, inputs: dict[str, np.ndarray], outputs: list[str], parameters: dict[str, Any]) -> Any:
        names = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64"}
        entries = [
            {"name": name, "datatype": names[values.dtype], "shape": values.shape, "data": to_json(values.ravel())}
            for name, values in inputs.items()
        ]
        body = {"inputs": entries, "outputs": [{"name": name} for name in outputs], "parameters": parameters}
        content = self.post(f"/v2/models/{model}/infer", body)
        arrays = {one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in content["outputs"]}
        return arrays, content["parameters"]["normalizer"]

    def post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        response = self.http.post(path, content=json.dumps(content))
        if response.status_code == 400:
            raise BadInput(response.json()["error"])
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture(scope="module")
def doors(small_server, small_repository):
    heads = {name: shortlist.load(small_repository / name / "1", threads=1) for name in ("lm", "dense")}
    doors = Doors(small_server.url, heads)
    yield doors
    doors.close()


def find_outcome(call: Callable[[Any], Any], case: Any) -> Any:
    """What the call gives: an answer, or a sentence."""
    try:
        return call(case)
    except BadInput as error:
        return str(error)


ASKING = ("ask_head", "ask_client", "ask_async_client", "ask_v1", "ask_v2")
SCORING = ("score_by_head", "score_by_client", "score_by_async_client", "score_by_v1", "score_by_v2")


@pytest.mark.parametrize("door", ASKING)
@pytest.mark.parametrize("name", TOPK)
def test_best_classes(doors, name, door):
    case = TOPK[name]
    try:
        outcome = find_outcome(getattr(doors, door), case)
    except Unsendable:
        pytest.skip("there is no way to say this here")
    if case.sentence is not None:
        assert outcome == case.sentence
        return
    expected = doors.ask_head(case)
    assert outcome.ids.shape == (len(case.contexts), case.k)
    np.testing.assert_array_equal(outcome.ids, expected.ids)
    np.testing.assert_allclose(outcome.logprobs, expected.logprobs, atol=1e-5)
    np.testing.assert_array_equal(outcome.scored, expected.scored)
    assert outcome.normalizer == expected.normalizer
    wanted = [[None if id < 0 else f"word {id}" for id in row] for row in expected.ids.tolist()]
    assert (None if outcome.labels is None else outcome.labels.tolist()) == (
        wanted if case.options.get("labels") else None
    )


@pytest.mark.parametrize("door", SCORING)
@pytest.mark.parametrize("name", SCORES)
def test_log_probabilities_of_given_classes(doors, name, door):
    case = SCORES[name]
    try:
        outcome = find_outcome(getattr(doors, door), case)
    except Unsendable:
        pytest.skip("there is no way to say this here")
    if case.sentence is not None:
        assert outcome == case.sentence
        return
    expected = doors.score_by_head(case)
    assert len(expected) == len(case.contexts)
    if expected.size:
        np.testing.assert_allclose(outcome, expected, atol=1e-5)
    else:
        assert outcome.size == 0
