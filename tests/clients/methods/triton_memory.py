"""Checks of shared memory."""

from __future__ import annotations

import base64

import numpy as np
from checks import check
from triton_requests import expect_refusal, request_outputs
from tritonclient.http import InferInput
from tritonclient.utils import shared_memory as shm


@check
async def cuda_shared_memory(client, case):
    handle = base64.b64encode(b"x" * 64)
    await expect_refusal(client.get_cuda_shared_memory_status(), 501)
    await expect_refusal(client.get_cuda_shared_memory_status("in"), 501)
    await expect_refusal(client.register_cuda_shared_memory("in", handle, 0, 64), 501)
    await expect_refusal(client.unregister_cuda_shared_memory("in"), 501)
    await expect_refusal(client.unregister_cuda_shared_memory(), 501)


@check
async def system_shared_memory(client, case):
    with Blocks(context=256) as blocks:
        key = blocks.keys["context"]
        await client.register_system_shared_memory("context", key, 128, offset=64)
        description = [{"name": "context", "key": key, "offset": 64, "byte_size": 128}]
        assert await client.get_system_shared_memory_status() == description
        assert await client.get_system_shared_memory_status("context") == description
        await expect_refusal(client.register_system_shared_memory("context", key, 64), 400, "registered")
        await expect_refusal(client.register_system_shared_memory("other", "/etc/../passwd", 64), 400)
        await expect_refusal(client.register_system_shared_memory("other", key, 1 << 40), 400)
        await client.unregister_system_shared_memory("context")
        await expect_refusal(client.get_system_shared_memory_status("context"), 400)
        await client.register_system_shared_memory("context", key, 128)
        await client.unregister_system_shared_memory()
        assert await client.get_system_shared_memory_status() == []


@check
async def infer_with_inputs_and_outputs_in_shared_memory(client, case):
    rows, ids, logprobs = case["rows"], case["top3_ids"], case["top3_logprobs"]
    with Blocks(context=rows.nbytes + 64, result=ids.nbytes + logprobs.nbytes) as blocks:
        for name, size in blocks.sizes.items():
            await client.register_system_shared_memory(name, blocks.keys[name], size)
        shm.set_shared_memory_region(blocks.handles["context"], [rows], offset=64)
        context = InferInput("context", list(rows.shape), "FP32")
        context.set_shared_memory("context", rows.nbytes, offset=64)
        outputs = request_outputs("ids", "logprobs", "scored")
        outputs[0].set_shared_memory("result", ids.nbytes)
        outputs[1].set_shared_memory("result", logprobs.nbytes, offset=ids.nbytes)
        result = await client.infer("lm", [context], outputs=outputs, parameters={"k": 3})
        handle = blocks.handles["result"]
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.int64, ids.shape).copy(), ids)
        values = shm.get_contents_as_numpy(handle, np.float32, logprobs.shape, ids.nbytes).copy()
        np.testing.assert_allclose(values, logprobs, atol=1e-5)
        np.testing.assert_array_equal(result.as_numpy("scored"), case["top3_scored"])
        description = result.get_output("logprobs")
        assert (description["datatype"], description["shape"]) == ("FP32", list(logprobs.shape))
        assert description["parameters"]["shared_memory_region"] == "result"
        assert description["parameters"]["shared_memory_byte_size"] == logprobs.nbytes
        assert description["parameters"]["shared_memory_offset"] == ids.nbytes
        outputs[0].set_shared_memory("result", ids.nbytes - 1)
        await expect_refusal(client.infer("lm", [context], outputs=outputs, parameters={"k": 3}), 400)
        context.set_shared_memory("nope", rows.nbytes)
        await expect_refusal(client.infer("lm", [context], outputs=request_outputs(), parameters={"k": 3}), 400, "nope")
        await client.unregister_system_shared_memory()


class Blocks:
    """Shared memory blocks by name -> size in bytes, removed at the end."""

    def __init__(self, **sizes):
        self.sizes = sizes
        self.keys = {name: f"/shortlist-{name}-{id(self)}" for name in sizes}
        create = shm.create_shared_memory_region
        self.handles = {name: create(name, self.keys[name], size, create_only=True) for name, size in sizes.items()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for handle in self.handles.values():
            shm.destroy_shared_memory_region(handle)
