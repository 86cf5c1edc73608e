"""/v2 infer bodies, without a server: what the client builds is what the server reads, and nothing breaks it."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from shortlist.bundle.manifest import Manifest
from shortlist.client import exchange
from shortlist.client.infer import parse_outputs
from shortlist.client.messages import Limits, Response
from shortlist.core.queries import ScoreQuery, Scores, TopKQuery
from shortlist.core.results import TopK, make_label_array
from shortlist.errors import BadInput, ServerError
from shortlist.server.codecs import v2_request
from shortlist.server.codecs.v2_request import InferCodec
from shortlist.server.codecs.v2_response import OutputFormat
from shortlist.server.messages.headers import JSON_LENGTH
from shortlist.wire.open_inference import LENGTH_HEADER

DIM, CLASSES = 4, 9
MANIFEST = Manifest(
    name="lm", version=3, method="full", plan="full", reference="dense", classes=CLASSES, dim=DIM, dtype="float32",
    max_k=CLASSES, graphs={}, normalizer="exact",
)  # fmt: skip
FLOATS = st.floats(-10, 10, width=32)


def tensor(name: str, values: np.ndarray, datatype: str = "FP32") -> tuple[dict, bytes]:
    entry = {"name": name, "shape": list(values.shape), "datatype": datatype}
    return entry | {"parameters": {"binary_data_size": values.nbytes}}, values.tobytes()


def body(*tensors: tuple[dict, bytes], **content: object) -> tuple[bytes, str]:
    text = json.dumps({"inputs": [entry for entry, _ in tensors]} | content).encode()
    return text + b"".join(blob for _, blob in tensors), str(len(text))


def decode(*tensors: tuple[dict, bytes], **content: object) -> v2_request.InferRequest:
    return InferCodec(MANIFEST).decode(*body(*tensors, **content))


def in_json(
    name: str = "context", shape: object = (1, DIM), datatype: str = "FP32", **data: object
) -> v2_request.InferRequest:
    entry = {"name": name, "shape": shape, "datatype": datatype} | data
    return InferCodec(MANIFEST).decode(json.dumps({"inputs": [entry]}).encode(), None)


CONTEXT = np.arange(2 * DIM, dtype=np.float32).reshape(2, DIM)
VALID = tensor("context", CONTEXT)


@given(arrays.arrays(np.float32, arrays.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=5), elements=FLOATS))
def test_client_and_server_agree_on_requests(values):
    manifest = MANIFEST.model_copy(update={"dim": values.shape[1]})
    ask = next(exchange.topk("lm", values, 3, 3, {"allow": [1, 2], "ban": None}, None, True, (), Limits(4096)))
    query = InferCodec(manifest).decode(ask.content, dict(ask.headers)[LENGTH_HEADER]).query
    assert ask.path == "/v2/models/lm/versions/3/infer"
    assert isinstance(query, TopKQuery)
    assert np.array_equal(query.contexts, values)
    assert (query.k, query.exact, query.allow.tolist(), query.ban) == (3, True, [[1, 2]], None)


@given(st.integers(0, 5), st.integers(0, 4), st.permutations(["ids", "logprobs", "scored"]), st.integers(1, 3))
def test_client_and_server_agree_on_answers(rows, k, names, many):
    top = TopK(
        np.arange(rows * k).reshape(rows, k), np.full((rows, k), -np.inf, np.float32), np.ones(rows, np.int32), "exact"
    )
    request = v2_request.InferRequest(
        "an id", TopKQuery(CONTEXT, 1), dict.fromkeys(names[:many], OutputFormat(binary=True))
    )
    content, headers = InferCodec(MANIFEST).encode(request, top)
    response = Response(200, {name.decode(): value.decode() for name, value in headers}, content)
    outputs, parameters = parse_outputs(response)
    assert list(outputs) == names[:many]
    assert parameters == {"normalizer": "exact"}
    assert all(np.array_equal(values, getattr(top, name)) for name, values in outputs.items())


@given(st.integers(0, 5), st.integers(1, 4))
def test_client_and_server_agree_on_labels(rows, k):
    ids = np.arange(rows * k).reshape(rows, k) % 4 - 1
    top = TopK(ids, np.zeros((rows, k), np.float32), np.ones(rows, np.int32), "exact")
    labels = make_label_array(["", "a\n", "\U0001f600" * 100])
    ask = next(
        exchange.topk("lm", CONTEXT, 1, None, {}, None, False, ("ids", "logprobs", "scored", "labels"), Limits(4096))
    )
    codec = InferCodec(MANIFEST, labels)
    request = codec.decode(ask.content, dict(ask.headers)[LENGTH_HEADER])
    assert list(request.outputs) == ["ids", "logprobs", "scored", "labels"]
    content, headers = codec.encode(request, top)
    response = Response(200, {name.decode(): value.decode() for name, value in headers}, content)
    outputs, _ = parse_outputs(response)
    assert outputs["labels"].tolist() == [[labels[id] or "" for id in row] for row in ids.tolist()]
    with pytest.raises(BadInput, match="was exported without labels: ask for ids alone"):
        InferCodec(MANIFEST).decode(ask.content, dict(ask.headers)[LENGTH_HEADER])


def test_json_tensors_may_be_flat_or_nested_and_hold_integers():
    for data in (CONTEXT.ravel().tolist(), CONTEXT.tolist(), CONTEXT.astype(int).tolist()):
        assert np.array_equal(in_json(shape=[2, DIM], data=data).query.contexts, CONTEXT)


def test_half_precision_is_widened():
    half = decode(tensor("context", CONTEXT.astype(np.float16), "FP16"))
    upper = (CONTEXT.view(np.uint32) >> 16).astype(np.uint16)
    brain = decode(tensor("context", upper, "BF16"))
    assert np.array_equal(half.query.contexts, CONTEXT)
    assert np.array_equal(brain.query.contexts, CONTEXT)


def test_unaligned_tensors_are_copied_to_where_runtimes_want_them():
    for pad in range(4):
        query = decode(VALID, pad="x" * pad).query
        assert query.contexts.flags.aligned
        assert np.array_equal(query.contexts, CONTEXT)


@pytest.mark.parametrize("datatype", ["INT64", "INT32"])
def test_given_ids_are_whole_numbers_of_either_size(datatype):
    ids = np.array([[1, -1], [2, 3]], datatype.lower())
    request = decode(VALID, tensor("ids", ids, datatype))
    assert request.query.ids.dtype == np.int64
    assert request.query.ids.tolist() == [[1, -1], [2, 3]]


def test_ids_ask_for_scores():
    ids = tensor("ids", np.array([[1, -1], [2, 3]]), "INT64")
    request = decode(VALID, ids, parameters={"binary_data_output": True})
    assert isinstance(request.query, ScoreQuery)
    assert request.outputs == {"logprobs": OutputFormat(binary=True)}
    scores = Scores(request.query.ids, np.zeros((2, 2), np.float32), "estimated")
    content, headers = InferCodec(MANIFEST).encode(request, scores)
    assert json.loads(content[: int(dict(headers)[JSON_LENGTH])])["parameters"] == {"normalizer": "estimated"}


def test_raw_binary_request_is_one_context_vector():
    request = InferCodec(MANIFEST).decode(CONTEXT[0].tobytes(), "0")
    assert np.array_equal(request.query.contexts, CONTEXT[:1])
    assert request.outputs == dict.fromkeys(("ids", "logprobs", "scored"), OutputFormat(binary=True))
    with pytest.raises(BadInput, match="Expected 16, got 32"):
        InferCodec(MANIFEST).decode(CONTEXT.tobytes(), "0")


def test_outputs_default_to_json_and_flags_decide():
    assert decode(VALID).outputs == dict.fromkeys(("ids", "logprobs", "scored"), OutputFormat(binary=False))
    outputs = [{"name": "scored"}, {"name": "ids", "parameters": {"binary_data": False}}]
    request = decode(VALID, outputs=outputs, parameters={"binary_data_output": True})
    assert list(request.outputs.items()) == [("scored", OutputFormat(binary=True)), ("ids", OutputFormat(binary=False))]


def test_json_answers_are_finite_and_echo_the_id():
    top = TopK(np.array([[2, -1]]), np.array([[-0.5, -np.inf]], np.float32), np.array([9], np.int32), "exact")
    content, headers = InferCodec(MANIFEST).encode(decode(VALID, id="r/1"), top)
    answer = json.loads(content)
    assert headers == [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("r/1", "lm", "3")
    outputs = {entry["name"]: (entry["datatype"], entry["shape"], entry["data"]) for entry in answer["outputs"]}
    assert outputs["ids"] == ("INT64", [1, 2], [2, -1])
    assert outputs["logprobs"] == ("FP32", [1, 2], [-0.5, -3.4028235e38])
    assert outputs["scored"] == ("INT32", [1], [9])


LIST = tensor("allow", np.array([[1]]), "INT64")
IDS_TENSOR = tensor("ids", np.array([[1]]), "INT64")

WRONG = {
    "no inputs": lambda: InferCodec(MANIFEST).decode(b"{}", None),
    "not JSON": lambda: InferCodec(MANIFEST).decode(b"{", None),
    "not an object": lambda: InferCodec(MANIFEST).decode(b"[]", None),
    "deep": lambda: InferCodec(MANIFEST).decode(b"[" * 250_000, None),
    "context missing": lambda: decode(LIST),
    "given twice": lambda: decode(VALID, VALID),
    "unknown input": lambda: decode(VALID, tensor("other", CONTEXT)),
    "wrong d": lambda: decode(tensor("context", CONTEXT[:, :3])),
    "wrong rank": lambda: decode(tensor("context", CONTEXT[0])),
    "wrong type": lambda: decode(tensor("context", CONTEXT, "INT64")),
    "unknown type": lambda: decode(tensor("context", CONTEXT, "FP8")),
    "list of wrong type": lambda: decode(VALID, tensor("ban", np.array([[1]], np.float32), "FP32")),
    "list of three axes": lambda: decode(VALID, tensor("ban", np.array([[[1]]]), "INT64")),
    "negative size": lambda: in_json(shape=[-1, DIM], data=[]),
    "huge shape": lambda: in_json(shape=[2**60 + 2, 2**4], data=[1.0]),
    "impossible shape": lambda: in_json("allow", [0, 2**80], "INT64", data=[]),
    "true in shape": lambda: in_json(shape=[True, DIM], data=[0.0] * DIM),
    "too few numbers": lambda: in_json(data=[0.0]),
    "text": lambda: in_json(data=[0.0, 0.0, 0.0, "1"]),
    "null": lambda: in_json(data=[0.0, 0.0, 0.0, None]),
    "deeper data": lambda: in_json(data=[[[0.0] * DIM]]),
    "no data": in_json,
    "FP16 in JSON": lambda: in_json(datatype="FP16", data=[0.0] * DIM),
    "fraction as id": lambda: in_json("allow", [1], "INT64", data=[1.5]),
    "id over int64": lambda: in_json("allow", [1], "INT64", data=[2**63]),
    "k is text": lambda: decode(VALID, parameters={"k": "5"}),
    "k is true": lambda: decode(VALID, parameters={"k": True}),
    "exact is 1": lambda: decode(VALID, parameters={"exact": 1}),
    "parameters are a list": lambda: decode(VALID, parameters=[1]),
    "reserved parameter": lambda: decode(VALID, parameters={"triton_enable_empty_final_response": True}),
    "id is a number": lambda: decode(VALID, id=7),
    "unknown output": lambda: decode(VALID, outputs=[{"name": "logits"}]),
    "output twice": lambda: decode(VALID, outputs=[{"name": "ids"}, {"name": "ids"}]),
    "output without name": lambda: decode(VALID, outputs=[{}]),
    "outputs are text": lambda: decode(VALID, outputs="ids"),
    "classification": lambda: decode(VALID, outputs=[{"name": "ids", "parameters": {"classification": 2}}]),
    "shared memory": lambda: decode(VALID, outputs=[{"name": "ids", "parameters": {"shared_memory_region": "r"}}]),
    "ids and allow": lambda: decode(VALID, IDS_TENSOR, LIST),
    "scored of scores": lambda: decode(VALID, IDS_TENSOR, outputs=[{"name": "scored"}]),
    "bytes missing": lambda: InferCodec(MANIFEST).decode(body(VALID)[0][:-1], body(VALID)[1]),
    "bytes left": lambda: InferCodec(MANIFEST).decode(body(VALID)[0] + b"x", body(VALID)[1]),
    "header too large": lambda: InferCodec(MANIFEST).decode(b"{}", "3"),
    "header negative": lambda: InferCodec(MANIFEST).decode(b"{}", "-1"),
    "header no number": lambda: InferCodec(MANIFEST).decode(b"{}", "two"),
    "header of 5,000 digits": lambda: InferCodec(MANIFEST).decode(b"{}", "9" * 5000),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_requests_are_one_short_sentence(what):
    with pytest.raises(BadInput) as excinfo:
        WRONG[what]()
    assert 10 < len(str(excinfo.value)) < 250
    assert "\n" not in str(excinfo.value)


def test_sentences_of_the_protocol():
    with pytest.raises(BadInput, match=r"^output 'ids' already exists in request$"):
        WRONG["output twice"]()
    with pytest.raises(BadInput, match=r"^unexpected additional input data for model 'lm'$"):
        WRONG["bytes left"]()
    short = tensor("context", CONTEXT)[0] | {"parameters": {"binary_data_size": 28}}, CONTEXT.tobytes()[:-4]
    with pytest.raises(
        BadInput, match=r"^input byte size mismatch for input 'context' for model 'lm'\. Expected 32, got 28"
    ):
        decode(short)


@settings(max_examples=400)
@given(st.data())
def test_mutated_requests_are_read_or_refused(data):
    whole, length = body(VALID, LIST, parameters={"k": 2}, outputs=[{"name": "ids"}], id="x")
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    header = data.draw(st.sampled_from([length, None, "0", str(len(content))]))
    with contextlib.suppress(BadInput):
        InferCodec(MANIFEST).decode(bytes(content), header)


@given(st.binary(max_size=40), st.sampled_from([None, "0", "10", "x"]))
def test_nonsense_answers_become_a_server_error(content, header):
    headers = {} if header is None else {LENGTH_HEADER.lower(): header}
    with pytest.raises(ServerError):
        parse_outputs(Response(200, headers, content))
