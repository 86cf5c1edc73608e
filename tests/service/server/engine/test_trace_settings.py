"""Trace settings, in a real app that loads nothing."""

from __future__ import annotations

import pytest

from tests.support.servers.responses import read_refusal

TRACE, OF_LM = "/v2/trace/setting", "/v2/models/lm/trace/setting"
DEFAULTS = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0", "trace_file": ""}


def test_trace_settings_are_kept_and_cleared(client):
    assert client.get(TRACE).json() == DEFAULTS
    changes = {"trace_level": ["OFF"], "trace_rate": "5", "trace_count": "10", "log_frequency": "2"}
    assert client.post(TRACE, json=changes).json() == DEFAULTS | changes == client.get(TRACE).json()
    settings = client.post(TRACE, json={"trace_rate": None, "trace_count": "-1", "trace_level": "OFF"}).json()
    assert settings == DEFAULTS | {"log_frequency": "2"}
    assert client.post(TRACE, json=dict.fromkeys(DEFAULTS)).json() == DEFAULTS


def test_a_models_trace_settings_stand_over_the_servers(client):
    client.post(TRACE, json={"trace_rate": "5", "log_frequency": "2"})
    assert client.get(OF_LM).json() == client.get(TRACE).json()
    assert client.post(OF_LM, json={"trace_rate": "7"}).json()["trace_rate"] == "7"
    client.post(TRACE, json={"trace_rate": "6", "log_frequency": "3"})
    settings = client.get(OF_LM).json()
    assert (settings["trace_rate"], settings["log_frequency"]) == ("7", "3")
    assert client.post(OF_LM, json={"trace_rate": None}).json()["trace_rate"] == "6"
    assert client.get("/v2/models/dense/trace/setting").json()["trace_rate"] == "6"


@pytest.mark.parametrize(
    "changes",
    [
        {"trace_level": ["TIMESTAMPS"]},
        {"trace_level": "TENSORS"},
        {"trace_level": []},
        {"trace_file": "/tmp/trace.json"},
        {"trace_rate": "fast"},
        {"trace_rate": "-1"},
        {"trace_rate": 5},
        {"trace_rate": "9" * 1000},
        {"trace_count": "-2"},
        {"trace_colour": "1"},
        {"trace_rate": "5", "trace_count": "x"},
    ],
)
def test_wrong_trace_settings_change_nothing(client, changes):
    for path in (TRACE, OF_LM):
        read_refusal(client.post(path, json=changes))
        assert client.get(path).json() == DEFAULTS


def test_tracing_says_that_it_is_not_built_in(client):
    assert "tracing is not built in" in read_refusal(client.post(TRACE, json={"trace_level": ["TIMESTAMPS"]}))


@pytest.mark.parametrize("name", ["nope", "lm@nonsense", "lm@"])
def test_trace_settings_of_an_unknown_model(client, name):
    """Those of aliases that clients make up were stored, each by itself."""
    path = f"/v2/models/{name}/trace/setting"
    read_refusal(client.get(path), 404)
    read_refusal(client.post(path, json={"trace_rate": "5"}), 404)
    read_refusal(client.get(f"/v2/models/{name}/stats"), 404)
    assert client.app.state.service.trace_settings.overrides == {}


@pytest.mark.parametrize("path", [TRACE, OF_LM])
@pytest.mark.parametrize("body", [b"[]", b"{", b'"x"', b"\xff", b"[" * 60_000])
def test_wrong_bodies(client, path, body):
    read_refusal(client.post(path, content=body))


def test_an_empty_body_changes_nothing(client):
    assert client.post(TRACE).json() == DEFAULTS
