"""Checks of health, metadata, config, the repository, statistics and settings."""

from __future__ import annotations

from checks import OUTPUTS, check
from triton_requests import expect_refusal, make_input, top3

STATS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


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
    extensions = {"binary_tensor_data", "parameters", "classification", "model_repository", "model_configuration"}
    extensions |= {"statistics", "trace", "logging", "system_shared_memory", "schedule_policy"}
    assert extensions <= set(metadata["extensions"]), f"missing: {extensions - set(metadata['extensions'])}"
    assert not {"cuda_shared_memory", "sequence"} & set(metadata["extensions"])


@check
async def get_model_metadata(client, case):
    metadata = await client.get_model_metadata("lm")
    assert (metadata["name"], metadata["versions"], metadata["platform"]) == ("lm", ["1"], "onnxruntime_onnx")
    assert metadata["inputs"][0] == {"name": "context", "datatype": "FP32", "shape": [-1, case["rows"].shape[1]]}
    assert [output["name"] for output in metadata["outputs"]] == [*OUTPUTS, "risk", "scores", "labels", "names"]
    assert await client.get_model_metadata("lm", "1") == metadata
    await expect_refusal(client.get_model_metadata("nope"), 404, "Request for unknown model: 'nope' is not found")


@check
async def get_model_config(client, case):
    config, metadata = await client.get_model_config("lm"), await client.get_model_metadata("lm")
    assert config["max_batch_size"] >= 1
    for kind in ("input", "output"):
        assert [tensor["name"] for tensor in config[kind]] == [tensor["name"] for tensor in metadata[kind + "s"]]
    assert config["input"][0]["data_type"] == "TYPE_FP32"
    assert config["input"][0]["dims"] == [case["rows"].shape[1]]
    assert await client.get_model_config("lm", "1") == config
    await expect_refusal(client.get_model_config("nope"), 404)


@check
async def headers_and_query_params(client, case):
    more = {"headers": {"X-Who": "me"}, "query_params": {"a": 1, "b": ["x", "y z"]}}
    assert await client.is_server_live(**more)
    assert (await client.get_server_metadata(**more))["name"] == "shortlist"
    await top3(client, case, **more)


@check
async def get_model_repository_index(client, case):
    index = await client.get_model_repository_index()
    ready = {"version": "1", "state": "READY", "reason": ""}
    assert index == [{"name": "dense"} | ready, {"name": "lm"} | ready], index


@check
async def load_model(client, case):
    await client.load_model("lm")
    await top3(client, case)
    await expect_refusal(client.load_model("nope"), 404)
    await expect_refusal(client.load_model("lm", config="{}"), 400, "config")
    files = {"file:1/model.onnx": b"x"}
    await expect_refusal(client.load_model("lm", files=files), 400, "file:1/model.onnx")


@check
async def unload_model(client, case):
    await client.unload_model("dense", unload_dependents=True)
    assert not await client.is_model_ready("dense")
    assert await client.is_server_ready()
    await expect_refusal(client.infer("dense", [make_input("context", case["rows"])]), 503, "not ready")
    states = {entry["name"]: (entry["state"], entry["reason"]) for entry in await client.get_model_repository_index()}
    assert states == {"dense": ("UNAVAILABLE", "unloaded"), "lm": ("READY", "")}
    await client.load_model("dense")
    assert await client.is_model_ready("dense")
    await expect_refusal(client.unload_model("nope"), 404)


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
    await expect_refusal(client.get_inference_statistics("nope"), 404)


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
    await expect_refusal(client.get_trace_settings("nope"), 404)
    await expect_refusal(client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}), 400, "tracing")


@check
async def log_settings(client, case):
    before = await client.get_log_settings()
    assert set(before) == {"log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"}
    assert (await client.update_log_settings({"log_verbose_level": 1}))["log_verbose_level"] == 1
    assert (await client.get_log_settings())["log_verbose_level"] == 1
    assert await client.update_log_settings(before) == before
    await expect_refusal(client.update_log_settings({"log_file": "/tmp/log"}), 400, "log_file")
