"""Lists in pieces are the same JSON as in one."""

from __future__ import annotations

import numpy as np
import orjson
import pytest
from shortlist.server.messages import json_pieces
from shortlist.server.messages.json_pieces import make_json_list

RANDOM = np.random.default_rng(1)
CELLS = {
    "ids": RANDOM.integers(-1, 50_000, (300, 17)),
    "log-probabilities": np.where(RANDOM.random((300, 17)) < 0.1, -np.inf, RANDOM.standard_normal((300, 17))).astype(
        np.float32
    ),
    "flat": RANDOM.integers(0, 9, 5000),
    "one long row": RANDOM.integers(0, 9, (1, 5000)),
    "a view with gaps": RANDOM.integers(0, 9, (300, 40))[:, :17],
    "few": RANDOM.integers(0, 9, (2, 3)),
    "no rows": np.empty((0, 5), np.int64),
    "no columns": np.empty((5, 0), np.int64),
}


def dump(value):
    return orjson.dumps({"cells": value}, option=orjson.OPT_SERIALIZE_NUMPY)


@pytest.mark.parametrize("piece", [1, 16, 17, 100, 4999, 5000, 1 << 20])
@pytest.mark.parametrize("name", CELLS)
def test_the_text_is_the_same(monkeypatch, name, piece):
    monkeypatch.setattr(json_pieces, "PIECE_CELLS", piece)
    cells = CELLS[name]
    assert dump(make_json_list(cells)) == dump(np.ascontiguousarray(cells))


def test_texts_in_pieces(monkeypatch):
    monkeypatch.setattr(json_pieces, "PIECE_CELLS", 100)
    labels = np.array(['a "word"', "ü", None], dtype=object)
    ids = RANDOM.integers(-1, 2, (40, 7))
    assert dump(make_json_list(ids, lambda ids: labels[ids].tolist())) == dump(labels[ids].tolist())
