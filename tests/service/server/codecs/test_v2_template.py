"""Templates of infer requests: a body of a text that was seen is read, and its response written, as a new one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from shortlist.server.codecs.v2_request import MAX_TEMPLATE_BYTES, TEMPLATE_CACHE_ENTRIES, InferCodec
from shortlist.server.scheduling.tasks import make_task

from tests.support.layers import DIM, make_contexts

ROWS = make_contexts(rows=40, seed=5).contexts


def body(rows, datatype="FP32", binary=True, inputs=(), **fields):
    """The body of an infer request, and its header."""
    context = {"name": "context", "shape": list(rows.shape), "datatype": datatype}
    context["parameters"] = {"binary_data_size": rows.nbytes}
    content = {"inputs": [context, *inputs], "parameters": {"k": 3, "binary_data_output": binary}} | fields
    text = json.dumps(content).encode()
    return text + rows.tobytes(), str(len(text))


def decode(codec, head, content, header):
    """A request that is decoded and remembered, as the service does it."""
    request = codec.decode(content, header)
    task = make_task(head, request.query)
    codec.add_template(request, task)
    return request, task


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("pad", range(4))
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_seen_text_is_read_and_answered_as_a_new_one(head, dtype, pad, rows):
    codec, datatype = InferCodec(head.manifest), {np.float32: "FP32", np.float16: "FP16"}[dtype]
    decode(codec, head, *body(ROWS[:rows].astype(dtype), datatype, id="x" * pad))
    for start in (5, 10):
        content, header = body(ROWS[start : start + rows].astype(dtype), datatype, id="x" * pad)
        template = codec.find_template(content, header.encode())
        contexts = template.layout.read(content)
        request = codec.decode(content, header)
        assert contexts.flags.aligned
        np.testing.assert_array_equal(contexts, request.query.contexts)
        result = template.task.with_contexts(contexts).compute()
        assert template.encode(result) == codec.encode(request, result)


ALLOW = {"name": "allow", "shape": [1, 2], "datatype": "INT64", "data": [1, 2]}
OTHERS = {
    "another input": body(ROWS[:1], inputs=[ALLOW]),
    "outputs in JSON": body(ROWS[:1], binary=False),
    "a long text": body(ROWS[:1], id="x" * MAX_TEMPLATE_BYTES),
    "BF16": body((ROWS[:1].view(np.uint32) >> 16).astype(np.uint16), "BF16"),
    "raw": (ROWS[0].tobytes(), "0"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_requests_that_make_no_template(head, what):
    codec, (content, header) = InferCodec(head.manifest), OTHERS[what]
    decode(codec, head, content, header)
    assert codec.find_template(content, header.encode()) is None
    assert len(codec.templates) == 0


@pytest.mark.parametrize("header", [None, b"", b"x", b"-1", b"9999999", b"1"])
def test_headers_that_name_no_seen_text(head, header):
    codec = InferCodec(head.manifest)
    content, length = body(ROWS[:1])
    decode(codec, head, content, length)
    assert codec.find_template(content, header) is None
    assert codec.find_template(content[:-4], length.encode()) is None
    assert codec.find_template(content, length.encode()) is not None


def test_a_template_keeps_no_body(head):
    codec, (content, header) = InferCodec(head.manifest), body(np.zeros((7, DIM), np.float32))
    decode(codec, head, content, header)
    template = codec.find_template(content, header.encode())
    assert template.task.contexts.size == 0


def test_templates_are_bounded(head):
    codec = InferCodec(head.manifest)
    for number in range(2 * TEMPLATE_CACHE_ENTRIES):
        decode(codec, head, *body(ROWS[:1], id=str(number)))
    assert len(codec.templates) <= TEMPLATE_CACHE_ENTRIES
