"""The kserve client's REST methods of protocol v2 against a running server; run by a python that has kserve.

Arguments: host:port, case.npz. Prints one JSON line: each check -> "ok" or what went wrong.
"""

from __future__ import annotations

import asyncio
import json
import sys

import httpx
import numpy as np
from checks import OUTPUTS, assert_same, catch, check, run_checks
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput


def request(case, *, binary, outputs=OUTPUTS, binary_out=None, **more):
    rows = case["rows"]
    context = InferInput("context", list(rows.shape), "FP32")
    context.set_data_from_numpy(rows, binary_data=binary)
    form = {"binary_data": binary if binary_out is None else binary_out}
    output_forms = [RequestedOutput(name, parameters=form) for name in outputs]
    return InferRequest("lm", [context], parameters={"k": 3}, request_outputs=output_forms, **more)


def same(result, case):
    assert_same(lambda name: result.get_output_by_name(name).as_numpy(), case, "top3")


async def expect_refusal(awaitable, status, *words):
    error = await catch(awaitable, httpx.HTTPStatusError, status)
    assert error.response.status_code == status, str(error)
    assert all(word in str(error) for word in words), str(error)


@check
async def is_server_live(client, url, case):
    assert await client.is_server_live(url) is True


@check
async def is_server_ready(client, url, case):
    assert await client.is_server_ready(url) is True


@check
async def is_model_ready(client, url, case):
    assert await client.is_model_ready(url, "lm") is True
    assert await client.is_model_ready(url, "nope") is False


@check
async def infer_binary(client, url, case):
    result = await client.infer(url, request(case, binary=True, request_id="7"), model_name="lm")
    same(result, case)
    assert (result.id, result.model_name) == ("7", "lm")  # the client drops the version


@check
async def infer_json(client, url, case):
    result = await client.infer(url, request(case, binary=False, request_id="7"), model_name="lm")
    same(result, case)
    assert (result.id, result.model_name) == ("7", "lm")


@check
async def infer_binary_in_json_out(client, url, case):
    same(await client.infer(url, request(case, binary=True, binary_out=False), model_name="lm"), case)


@check
async def infer_json_in_binary_out(client, url, case):
    same(await client.infer(url, request(case, binary=False, binary_out=True), model_name="lm"), case)


@check
async def infer_a_dictionary(client, url, case):
    rows = case["rows"]
    context = {"name": "context", "shape": list(rows.shape), "datatype": "FP32", "data": rows.ravel().tolist()}
    content = {"id": "8", "inputs": [context], "parameters": {"k": 3}}
    headers = {}
    result = await client.infer(url, content, model_name="lm", headers={"X-Who": "me"}, response_headers=headers)
    same(result, case)
    assert result.id == "8"
    assert headers["content-type"] == "application/json"


@check
async def infer_as_a_graph(client, url, case):
    rows = case["rows"]
    context = {"name": "context", "shape": list(rows.shape), "datatype": "FP32", "data": rows.ravel().tolist()}
    content = {"inputs": [context], "parameters": {"k": 3}}
    result = await client.infer(f"{url}/v2/models/lm/infer", content, is_graph_endpoint=True)
    assert result["outputs"][0]["data"] == case["top3_ids"].ravel().tolist()


@check
async def infer_refused(client, url, case):
    unknown = "Request for unknown model: 'nope' is not found"
    await expect_refusal(client.infer(url, request(case, binary=True), model_name="nope"), 404, unknown)
    await expect_refusal(client.infer(url, request(case, binary=True, outputs=("nope",)), model_name="lm"), 400, "nope")
    await expect_refusal(client.infer(url, {"inputs": []}, model_name="lm"), 400, "context")


async def run(place, case):
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        return await run_checks(client, f"http://{place}", case)


if __name__ == "__main__":
    place, path = sys.argv[1:]
    print(json.dumps(asyncio.run(run(place, dict(np.load(path))))))
