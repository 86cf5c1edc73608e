"""Requests by a tritonclient, and what must come of them."""

from __future__ import annotations

from checks import OUTPUTS, assert_same, catch
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException


def make_input(name, values, datatype="FP32", *, binary=True):
    return InferInput(name, list(values.shape), datatype).set_data_from_numpy(values, binary_data=binary)


def request_outputs(*names, binary=True):
    return [InferRequestedOutput(name, binary_data=binary) for name in names or OUTPUTS]


def same(result, case, answer, names=OUTPUTS):
    assert_same(result.as_numpy, case, answer, names)


async def expect_refusal(awaitable, status, *words):
    error = await catch(awaitable, InferenceServerException, status)
    assert error.status() == str(status), str(error)
    assert "decoding" not in error.message(), str(error)
    assert all(word in error.message() for word in words), str(error)


async def top3(client, case, inputs=None, answer="top3", names=OUTPUTS, k=3, **more):
    inputs = inputs or [make_input("context", case["rows"])]
    result = await client.infer("lm", inputs, parameters={"k": k}, **more)
    same(result, case, answer, names)
    return result
