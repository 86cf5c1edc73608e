"""What a small infer request may make of itself: no numbers of a million digits, and no gigabytes."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from shortlist.bundle.manifest import Manifest
from shortlist.errors import BadInput, TooLarge
from shortlist.server.codecs.shared_memory import SharedMemory
from shortlist.server.codecs.v2_request import InferCodec
from shortlist.server.messages.json_fields import MAX_TEXTS
from shortlist.wire import open_inference
from shortlist.wire.open_inference import MAX_DIMENSION, MAX_DIMENSIONS, parse_tensors

MANIFEST = Manifest(
    name="lm", version=3, method="full", plan="full", reference="dense", classes=9, dim=4, dtype="float32",
    max_k=9, graphs={}, normalizer="exact",
)  # fmt: skip
NAMES = SimpleNamespace(read=None)
CONTEXT = {"name": "context", "shape": [1, 4], "datatype": "FP32", "data": [0.0] * 4}
SHAPES = {
    "thousands of dimensions": ([1 << 40] * 20_000, "shape of 'ids' has 20000 dimensions: send 8 at most"),
    "a product of thousands of digits": ([1 << 40] * 300, "shape of 'ids' has 300 dimensions: send 8 at most"),
    "a dimension over any memory": ([1 << 63], f"a dimension of {1 << 63}: send {1 << 40} at most"),
}


def decode(*inputs, **arguments):
    return InferCodec(MANIFEST, **arguments).decode(json.dumps({"inputs": inputs}).encode(), None)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_no_array_has_are_refused_before_they_are_multiplied(name):
    shape, sentence = SHAPES[name]
    entry = {"name": "ids", "shape": shape, "datatype": "INT64", "data": [1]}
    for body in ([entry], [CONTEXT, entry]):
        with pytest.raises(BadInput, match=sentence):
            parse_tensors(body, memoryview(b""), "lists")


def test_the_largest_shape_is_refused_for_its_numbers_in_a_sentence():
    entry = {"name": "ids", "shape": [MAX_DIMENSION] * MAX_DIMENSIONS, "datatype": "INT64"}
    binary = entry | {"parameters": {"binary_data_size": 8}}
    for tensor in parse_tensors([entry | {"data": [1]}, binary | {"name": "b"}], memoryview(bytes(8)), "m").values():
        with pytest.raises(BadInput, match=r"has 1 numbers for shape|Expected 17"):
            tensor.to_array("lists")
    empty = parse_tensors([{"name": "ids", "shape": [0, 4], "datatype": "INT64", "data": []}], memoryview(b""), "m")
    assert empty["ids"].to_array("m").shape == (0, 4)
    assert np.array_equal(decode(CONTEXT).query.contexts, np.zeros((1, 4), np.float32))


class CountedMemory(SharedMemory):
    """One region of zeros, which counts what is read of it."""

    def __init__(self):
        super().__init__(max_input_bytes=1 << 20)
        self.sizes = []

    def read(self, region, offset, size):
        self.sizes.append(size)
        return memoryview(bytes(size))


def share(name, size, datatype="INT64"):
    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": size}
    return {"name": name, "shape": [size // 8], "datatype": datatype, "parameters": parameters}


REGIONS = {
    "unknown names": ([share(f"x{i}", 1 << 20) for i in range(150)], BadInput, "unexpected inference input 'x0'"),
    "one name twice": ([share("allow", 8), share("allow", 8)], BadInput, "input 'allow' already exists"),
    "an entry that is wrong": ([share("allow", 8), {"name": "ban"}], BadInput, "needs a name and a datatype"),
    "too much together": (
        [share("allow", 600_000), share("ban", 600_000)],
        TooLarge,
        "inputs of 1200000 bytes",
    ),
}


@pytest.mark.parametrize("name", REGIONS)
def test_shared_memory_is_not_read_for_what_is_refused(name):
    entries, error, sentence = REGIONS[name]
    memory = CountedMemory()
    with pytest.raises(error, match=sentence):
        decode(CONTEXT, *entries, memory=memory)
    assert memory.sizes == []


def test_shared_memory_is_read_once_for_each_input():
    memory = CountedMemory()
    query = decode(CONTEXT, share("allow", 16), share("ban", 24), memory=memory).query
    assert (query.allow.tolist(), query.ban.tolist()) == ([0, 0], [0, 0, 0])
    assert memory.sizes == [16, 24]


@pytest.mark.parametrize(
    ("name", "count", "names", "sentence"),
    [
        ("allow", 3, None, "allow holds names, and lm was exported without: send ids"),
        (
            "ban",
            MAX_TEXTS + 1,
            SimpleNamespace(read=None),
            f"input 'ban' has {MAX_TEXTS + 1} texts: send {MAX_TEXTS} at most",
        ),
        ("within", 17, NAMES, "input 'within' has 17 texts: send 16 at most"),
    ],
)
def test_texts_are_counted_before_they_are_read(monkeypatch, name, count, names, sentence):
    monkeypatch.setattr(open_inference, "split_texts", None)
    raw = bytes(4 * count)  # empty texts
    text = {"name": name, "shape": [count], "datatype": "BYTES", "parameters": {"binary_data_size": len(raw)}}
    header = json.dumps({"inputs": [CONTEXT, text]}).encode()
    with pytest.raises(BadInput, match=sentence):
        InferCodec(MANIFEST, names=names).decode(header + raw, str(len(header)))


@pytest.mark.parametrize("name", ["allow", "ban", "ids"])
def test_rows_without_names_are_no_lists_in_memory(name):
    text = {"name": name, "shape": [MAX_DIMENSION, 0], "datatype": "BYTES", "data": []}
    query = decode(CONTEXT, text, names=NAMES).query
    assert getattr(query, name).shape == (MAX_DIMENSION, 0)  # which the head refuses: there is one context
