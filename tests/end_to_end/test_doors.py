"""One table of inputs for every door: `Head`, both clients, `/v1` and `/v2` answer alike or refuse alike."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
import shortlist
from shortlist.core.queries import BeamStep
from shortlist.core.results import TopK
from shortlist.core.row_lists import RowLists
from shortlist.decoding.step import beam_step
from shortlist.errors import BadInput

from tests.support.heads.grouped import promise_contexts
from tests.support.layers import CLASSES, DIM, RunningServer, make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=6).contexts
PROMISE_ROWS = promise_contexts.contexts[-5:]
WIDTHS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
BEAM_ROWS = make_contexts(rows=6, seed=8).contexts
BEAM_SCORES = np.array([-1.5, -0.25, -3.0, 0.0, -2.0, -7.5])
TABLE = RowLists.from_lists([[1, 2, 3], [4], [5, 6]])
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
    "a bias": Case({"bias": {5: 3.5, 200: -1.25}}),
    "a bias a row": Case({"bias": [{5: 3.5}, {}, {7: 1.0, 8: 2.0}]}),
    "a bias and lists": Case({"bias": {5: 30.0, 6: 20.0, 8: 9.0}, "allow": [5, 1, 7, 8], "ban": [[5], [1], []]}),
    "an exact answer with a bias": Case({"bias": {5: 3.5}, "exact": True}),
    "a bias of nothing": Case({"bias": {}}),
    "a bias of short rows": Case({"bias": {6: 2.0}, "allow": [[5, 6], [7], []], "labels": True}),
    "a bias without rows": Case({"bias": {5: 3.5}}, contexts=[]),
    "too few biases": Case(
        {"bias": [{1: 1.0}, {2: 1.0}]}, "bias has 2 rows for 3 contexts: give one list for all, or one a row"
    ),
    "a bias of no class": Case({"bias": {300: 1.0}}, "bias holds id 300 but classes go from 0 to 299"),
    "an infinite bias": Case(
        {"bias": {4: np.inf}}, "bias of id 4 is not finite: give log-weights, and ban what is not wanted"
    ),
    "a table of lists": Case({"allow": TABLE}),
    "a table of lists by number": Case({"ban": TABLE.for_rows([2, -1, 2]), "allow": [1, 2, 3, 5, 6]}),
    "a table of too few rows": Case(
        {"allow": TABLE.for_rows([0, 1])}, "allow has 2 rows for 3 contexts: give one list for all, or one a row"
    ),
    "labels": Case({"labels": True}),
    "labels of short rows": Case({"labels": True, "allow": [[5, 6], [7], []]}),
    "labels there are none of": Case({"labels": True}, SENTENCE_OF_LABELS, model="dense"),
    "no rows": Case({}, contexts=[]),
    "risk where none is estimated": Case({"risk": True}),
    "risk of exact answers": Case({"risk": True, "exact": True}),
    "risk of a dense head": Case({"risk": True}, model="dense"),
    "risk by a promise": Case({"risk": True}, contexts=PROMISE_ROWS, model="grouped"),
    "risk with lists": Case({"risk": True, "ban": range(9)}, contexts=PROMISE_ROWS, model="grouped"),
    "risk with a bias": Case({"risk": True, "bias": {5: 3.5}}, contexts=PROMISE_ROWS, model="grouped"),
    "risk of many classes": Case({"risk": True}, contexts=PROMISE_ROWS, k=40, model="grouped"),
    "risk of no rows": Case({"risk": True}, contexts=[], model="dense"),
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
    "cold": BeamCase({"temperature": 0.0}, "temperature is 0.0: give a number over 0"),
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
    if isinstance(values, RowLists):
        if (values.numbers < 0).any():
            raise Unsendable
        return [values.get_row(row).tolist() for row in range(len(values))]
    if isinstance(values, dict):
        return {str(id): to_json(weight) for id, weight in values.items()}
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


def to_inputs(options: dict[str, Any]) -> dict[str, np.ndarray]:
    """Lists and biases as inputs of /v2."""
    inputs: dict[str, np.ndarray] = {}
    for name in ("allow", "ban"):
        lists = options.get(name)
        if isinstance(lists, RowLists):
            inputs |= {name: lists.ids, f"{name}_offsets": lists.offsets, f"{name}_rows": lists.numbers}
        elif lists is not None:
            inputs[name] = to_tensor(lists, np.int64)
    bias = options.get("bias")
    if bias:
        rows = [bias] if isinstance(bias, dict) else bias
        width = max(map(len, rows))
        inputs["bias_ids"] = np.array([[*row, *[-1] * (width - len(row))] for row in rows])
        inputs["bias"] = np.array([[*row.values(), *[0.0] * (width - len(row))] for row in rows], np.float32)
    return inputs


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

    def ask_v2(self, case: Case) -> TopK:
        options = dict(case.options)
        inputs = {"context": to_tensor(case.contexts, np.float32)} | to_inputs(options)
        outputs = ["ids", "logprobs", "scored"] + ["labels"] * bool(options.get("labels"))
        outputs += ["risk"] * bool(options.get("risk"))
        parameters = {"k": to_json(case.k), "exact": options.get("exact", False)}
        arrays, normalizer = self.infer(case.model, inputs, outputs, parameters)
        if "labels" in arrays:
            arrays["labels"] = np.where(arrays["ids"] < 0, None, arrays["labels"].astype(object))
        arrays["logprobs"] = np.where(arrays["ids"] < 0, -np.inf, arrays["logprobs"])
        names = ("ids", "logprobs", "scored")
        risk = arrays["risk"].astype(np.float32) if "risk" in arrays else None
        return TopK(*(arrays[name] for name in names), normalizer, arrays.get("labels"), risk)

    def step_by_head(self, case: BeamCase) -> BeamStep:
        return beam_step(self.heads["lm"], case.contexts, case.scores, case.finished, **{"beam": 3} | case.options)

    def step_by_client(self, case: BeamCase) -> BeamStep:
        options = {"beam": 3} | case.options
        return self.client.beam_step("lm", case.contexts, case.scores, case.finished, **options)

    def step_by_async_client(self, case: BeamCase) -> BeamStep:
        async def ask() -> BeamStep:
            async with shortlist.AsyncClient(self.url) as client:
                options = {"beam": 3} | case.options
                return await client.beam_step("lm", case.contexts, case.scores, case.finished, **options)

        return asyncio.run(ask())

    def step_by_v1(self, case: BeamCase) -> BeamStep:
        if np.isnan(case.scores).any():
            raise Unsendable
        fields = {"model": "lm", "beam": 3} | case.options
        body = {name: to_json(value) for name, value in fields.items()}
        scores = [None if score == -np.inf else score for score in np.asarray(case.scores).tolist()]
        body |= {"contexts": to_json(case.contexts), "scores": scores, "finished": case.finished}
        content = self.post("/v1/beam/step", body)
        return read_step(content, len(content["ids"]), content["normalizer"])

    def step_by_v2(self, case: BeamCase) -> BeamStep:
        options = {"beam": 3} | case.options
        inputs = {"context": to_tensor(case.contexts, np.float32), "scores": np.asarray(case.scores, np.float64)}
        if not np.isfinite(case.scores).all():
            raise Unsendable
        inputs |= to_inputs(options)
        if case.finished is not None:
            inputs["finished"] = np.array(case.finished)
        for name in ("eos", "forced", "lengths"):
            if isinstance(options.get(name), list):
                inputs[name] = np.array(options[name])
        if isinstance(options.get("temperature"), list):
            inputs["temperature"] = np.array(options["temperature"])
        names = ("beam", "n", "eos", "min_length", "lengths", "temperature", "exact")
        parameters = {name: options[name] for name in names if name in options and name not in inputs}
        arrays, normalizer = self.infer("lm", inputs, ["parents", "ids", "scores", "logprobs"], parameters)
        return read_step(arrays, len(arrays["ids"]), normalizer)

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
        kinds = {np.float32: "FP32", np.float64: "FP64", np.int64: "INT64", np.int32: "INT32", np.bool_: "BOOL"}
        names = {np.dtype(kind): name for kind, name in kinds.items()}
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


def read_step(content: dict[str, Any], groups: int, normalizer: str) -> BeamStep:
    """The arrays of a step in JSON, where null or the least float32 stands for minus infinity."""
    ids = np.array(content["ids"], np.int64).reshape(groups, -1 if groups else 0)
    parents = np.array(content["parents"], np.int32).reshape(ids.shape)
    scores, logprobs = (np.array(content[name], np.float64).reshape(ids.shape) for name in ("scores", "logprobs"))
    scores, logprobs = (np.where(parents < 0, -np.inf, values) for values in (scores, logprobs))
    return BeamStep(parents, ids, scores, logprobs, normalizer)


@pytest.fixture(scope="module")
def doors(small_repository, promise_head, tmp_path_factory):
    root = tmp_path_factory.mktemp("doors")
    shutil.copytree(small_repository, root, dirs_exist_ok=True)
    shutil.copytree(promise_head.folder, root / "grouped" / "1")
    heads = {name: shortlist.load(root / name / "1", threads=1) for name in ("lm", "dense", "grouped")}
    with RunningServer(root) as server:
        doors = Doors(server.url, heads)
        yield doors
        doors.close()


def find_outcome(call: Callable[[Any], Any], case: Any) -> Any:
    """What the call gives: an answer, or a sentence."""
    try:
        return call(case)
    except BadInput as error:
        return str(error)


ASKING = ("ask_head", "ask_client", "ask_async_client", "ask_v1", "ask_v2")
STEPPING = ("step_by_head", "step_by_client", "step_by_async_client", "step_by_v1", "step_by_v2")
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
    assert (outcome.risk is None) == (not case.options.get("risk"))
    if outcome.risk is not None:
        np.testing.assert_allclose(outcome.risk, expected.risk, rtol=1e-5, equal_nan=True)
    wanted = [[None if id < 0 else f"word {id}" for id in row] for row in expected.ids.tolist()]
    assert (None if outcome.labels is None else outcome.labels.tolist()) == (
        wanted if case.options.get("labels") else None
    )


def test_risk_is_of_the_answer(doors):
    """0 where dense or a proof answered, a probability where the plan estimates one, not a number elsewhere."""
    estimated = doors.ask_head(TOPK["risk by a promise"]).risk
    assert ((estimated > 0) & (estimated < 1)).all()
    assert np.isnan(doors.ask_head(TOPK["risk where none is estimated"]).risk).all()
    for name in ("risk of exact answers", "risk of a dense head"):
        np.testing.assert_array_equal(doors.ask_head(TOPK[name]).risk, np.zeros(3, np.float32))


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
    doors.ask_client(TOPK["risk by a promise"])
    doors.ask_client(TOPK["plain"])
    lines = doors.http.get("/metrics").text.splitlines()
    counts = [line for line in lines if line.startswith("shortlist_risk_count")]
    assert len(counts) == 1
    assert 'model="grouped"' in counts[0]
    assert float(counts[0].split()[-1]) >= len(PROMISE_ROWS)


@pytest.mark.parametrize("door", STEPPING)
@pytest.mark.parametrize("name", BEAMS)
def test_beam_steps(doors, name, door):
    case = BEAMS[name]
    try:
        outcome = find_outcome(getattr(doors, door), case)
    except Unsendable:
        pytest.skip("there is no way to say this here")
    if case.sentence is not None:
        assert outcome == case.sentence
        return
    expected = doors.step_by_head(case)
    if not len(case.contexts):
        assert outcome.ids.size == 0
        return
    np.testing.assert_array_equal(outcome.parents, expected.parents)
    np.testing.assert_array_equal(outcome.ids, expected.ids)
    np.testing.assert_allclose(outcome.scores, expected.scores, atol=1e-5)
    np.testing.assert_allclose(outcome.logprobs, expected.logprobs, atol=1e-5)
    assert outcome.normalizer == expected.normalizer


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
