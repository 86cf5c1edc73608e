"""Every method of an unmodified tritonclient against a running server; run by a python that has tritonclient.

Arguments: host:port, case.npz, http or aio. Prints one JSON line: each check -> "ok" or what went wrong. The
checks are written once, as coroutines: the client that blocks is wrapped so that its answers can be awaited.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import inspect
import json
import sys
import traceback

import ml_dtypes
import numpy as np
import tritonclient.http as blocking
import tritonclient.http.aio as waiting
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.http.auth import BasicAuth
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

CHECKS = []
OUTPUTS = ("ids", "logprobs", "scored")
STATS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


def check(function):
    CHECKS.append(function)
    return function


class Client:
    """A client whose calls are noted by name, and can all be awaited."""

    def __init__(self, real):
        self.real, self.called = real, set()

    def __getattr__(self, name):
        method = getattr(self.real, name)

        async def call(*arguments, **named):
            self.called.add(name)
            answer = method(*arguments, **named)
            return await answer if inspect.isawaitable(answer) else answer

        return call


def given(name, values, datatype="FP32", *, binary=True):
    return InferInput(name, list(values.shape), datatype).set_data_from_numpy(values, binary_data=binary)


def wanted(*names, binary=True):
    return [InferRequestedOutput(name, binary_data=binary) for name in names or OUTPUTS]


def same(found, case, answer, names=OUTPUTS):
    for name in names:
        expected, values = case[f"{answer}_{name}"], found.as_numpy(name)
        assert values.shape == expected.shape, f"{name}: {values.shape} for {expected.shape}"
        assert values.dtype == expected.dtype, f"{name}: {values.dtype}"
        if name == "logprobs":
            np.testing.assert_allclose(np.maximum(values, -3e38), np.maximum(expected, -3e38), atol=1e-5)
        else:
            np.testing.assert_array_equal(values, expected)


async def refused(awaitable, status, *words):
    error = None
    try:
        await awaitable
    except InferenceServerException as raised:
        error = raised
    assert error is not None, f"was answered, and should have been refused with {status}"
    assert error.status() == str(status), str(error)
    assert "decoding" not in error.message(), str(error)
    assert all(word in error.message() for word in words), str(error)


async def top3(client, case, inputs=None, answer="top3", names=OUTPUTS, k=3, **more):
    inputs = inputs or [given("context", case["rows"])]
    found = await client.infer("lm", inputs, parameters={"k": k}, **more)
    same(found, case, answer, names)
    return found


# health, metadata and config


@check
async def is_server_live_and_ready(client, case):
    assert await client.is_server_live() is True
    assert await client.is_server_ready() is True


@check
async def is_model_ready(client, case):
    assert await client.is_model_ready("lm")
    assert await client.is_model_ready("lm", "1")
    assert not await client.is_model_ready("lm", "9")
    assert not await client.is_model_ready("nope")


@check
async def get_server_metadata(client, case):
    metadata = await client.get_server_metadata()
    assert metadata["name"] == "shortlist"
    assert metadata["version"]
    served = {"binary_tensor_data", "parameters", "classification", "model_repository", "model_configuration"}
    served |= {"statistics", "trace", "logging", "system_shared_memory", "schedule_policy"}
    assert served <= set(metadata["extensions"]), f"missing: {served - set(metadata['extensions'])}"
    assert not {"cuda_shared_memory", "sequence"} & set(metadata["extensions"])


@check
async def get_model_metadata(client, case):
    metadata = await client.get_model_metadata("lm")
    assert (metadata["name"], metadata["versions"], metadata["platform"]) == ("lm", ["1"], "onnxruntime_onnx")
    assert metadata["inputs"][0] == {"name": "context", "datatype": "FP32", "shape": [-1, case["rows"].shape[1]]}
    assert [output["name"] for output in metadata["outputs"]] == [*OUTPUTS, "labels"]
    assert await client.get_model_metadata("lm", "1") == metadata
    await refused(client.get_model_metadata("nope"), 404, "Request for unknown model: 'nope' is not found")


@check
async def get_model_config(client, case):
    config, metadata = await client.get_model_config("lm"), await client.get_model_metadata("lm")
    assert config["max_batch_size"] >= 1
    for kind in ("input", "output"):
        assert [tensor["name"] for tensor in config[kind]] == [tensor["name"] for tensor in metadata[kind + "s"]]
    assert config["input"][0]["data_type"] == "TYPE_FP32"
    assert config["input"][0]["dims"] == [case["rows"].shape[1]]
    assert await client.get_model_config("lm", "1") == config
    await refused(client.get_model_config("nope"), 404)


@check
async def headers_and_query_params(client, case):
    more = {"headers": {"X-Who": "me"}, "query_params": {"a": 1, "b": ["x", "y z"]}}
    assert await client.is_server_live(**more)
    assert (await client.get_server_metadata(**more))["name"] == "shortlist"
    await top3(client, case, **more)


# the repository, statistics, settings


@check
async def get_model_repository_index(client, case):
    index = await client.get_model_repository_index()
    ready = {"version": "1", "state": "READY", "reason": ""}
    assert index == [{"name": "dense"} | ready, {"name": "lm"} | ready], index


@check
async def load_model(client, case):
    await client.load_model("lm")
    await top3(client, case)
    await refused(client.load_model("nope"), 404)
    await refused(client.load_model("lm", config="{}"), 400, "config")
    files = {"file:1/model.onnx": b"x"}
    await refused(client.load_model("lm", files=files), 400, "file:1/model.onnx")


@check
async def unload_model(client, case):
    await client.unload_model("dense", unload_dependents=True)
    assert not await client.is_model_ready("dense")
    assert await client.is_server_ready()
    await refused(client.infer("dense", [given("context", case["rows"])]), 503, "not ready")
    states = {entry["name"]: (entry["state"], entry["reason"]) for entry in await client.get_model_repository_index()}
    assert states == {"dense": ("UNAVAILABLE", "unloaded"), "lm": ("READY", "")}
    await client.load_model("dense")
    assert await client.is_model_ready("dense")
    await refused(client.unload_model("nope"), 404)


@check
async def get_inference_statistics(client, case):
    before = (await client.get_inference_statistics("lm"))["model_stats"][0]
    await top3(client, case)
    after = (await client.get_inference_statistics("lm", "1"))["model_stats"][0]
    assert (after["name"], after["version"]) == ("lm", "1")
    assert after["inference_count"] - before["inference_count"] == len(case["rows"])
    assert after["execution_count"] - before["execution_count"] == 1
    assert set(STATS) <= set(after["inference_stats"])
    for stat in after["inference_stats"].values():
        assert type(stat["count"]) is int
        assert type(stat["ns"]) is int
    counts = [stats["inference_stats"]["success"]["count"] for stats in (before, after)]
    assert counts[1] - counts[0] == 1
    assert {stats["name"] for stats in (await client.get_inference_statistics())["model_stats"]} == {"dense", "lm"}
    await refused(client.get_inference_statistics("nope"), 404)


@check
async def trace_settings(client, case):
    before = await client.get_trace_settings()
    assert before["trace_level"] == ["OFF"]
    assert (await client.update_trace_settings(settings={"trace_rate": "5"}))["trace_rate"] == "5"
    assert (await client.get_trace_settings("lm"))["trace_rate"] == "5"
    assert (await client.update_trace_settings("lm", {"trace_rate": "7"}))["trace_rate"] == "7"
    assert (await client.get_trace_settings("lm"))["trace_rate"] == "7"
    assert (await client.update_trace_settings("lm", {"trace_rate": None}))["trace_rate"] == "5"
    assert await client.update_trace_settings(settings={"trace_rate": None}) == before
    await refused(client.get_trace_settings("nope"), 404)
    await refused(client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}), 400, "tracing")


@check
async def log_settings(client, case):
    before = await client.get_log_settings()
    assert set(before) == {"log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"}
    assert (await client.update_log_settings({"log_verbose_level": 1}))["log_verbose_level"] == 1
    assert (await client.get_log_settings())["log_verbose_level"] == 1
    assert await client.update_log_settings(before) == before
    await refused(client.update_log_settings({"log_file": "/tmp/log"}), 400, "log_file")


# shared memory


@check
async def cuda_shared_memory(client, case):
    handle = base64.b64encode(b"x" * 64)
    await refused(client.get_cuda_shared_memory_status(), 501)
    await refused(client.get_cuda_shared_memory_status("in"), 501)
    await refused(client.register_cuda_shared_memory("in", handle, 0, 64), 501)
    await refused(client.unregister_cuda_shared_memory("in"), 501)
    await refused(client.unregister_cuda_shared_memory(), 501)


@check
async def system_shared_memory(client, case):
    with Blocks(context=256) as blocks:
        key = blocks.keys["context"]
        await client.register_system_shared_memory("context", key, 128, offset=64)
        shown = [{"name": "context", "key": key, "offset": 64, "byte_size": 128}]
        assert await client.get_system_shared_memory_status() == shown
        assert await client.get_system_shared_memory_status("context") == shown
        await refused(client.register_system_shared_memory("context", key, 64), 400, "registered")
        await refused(client.register_system_shared_memory("other", "/etc/../passwd", 64), 400)
        await refused(client.register_system_shared_memory("other", key, 1 << 40), 400)
        await client.unregister_system_shared_memory("context")
        await refused(client.get_system_shared_memory_status("context"), 400)
        await client.register_system_shared_memory("context", key, 128)
        await client.unregister_system_shared_memory()
        assert await client.get_system_shared_memory_status() == []


@check
async def infer_with_inputs_and_outputs_in_shared_memory(client, case):
    rows, ids, logprobs = case["rows"], case["top3_ids"], case["top3_logprobs"]
    with Blocks(context=rows.nbytes + 64, found=ids.nbytes + logprobs.nbytes) as blocks:
        for name, size in blocks.sizes.items():
            await client.register_system_shared_memory(name, blocks.keys[name], size)
        shm.set_shared_memory_region(blocks.handles["context"], [rows], offset=64)
        context = InferInput("context", list(rows.shape), "FP32")
        context.set_shared_memory("context", rows.nbytes, offset=64)
        outputs = wanted("ids", "logprobs", "scored")
        outputs[0].set_shared_memory("found", ids.nbytes)
        outputs[1].set_shared_memory("found", logprobs.nbytes, offset=ids.nbytes)
        found = await client.infer("lm", [context], outputs=outputs, parameters={"k": 3})
        handle = blocks.handles["found"]
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.int64, ids.shape).copy(), ids)
        values = shm.get_contents_as_numpy(handle, np.float32, logprobs.shape, ids.nbytes).copy()
        np.testing.assert_allclose(values, logprobs, atol=1e-5)
        np.testing.assert_array_equal(found.as_numpy("scored"), case["top3_scored"])
        shown = found.get_output("logprobs")
        assert (shown["datatype"], shown["shape"]) == ("FP32", list(logprobs.shape))
        assert shown["parameters"]["shared_memory_region"] == "found"
        assert shown["parameters"]["shared_memory_byte_size"] == logprobs.nbytes
        assert shown["parameters"]["shared_memory_offset"] == ids.nbytes
        outputs[0].set_shared_memory("found", ids.nbytes - 1)
        await refused(client.infer("lm", [context], outputs=outputs, parameters={"k": 3}), 400)
        context.set_shared_memory("nope", rows.nbytes)
        await refused(client.infer("lm", [context], outputs=wanted(), parameters={"k": 3}), 400, "nope")
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


# inference


@check
async def infer_binary_in_and_out(client, case):
    found = await top3(client, case, outputs=wanted())
    assert found.get_response()["model_name"] == "lm"
    assert found.get_response()["model_version"] == "1"
    assert found.get_output("ids")["parameters"]["binary_data_size"] == case["top3_ids"].nbytes
    assert found.get_output("nope") is None


@check
async def infer_without_outputs_named(client, case):
    found = await top3(client, case)
    assert "binary_data_size" in found.get_output("scored")["parameters"]


@check
async def infer_json_in_and_out(client, case):
    inputs = [given("context", case["rows"], binary=False)]
    found = await top3(client, case, inputs, outputs=wanted(binary=False))
    assert len(found.get_output("ids")["data"]) == case["top3_ids"].size


@check
async def infer_json_in_binary_out(client, case):
    await top3(client, case, [given("context", case["rows"], binary=False)], outputs=wanted())


@check
async def infer_binary_in_json_out(client, case):
    await top3(client, case, outputs=wanted(binary=False))


@check
async def infer_some_outputs_in_their_order_and_form(client, case):
    outputs = [*wanted("scored", binary=False), *wanted("ids")]
    found = await top3(client, case, outputs=outputs, names=("scored", "ids"))
    assert [output["name"] for output in found.get_response()["outputs"]] == ["scored", "ids"]


@check
async def infer_default_k(client, case):
    same(await client.infer("lm", [given("context", case["rows"])]), case, "top5")


@check
async def infer_a_version(client, case):
    await top3(client, case, model_version="1")
    await refused(client.infer("lm", [given("context", case["rows"])], model_version="9"), 404)


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
    found = await client.infer("lm", [given("context", case["rows"])], parameters={"k": 3, "exact": True})
    same(found, case, "exact")


@check
async def infer_half_precision(client, case):
    await top3(client, case, [given("context", case["rows"].astype(np.float16), "FP16")], "half")
    await top3(client, case, [given("context", case["brain"].astype(ml_dtypes.bfloat16), "BF16")], "brain")


@check
async def infer_allow_and_ban(client, case):
    context = given("context", case["rows"])
    await top3(client, case, [context, given("allow", case["allow"], "INT64")], "allowed")
    await top3(client, case, [context, given("ban", case["ban"], "INT64")], "unbanned")
    await top3(client, case, [context, given("ban", case["ban"], "INT64", binary=False)], "unbanned")


@check
async def infer_log_probabilities_of_ids(client, case):
    inputs = [given("context", case["rows"]), given("ids", case["given"], "INT64")]
    found = await client.infer("lm", inputs)
    np.testing.assert_allclose(found.as_numpy("logprobs"), case["given_logprobs"], atol=1e-5)


@check
async def infer_no_rows(client, case):
    rows = case["rows"][:0]
    found = await client.infer("lm", [given("context", rows)], outputs=wanted(), parameters={"k": 3})
    assert [found.as_numpy(name).shape for name in OUTPUTS] == [(0, 3), (0, 3), (0,)]


@check
async def infer_compressed(client, case):
    for encoding in ("gzip", "deflate"):
        both = {"request_compression_algorithm": encoding, "response_compression_algorithm": encoding}
        for more in (both, *({name: value} for name, value in both.items())):
            for binary in (True, False):
                inputs = [given("context", case["wide"], binary=binary)]
                await top3(client, case, inputs, "wide100", k=100, outputs=wanted(binary=binary), **more)
            await top3(client, case, **more)


@check
async def infer_classes(client, case):
    for binary in (True, False):
        outputs = [InferRequestedOutput("logprobs", binary_data=binary, class_count=3)]
        found = await client.infer("lm", [given("context", case["rows"])], outputs=outputs)
        assert found.get_output("logprobs")["datatype"] == "BYTES"
        classes = found.as_numpy("logprobs")
        assert classes.shape == (4, 3), classes.shape
        for cell, id_, logprob in zip(classes.flat, case["top3_ids"].flat, case["top3_logprobs"].flat, strict=True):
            value, index, label = (cell.decode() if isinstance(cell, bytes) else cell).split(":", 2)
            assert (int(index), label) == (id_, f"word {id_}")
            assert abs(float(value) - logprob) < 1e-5


@check
async def infer_labels(client, case):
    for binary in (True, False):
        found = await top3(client, case, outputs=wanted(*OUTPUTS, "labels", binary=binary))
        assert found.get_output("labels")["datatype"] == "BYTES"
        labels = [cell.decode() if isinstance(cell, bytes) else cell for cell in found.as_numpy("labels").flat]
        assert labels == [f"word {id_}" for id_ in case["top3_ids"].flat]
    await refused(client.infer("dense", [given("context", case["rows"])], outputs=wanted("labels")), 400, "labels")


@check
async def infer_classes_without_labels(client, case):
    outputs = [InferRequestedOutput("logprobs", class_count=2)]
    found = await client.infer("dense", [given("context", case["rows"])], outputs=outputs)
    cells = [cell.decode().split(":") for cell in found.as_numpy("logprobs").flat]
    assert [len(cell) for cell in cells] == [2] * 8
    assert [int(cell[1]) for cell in cells] == case["exact_ids"][:, :2].ravel().tolist()


@check
async def infer_refused(client, case):
    rows = case["rows"]
    good = given("context", rows)
    await refused(client.infer("nope", [good]), 404, "Request for unknown model: 'nope' is not found")
    await refused(client.infer("lm", [given("nope", rows)]), 400, "nope")
    await refused(client.infer("lm", [given("context", rows[:, 1:].copy())]), 400, "context")
    await refused(client.infer("lm", [given("context", rows.astype(np.float64), "FP64")]), 400, "FP64")
    await refused(client.infer("lm", [good], outputs=wanted("nope")), 400, "nope")
    await refused(client.infer("lm", [good], outputs=wanted("ids", "ids")), 400, "output 'ids' already exists")
    await refused(client.infer("lm", [good], parameters={"k": 0}), 400, "k is 0")
    await refused(
        client.infer("lm", [good], request_compression_algorithm=None, headers={"Content-Encoding": "br"}), 501
    )
    await top3(client, case)


@check
async def async_infer(client, case):
    if not hasattr(client.real, "async_infer"):
        return
    waiting = [await client.async_infer("lm", [given("context", case["rows"])], parameters={"k": 3}) for _ in range(8)]
    for request in waiting:
        same(request.get_result(timeout=20), case, "top3")
    refusal = await client.async_infer("nope", [given("context", case["rows"])])

    async def result():
        return refusal.get_result()

    await refused(result(), 404)


@check
async def many_at_once(client, case):
    await asyncio.gather(*(top3(client, case, request_id=str(number)) for number in range(32)))


@check
async def generate_request_body_and_parse_response_body(client, case):
    inputs, outputs = [given("context", case["rows"])], wanted()
    body, size = await client.generate_request_body(inputs, outputs, request_id="9", parameters={"k": 3})
    connection = http.client.HTTPConnection(case["place"])
    connection.request("POST", "/v2/models/lm/infer", body, {"Inference-Header-Content-Length": str(size)})
    answer = connection.getresponse()
    size = int(answer.headers["Inference-Header-Content-Length"])
    found = await client.parse_response_body(answer.read(), header_length=size)
    connection.close()
    same(found, case, "top3")
    assert found.get_response()["id"] == "9"


@check
async def plugins(client, case):
    assert await client.plugin() is None
    await client.register_plugin(BasicAuth("user", "word"))
    await top3(client, case)
    assert await client.plugin() is not None
    await client.unregister_plugin()


async def every_method_was_called(client, case):
    """Of those that the client has; the last check, after all others."""
    methods = {name for name, _ in inspect.getmembers(type(client.real), callable) if not name.startswith("_")}
    missed = methods - client.called - {"close"}
    assert not missed, f"not called: {', '.join(sorted(missed))}"


async def run(client, case):
    report = {}
    for each in [*CHECKS, every_method_was_called]:
        try:
            await each(client, case)
            report[each.__name__] = "ok"
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[1:2]
            where = f"line {line[0].lineno}" if line else "?"
            report[each.__name__] = f"{where}: {type(error).__name__}: {error}"[:600]
    return report


async def run_waiting(place, case):
    async with waiting.InferenceServerClient(place) as real:
        return await run(Client(real), case)


def run_blocking(place, case):
    with blocking.InferenceServerClient(place, concurrency=4) as real:
        return asyncio.run(run(Client(real), case))


if __name__ == "__main__":
    place, path, kind = sys.argv[1:]
    case = dict(np.load(path)) | {"place": place}
    report = asyncio.run(run_waiting(place, case)) if kind == "aio" else run_blocking(place, case)
    print(json.dumps(report))
