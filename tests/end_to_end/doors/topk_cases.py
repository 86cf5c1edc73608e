"""The table of requests for best classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.support.heads.grouped import promise_contexts
from tests.support.layers import CLASSES, DIM

from .doors import ROWS, TABLE, WIDTHS

PROMISE_ROWS = promise_contexts.contexts[-5:]
SENTENCE_OF_LABELS = "dense was exported without labels: ask for ids alone"


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
    "names": Case({"allow": [f"item-{i}" for i in range(0, 300, 7)], "ban": ["item-7"]}),
    "names of no class, banned": Case({"ban": ["1"]}),
    "names of no class, allowed": Case({"allow": ["1"]}, "allow holds '1', which no class of lm is called"),
    "names and numbers": Case({"ban": ["item-1", 2]}, "ban must hold names alone, or ids alone"),
    "names there are none of": Case(
        {"ban": ["1"]}, "ban holds names, and dense was exported without: send ids", model="dense"
    ),
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
    "a k of text": Case({}, "k is '5': give a whole number", k="5"),
}  # fmt: skip
