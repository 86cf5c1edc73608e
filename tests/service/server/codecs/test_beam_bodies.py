"""Bodies of beam steps with any JSON in any field: an answer, or one of our own errors."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.core.row_lists import RowLists
from shortlist.decoding.step import continue_beams
from shortlist.errors import BadInput, NotFound, TooLarge
from shortlist.server.codecs import v1_json
from shortlist.server.codecs.named_lists import ListRegistry
from shortlist.server.codecs.v2_request import InferCodec
from shortlist.server.scheduling.tasks import SizeLimits, make_task

from tests.support.layers import DIM, make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=4, seed=6).contexts
LIMITS = SizeLimits(64, 1 << 20)
REGISTRY = ListRegistry(4, 1 << 20, 3600)
REGISTRY.register("tree", RowLists.from_lists([[1, 2], [3]]))
VALID = {"model": "lm", "contexts": ROWS.tolist(), "scores": [0.0, None, -1.0, -2.0], "beam": 2}
NUMBERS = st.integers(-3, 8) | st.sampled_from([299, 300, 2**31, 2**63, 10**30, 0.5, -1.5, 1e300])
ATOMS = NUMBERS | st.sampled_from([None, True, False, "", "tree", "1"])
LISTS = st.lists(NUMBERS, max_size=5) | st.lists(ATOMS, max_size=5) | st.lists(st.lists(ATOMS, max_size=3), max_size=5)
MAPS = st.dictionaries(st.sampled_from(["1", "2", "list", "rows", "-1", "x"]), ATOMS | LISTS, max_size=3)
VALUES = ATOMS | LISTS | MAPS | st.lists(MAPS, max_size=4)


def answer(head, fields):
    fields = v1_json.parse_fields(json.dumps(fields).encode(), v1_json.BEAM_FIELDS)
    v1_json.read_target(fields)
    v1_json.read_limits(fields)
    query = v1_json.read_beam_query(fields, DIM, REGISTRY)
    result = make_task(head, query, LIMITS).compute()
    return continue_beams(result.step, result.rows)


@settings(max_examples=400)
@given(st.dictionaries(st.sampled_from(v1_json.STEP_FIELDS), VALUES, max_size=3))
def test_any_fields(head, fields):
    try:
        step = answer(head, VALID | fields)
    except (BadInput, NotFound, TooLarge):
        return
    assert step.ids.shape == step.scores.shape
    assert not np.isnan(step.scores).any()


DATATYPES = {"FP32": "<f4", "FP64": "<f8", "INT32": "<i4", "INT64": "<i8", "BOOL": "?"}
NAMES = ("scores", "finished", "eos", "forced", "lengths", "temperature", "bias", "bias_ids", "allow", "allow_offsets",
         "allow_rows", "ban", "ban_rows")  # fmt: skip
TENSORS = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from([*DATATYPES]),
    st.sampled_from([[4], [1], [0], [2], [4, 1], [1, 2], []]),
    st.integers(-2, 5),
)
PARAMETERS = st.dictionaries(
    st.sampled_from(["beam", "n", "eos", "min_length", "lengths", "temperature", "allow_list", "ban_list", "exact"]),
    ATOMS,
    max_size=4,
)


@settings(max_examples=400)
@given(st.lists(TENSORS, max_size=4), PARAMETERS)
def test_any_tensors(head, tensors, parameters):
    entries = [{"name": "context", "datatype": "FP32", "shape": [4, DIM], "parameters": {"binary_data_size": 16 * DIM}}]
    blobs = [ROWS.tobytes()]
    for name, datatype, shape, value in tensors:
        blobs.append(np.full(shape, value).astype(DATATYPES[datatype]).tobytes())
        size = {"binary_data_size": len(blobs[-1])}
        entries.append({"name": name, "datatype": datatype, "shape": shape, "parameters": size})
    text = json.dumps({"inputs": entries, "parameters": parameters}).encode()
    try:
        request = InferCodec(head.manifest, None, None, REGISTRY).decode(text + b"".join(blobs), str(len(text)))
        make_task(head, request.query, LIMITS).compute()
    except (BadInput, NotFound, TooLarge):
        return
