"""Checks of inference."""

from __future__ import annotations

import asyncio
import http.client

import ml_dtypes
import numpy as np
from checks import OUTPUTS, check
from triton_requests import expect_refusal, make_input, request_outputs, same, top3
from tritonclient.http import InferRequestedOutput
from tritonclient.http.auth import BasicAuth


@check
async def infer_binary_in_and_out(client, case):
    result = await top3(client, case, outputs=request_outputs())
    assert result.get_response()["model_name"] == "lm"
    assert result.get_response()["model_version"] == "1"
    assert result.get_output("ids")["parameters"]["binary_data_size"] == case["top3_ids"].nbytes
    assert result.get_output("nope") is None


@check
async def infer_without_outputs_named(client, case):
    result = await top3(client, case)
    assert "binary_data_size" in result.get_output("scored")["parameters"]


@check
async def infer_json_in_and_out(client, case):
    inputs = [make_input("context", case["rows"], binary=False)]
    result = await top3(client, case, inputs, outputs=request_outputs(binary=False))
    assert len(result.get_output("ids")["data"]) == case["top3_ids"].size


@check
async def infer_json_in_binary_out(client, case):
    await top3(client, case, [make_input("context", case["rows"], binary=False)], outputs=request_outputs())


@check
async def infer_binary_in_json_out(client, case):
    await top3(client, case, outputs=request_outputs(binary=False))


@check
async def infer_some_outputs_in_their_order_and_form(client, case):
    outputs = [*request_outputs("scored", binary=False), *request_outputs("ids")]
    result = await top3(client, case, outputs=outputs, names=("scored", "ids"))
    assert [output["name"] for output in result.get_response()["outputs"]] == ["scored", "ids"]


@check
async def infer_default_k(client, case):
    same(await client.infer("lm", [make_input("context", case["rows"])]), case, "top5")


@check
async def infer_a_version(client, case):
    await top3(client, case, model_version="1")
    await expect_refusal(client.infer("lm", [make_input("context", case["rows"])], model_version="9"), 404)


@check
async def infer_request_id(client, case):
    for request_id in ("7", 'a "quoted" id', "ü" * 50):
        assert (await top3(client, case, request_id=request_id)).get_response()["id"] == request_id
    assert "id" not in (await top3(client, case)).get_response()


@check
async def infer_priority_and_timeout(client, case):
    await top3(client, case, priority=1, timeout=30_000_000)


@check
async def infer_exact(client, case):
    result = await client.infer("lm", [make_input("context", case["rows"])], parameters={"k": 3, "exact": True})
    same(result, case, "exact")


@check
async def infer_half_precision(client, case):
    await top3(client, case, [make_input("context", case["rows"].astype(np.float16), "FP16")], "half")
    await top3(client, case, [make_input("context", case["brain"].astype(ml_dtypes.bfloat16), "BF16")], "brain")


@check
async def infer_allow_and_ban(client, case):
    context = make_input("context", case["rows"])
    await top3(client, case, [context, make_input("allow", case["allow"], "INT64")], "allowed")
    await top3(client, case, [context, make_input("ban", case["ban"], "INT64")], "unbanned")
    await top3(client, case, [context, make_input("ban", case["ban"], "INT64", binary=False)], "unbanned")


@check
async def infer_log_probabilities_of_ids(client, case):
    inputs = [make_input("context", case["rows"]), make_input("ids", case["given"], "INT64")]
    result = await client.infer("lm", inputs)
    np.testing.assert_allclose(result.as_numpy("logprobs"), case["given_logprobs"], atol=1e-5)


@check
async def infer_no_rows(client, case):
    rows = case["rows"][:0]
    result = await client.infer("lm", [make_input("context", rows)], outputs=request_outputs(), parameters={"k": 3})
    assert [result.as_numpy(name).shape for name in OUTPUTS] == [(0, 3), (0, 3), (0,)]


@check
async def infer_compressed(client, case):
    for encoding in ("gzip", "deflate"):
        both = {"request_compression_algorithm": encoding, "response_compression_algorithm": encoding}
        for more in (both, *({name: value} for name, value in both.items())):
            for binary in (True, False):
                inputs = [make_input("context", case["wide"], binary=binary)]
                await top3(client, case, inputs, "wide100", k=100, outputs=request_outputs(binary=binary), **more)
            await top3(client, case, **more)


@check
async def infer_classes(client, case):
    for binary in (True, False):
        outputs = [InferRequestedOutput("logprobs", binary_data=binary, class_count=3)]
        result = await client.infer("lm", [make_input("context", case["rows"])], outputs=outputs)
        assert result.get_output("logprobs")["datatype"] == "BYTES"
        classes = result.as_numpy("logprobs")
        assert classes.shape == (4, 3), classes.shape
        for cell, id_, logprob in zip(classes.flat, case["top3_ids"].flat, case["top3_logprobs"].flat, strict=True):
            value, index, label = (cell.decode() if isinstance(cell, bytes) else cell).split(":", 2)
            assert (int(index), label) == (id_, f"word {id_}")
            assert abs(float(value) - logprob) < 1e-5


