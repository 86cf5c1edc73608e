"""Index, load, unload and config, in a real app over a repository that changes."""

from __future__ import annotations

import shutil
import threading
import time

import numpy as np
import pytest
import shortlist
from fastapi.testclient import TestClient
from shortlist.server.app import create_app
from shortlist.server.settings import Settings

from tests.support.layers import CLASSES, DIM, copy_writable, make_contexts
from tests.support.servers.responses import expect_success, read_refusal

ROWS = make_contexts(rows=4, seed=6).contexts
INDEX = "/v2/repository/index"


@pytest.fixture
def repository(small_repository, tmp_path):
    return copy_writable(small_repository, tmp_path / "repository")


@pytest.fixture
def client(repository):
    app = create_app(Settings(repository=repository, threads=1, max_rows=64, model_control="explicit"))
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_ready(client)
        yield client


@pytest.fixture
def starting(repository):
    """A server that has not begun to load."""
    return TestClient(create_app(Settings(repository=repository)), raise_server_exceptions=False)


def wait_ready(client):
    for _ in range(300):
        if client.get("/readyz").status_code == 200:
            return
        time.sleep(0.1)
    raise AssertionError(client.get("/readyz").text)


def ask(client, model="lm", **fields):
    return client.post("/v1/topk", json={"model": model, "contexts": ROWS.tolist(), "k": 3} | fields)


def load(client, name="lm", **body):
    return client.post(f"/v2/repository/models/{name}/load", **body)


def unload(client, name="lm", **body):
    return client.post(f"/v2/repository/models/{name}/unload", **body)


def index(client, **body):
    response = client.post(INDEX, **body)
    assert response.status_code == 200, response.text
    return {(entry["name"], entry["version"]): (entry["state"], entry["reason"]) for entry in response.json()}


def damage(repository, place="lm/1"):
    """Nobody changes a bundle's files in place; a manifest that is not one fails to load, at once."""
    (repository / place / "manifest.json").write_text("{}")


READY = ("READY", "")


def test_index_of_what_is_ready(client):
    everything = {("dense", "1"): READY, ("lm", "1"): READY}
    assert index(client) == index(client, json={}) == index(client, json={"ready": True}) == everything
    as_a_client_sends_it = {"content": b'{"ready": false}', "headers": {"Content-Type": "application/octet-stream"}}
    assert index(client, **as_a_client_sends_it) == everything


def test_index_of_what_is_loading(starting):
    assert index(starting)["lm", "1"] == ("LOADING", "it is still loading")
    assert index(starting, json={"ready": True}) == {}


@pytest.mark.parametrize("body", [b'{"ready": 1}', b'{"ready": "yes"}', b"[]", b"ready", b"[" * 60_000])
def test_wrong_index_bodies(starting, body):
    read_refusal(starting.post(INDEX, content=body), 400)


def test_a_body_over_the_limit(repository):
    client = TestClient(create_app(Settings(repository=repository, body_limit=100)))
    read_refusal(client.post(INDEX, content=b" " * 101), 413)


def test_an_unloaded_model_is_not_ready_and_the_server_is(client):
    expect_success(unload(client, json={"parameters": {"unload_dependents": False}}))
    assert "not ready: unloaded" in read_refusal(ask(client), 503)
    for path in ("/v2/models/lm/ready", "/v2/models/lm", "/v2/models/lm/config", "/v2/models/lm/versions/1/ready"):
        assert "unloaded" in read_refusal(client.get(path), 503)
    assert client.get("/readyz").status_code == client.get("/v2/health/ready").status_code == 200
    assert index(client) == {("dense", "1"): READY, ("lm", "1"): ("UNAVAILABLE", "unloaded")}
    assert index(client, json={"ready": True}) == {("dense", "1"): READY}
    assert client.get("/v1/models/lm").json()["state"] == "unloaded"
    assert ask(client, "dense").status_code == 200
    expect_success(unload(client))


def test_an_unloaded_model_answers_again_once_loaded(client):
    before = ask(client).json()
    expect_success(unload(client))
    expect_success(load(client))
    assert ask(client).json() == before
    assert index(client)["lm", "1"] == READY


def test_no_request_fails_while_its_model_is_loaded_again(client):
    before, answers, stop = ask(client).json(), [], threading.Event()

    def ask_repeatedly():
        while not stop.is_set():
            answers.append(ask(client))

    thread = threading.Thread(target=ask_repeatedly)
    thread.start()
    for _ in range(3):
        expect_success(load(client))
    stop.set()
    thread.join()
    assert len(answers) > 3
    assert all(answer.status_code == 200 and answer.json() == before for answer in answers)


def test_the_old_head_stays_where_loading_fails(client, repository):
    before = ask(client).json()
    damage(repository)
    assert "could not be loaded" in read_refusal(load(client), 500)
    assert ask(client).json() == before
    assert index(client)["lm", "1"] == READY


