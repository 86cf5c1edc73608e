"""Infer responses, and what is kept of them for others of the same shape."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
from shortlist.client.infer import LENGTH_KEY, parse_layout, parse_outputs
from shortlist.client.messages import Response
from shortlist.wire.texts import join_texts

LABELS = 1 << 14
RESPONSES = 8


def make_response(length):
    """Labels of so many letters each; the JSON says their bytes, so that no two lengths share a layout."""
    raw = join_texts(np.full(LABELS, "x" * length, np.object_))
    output = {"name": "labels", "datatype": "BYTES", "shape": [LABELS], "parameters": {"binary_data_size": len(raw)}}
    text = json.dumps({"model_name": "lm", "outputs": [output], "parameters": {"normalizer": "exact"}}).encode()
    return Response(200, {LENGTH_KEY: str(len(text))}, text + bytes(raw))


def test_responses_with_texts_leave_none_of_their_bytes_behind():
    """256 layouts were remembered, each with as many bytes as its response had: 250 MB for labels of 4,096 rows."""
    parse_layout.cache_clear()
    responses = [make_response(length) for length in range(1, RESPONSES + 1)]
    tracemalloc.start()
    try:
        for length, response in enumerate(responses, 1):
            outputs, parameters = parse_outputs(response)
            assert outputs["labels"].tolist() == ["x" * length] * LABELS
            assert parameters["normalizer"] == "exact"
        del outputs
        assert tracemalloc.get_traced_memory()[0] < len(responses[0].content)
    finally:
        tracemalloc.stop()
    assert parse_layout.cache_info().currsize == RESPONSES