@check
async def infer_labels(client, case):
    for binary in (True, False):
        result = await top3(client, case, outputs=request_outputs(*OUTPUTS, "labels", binary=binary))
        assert result.get_output("labels")["datatype"] == "BYTES"
        labels = [cell.decode() if isinstance(cell, bytes) else cell for cell in result.as_numpy("labels").flat]
        assert labels == [f"word {id_}" for id_ in case["top3_ids"].flat]
        result = await top3(client, case, outputs=request_outputs(*OUTPUTS, "names", "scores", binary=binary))
        names = [cell.decode() if isinstance(cell, bytes) else cell for cell in result.as_numpy("names").flat]
        assert names == [f"item-{id_}" for id_ in case["top3_ids"].flat]
        scores = result.as_numpy("scores")
        assert (scores.dtype, scores.shape) == (np.dtype(np.float32), case["top3_ids"].shape)
        differences = np.diff(scores, axis=1) - np.diff(case["top3_logprobs"], axis=1)
        np.testing.assert_allclose(differences, 0, atol=1e-4)
    outputs = request_outputs("labels")
    await expect_refusal(client.infer("dense", [make_input("context", case["rows"])], outputs=outputs), 400, "labels")


@check
async def infer_classes_without_labels(client, case):
    outputs = [InferRequestedOutput("logprobs", class_count=2)]
    result = await client.infer("dense", [make_input("context", case["rows"])], outputs=outputs)
    cells = [cell.decode().split(":") for cell in result.as_numpy("logprobs").flat]
    assert [len(cell) for cell in cells] == [2] * 8
    assert [int(cell[1]) for cell in cells] == case["exact_ids"][:, :2].ravel().tolist()


@check
async def infer_refused(client, case):
    rows = case["rows"]
    good = make_input("context", rows)
    await expect_refusal(client.infer("nope", [good]), 404, "Request for unknown model: 'nope' is not found")
    await expect_refusal(client.infer("lm", [make_input("nope", rows)]), 400, "nope")
    await expect_refusal(client.infer("lm", [make_input("context", rows[:, 1:].copy())]), 400, "context")
    await expect_refusal(client.infer("lm", [make_input("context", rows.astype(np.float64), "FP64")]), 400, "FP64")
    await expect_refusal(client.infer("lm", [good], outputs=request_outputs("nope")), 400, "nope")
    await expect_refusal(
        client.infer("lm", [good], outputs=request_outputs("ids", "ids")), 400, "output 'ids' already exists"
    )
    await expect_refusal(client.infer("lm", [good], parameters={"k": 0}), 400, "k is 0")
    await expect_refusal(
        client.infer("lm", [good], request_compression_algorithm=None, headers={"Content-Encoding": "br"}), 415
    )
    await top3(client, case)


@check
async def async_infer(client, case):
    if not hasattr(client.real, "async_infer"):
        return
    requests = [
        await client.async_infer("lm", [make_input("context", case["rows"])], parameters={"k": 3}) for _ in range(8)
    ]
    for request in requests:
        same(request.get_result(timeout=20), case, "top3")
    refusal = await client.async_infer("nope", [make_input("context", case["rows"])])

    async def result():
        return refusal.get_result()

    await expect_refusal(result(), 404)


@check
async def many_at_once(client, case):
    await asyncio.gather(*(top3(client, case, request_id=str(number)) for number in range(32)))


@check
async def generate_request_body_and_parse_response_body(client, case):
    inputs, outputs = [make_input("context", case["rows"])], request_outputs()
    body, size = await client.generate_request_body(inputs, outputs, request_id="9", parameters={"k": 3})
    connection = http.client.HTTPConnection(case["place"])
    connection.request("POST", "/v2/models/lm/infer", body, {"Inference-Header-Content-Length": str(size)})
    answer = connection.getresponse()
    size = int(answer.headers["Inference-Header-Content-Length"])
    result = await client.parse_response_body(answer.read(), header_length=size)
    connection.close()
    same(result, case, "top3")
    assert result.get_response()["id"] == "9"


@check
async def plugins(client, case):
    assert await client.plugin() is None
    await client.register_plugin(BasicAuth("user", "word"))
    await top3(client, case)
    assert await client.plugin() is not None
    await client.unregister_plugin()


@check
async def infer_a_beam_step(client, case):
    inputs = [
        make_input("context", case["rows"]),
        make_input("scores", case["beam_scores_in"], "FP64"),
        make_input("finished", case["beam_finished"], "BOOL"),
        make_input("eos", np.array([1, 2], np.int32), "INT32"),
        make_input("bias_ids", np.array([[5]]), "INT64"),
        make_input("bias", np.array([[2.0]], np.float32)),
    ]
    result = await client.infer("lm", inputs, parameters={"beam": 2})
    for name in ("parents", "ids"):
        assert np.array_equal(result.as_numpy(name), case[f"beam_{name}"]), name
    for name in ("scores", "logprobs"):
        assert np.allclose(result.as_numpy(name), case[f"beam_{name}"], atol=1e-5), name
    assert result.as_numpy("scores").dtype == np.float64


@check
async def infer_legal_lists_by_offsets(client, case):
    inputs = [
        make_input("context", case["rows"]),
        make_input("allow", case["allow"][0].astype(np.int32), "INT32"),
        make_input("allow_offsets", np.array([0, case["allow"].size], np.int32), "INT32"),
        make_input("allow_rows", np.zeros(len(case["rows"]), np.int32), "INT32"),
    ]
    await top3(client, case, inputs, "allowed")


@check
async def a_beam_step_without_beams_is_refused(client, case):
    inputs = [make_input("context", case["rows"]), make_input("scores", case["beam_scores_in"], "FP64")]
    await expect_refusal(client.infer("lm", inputs), 400, "parameter 'beam' is missing")
    await expect_refusal(client.infer("lm", inputs, parameters={"beam": 3}), 400, "no whole number of groups of 3")