def test_a_version_that_failed_is_tried_again(repository):
    manifest = repository / "lm" / "1" / "manifest.json"
    text = manifest.read_text()
    damage(repository)
    with TestClient(create_app(Settings(repository=repository, threads=1, model_control="explicit"))) as client:
        while "loading" in read_refusal(client.get("/readyz"), 503):
            time.sleep(0.05)
        assert index(client)["lm", "1"][0] == "UNAVAILABLE"
        assert "manifest" in index(client)["lm", "1"][1]
        assert "manifest" in read_refusal(load(client), 500)
        manifest.write_text(text)
        expect_success(load(client))
        assert ask(client).status_code == client.get("/readyz").status_code == 200


def test_names_and_versions_that_were_added_while_it_ran(client, repository):
    read_refusal(ask(client, "new"), 404)
    for place in ("lm/10", "lm/2", "new/3"):
        shutil.copytree(repository / "lm" / "1", repository / place)
    read_refusal(ask(client, "new"), 404)
    expect_success(load(client))
    expect_success(load(client, "new"))
    assert [key for key in index(client) if key[0] != "dense"] == [("lm", "1"), ("lm", "2"), ("lm", "10"), ("new", "3")]
    assert ask(client).json()["version"] == 10
    assert ask(client, "new").json()["version"] == 3
    assert ask(client, version=1).json()["version"] == 1


def test_a_new_version_that_fails_leaves_the_old_ones_and_readiness_alone(client, repository):
    shutil.copytree(repository / "lm" / "1", repository / "lm" / "2")
    damage(repository, "lm/2")
    assert "model 'lm' version 2" in read_refusal(load(client), 500)
    assert ask(client).json()["version"] == 1
    assert client.get("/readyz").status_code == 200
    assert index(client)["lm", "2"][0] == "UNAVAILABLE"


def test_a_version_that_was_removed_is_dropped(client, repository):
    (repository / "lm" / "1").rename(repository / "lm" / "2")
    assert ask(client).json()["version"] == 1
    expect_success(load(client))
    assert ask(client).json()["version"] == 2
    read_refusal(ask(client, version=1), 404)


@pytest.mark.parametrize("name", ["nope", "..", "%2e%2e", ".hidden", "a b", "x" * 5000])
def test_names_that_are_not_in_the_repository(client, name):
    read_refusal(load(client, name), 404)
    read_refusal(unload(client, name), 404)


def test_overrides_are_refused_by_name(client):
    for name in ("config", "file:1/model.onnx", "file:" + "x" * 256):
        sentence = read_refusal(load(client, json={"parameters": {name: "e30="}}), 400)
        assert name[:20] in sentence
        assert len(sentence) < 300
    expect_success(load(client, json={"parameters": {}}))
    expect_success(load(client, json={}))
    read_refusal(load(client, json={"parameters": []}), 400)
    read_refusal(unload(client, json={"parameters": {"unload_dependents": "no"}}), 400)
    assert ask(client).status_code == 200


def test_the_config_agrees_with_the_metadata(client):
    config = client.get("/v2/models/lm/config").json()
    metadata = client.get("/v2/models/lm").json()
    assert config == client.get("/v2/models/lm/versions/1/config").json()
    assert (config["name"], config["platform"], config["max_batch_size"]) == ("lm", metadata["platform"], 64)
    for kind in ("input", "output"):
        tensors = [(entry["name"], entry["data_type"], [-1, *entry["dims"]]) for entry in config[kind]]
        expected = [
            (entry["name"], "TYPE_" + entry["datatype"].replace("BYTES", "STRING"), entry["shape"])
            for entry in metadata[kind + "s"]
        ]
        assert tensors == expected
    optional = {entry["name"]: entry["optional"] for entry in config["input"]}
    assert [name for name, is_optional in optional.items() if not is_optional] == ["context"]
    assert {"allow", "ban", "ids", "bias", "scores", "finished"} <= set(optional)
    assert config["input"][0]["dims"] == [DIM]
    assert config["parameters"]["max_k"] == {"string_value": str(CLASSES)}
    assert config["model_transaction_policy"] == {"decoupled": False}
    batching = config["dynamic_batching"]
    assert batching["max_queue_delay_microseconds"] == 0
    assert batching["default_queue_policy"]["default_timeout_microseconds"] == 30_000_000
    labels = {entry["name"]: entry["label_filename"] for entry in config["output"]}
    assert labels == {
        "ids": "",
        "logprobs": "labels.json",
        "scored": "",
        "risk": "",
        "scores": "",
        "labels": "",
        "names": "",
    }


def test_configs_that_there_are_not(client, starting):
    read_refusal(client.get("/v2/models/nope/config"), 404)
    read_refusal(client.get("/v2/models/lm/versions/9/config"), 404)
    read_refusal(starting.get("/v2/models/lm/config"), 503)


def test_a_model_that_was_loaded_again_answers_as_offline(client, repository):
    expect_success(load(client))
    expected = shortlist.load(repository / "lm" / "1", threads=1).topk(ROWS, 3)
    result = ask(client).json()
    assert result["ids"] == expected.ids.tolist()
    np.testing.assert_allclose(result["logprobs"], expected.logprobs, atol=1e-4)
