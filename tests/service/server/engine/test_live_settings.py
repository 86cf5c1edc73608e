"""Log and trace settings, in a real app that loads nothing."""

from __future__ import annotations

import logging

import pytest
from fastapi.testclient import TestClient
from shortlist.server.app import create_app
from shortlist.server.settings import Settings

LOGGING, TRACE, OF_LM = "/v2/logging", "/v2/trace/setting", "/v2/models/lm/trace/setting"
DEFAULTS = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0", "trace_file": ""}


@pytest.fixture
def client(small_repository):
    return TestClient(create_app(Settings(repository=small_repository)), raise_server_exceptions=False)


@pytest.fixture(autouse=True)
def logger():
    """The package's logger at `info`, as a server starts."""
    logger = logging.getLogger("shortlist")
    before = logger.level
    logger.setLevel(logging.INFO)
    yield logger
    logger.setLevel(before)


def switches(client):
    settings = client.get(LOGGING).json()
    return [settings["log_verbose_level"], settings["log_info"], settings["log_warning"], settings["log_error"]]


def read_refusal(response, status=400):
    assert response.status_code == status, response.text
    assert set(response.json()) == {"error"}
    return response.json()["error"]


def test_log_settings_as_they_are(client):
    assert client.get(LOGGING).json() == {
        "log_info": True,
        "log_warning": True,
        "log_error": True,
        "log_verbose_level": 0,
        "log_file": "",
        "log_format": "default",
    }


CHANGES = {
    "verbose": ({"log_verbose_level": 2}, [2, True, True, True], logging.DEBUG),
    "no info": ({"log_info": False}, [0, False, True, True], logging.WARNING),
    "no warnings": ({"log_warning": False}, [0, False, False, True], logging.ERROR),
    "nothing": ({"log_error": False}, [0, False, False, False], logging.CRITICAL),
    "errors, no warnings": ({"log_error": True, "log_warning": False}, [0, False, False, True], logging.ERROR),
    "no change": ({"log_info": True, "log_file": "", "log_format": "default"}, [0, True, True, True], logging.INFO),
    "empty": ({}, [0, True, True, True], logging.INFO),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changes_take_effect_and_are_shown(client, logger, what):
    changes, expected, level = CHANGES[what]
    settings = client.post(LOGGING, json=changes)
    assert settings.status_code == 200
    assert settings.json() == client.get(LOGGING).json()
    assert switches(client) == expected
    assert logger.level == level


def test_changes_can_be_taken_back(client):
    for changes in ({"log_verbose_level": 3}, {"log_error": False}, {"log_info": True}):
        client.post(LOGGING, json=changes)
    assert switches(client) == [0, True, True, True]
    client.post(LOGGING, json={"log_verbose_level": 2})
    client.post(LOGGING, json={"log_error": True})
    assert switches(client) == [2, True, True, True]
    client.post(LOGGING, json={"log_verbose_level": 0})
    assert switches(client) == [0, True, True, True]


def test_an_empty_body_changes_nothing(client):
    assert client.post(LOGGING).json() == client.get(LOGGING).json()
    assert client.post(TRACE).json() == DEFAULTS


@pytest.mark.parametrize(
    "changes",
    [
        {"log_file": "/tmp/log"},
        {"log_file": None},
        {"log_format": "ISO8601"},
        {"log_info": 1},
        {"log_info": "true"},
        {"log_verbose_level": -1},
        {"log_verbose_level": True},
        {"log_verbose_level": "1"},
        {"log_info": True, "log_warning": False},
        {"log_verbose_level": 1, "log_error": False},
        {"log_colour": True},
        {"log_error": False, "log_file": "x"},
    ],
)
def test_wrong_log_settings_change_nothing(client, changes):
    read_refusal(client.post(LOGGING, json=changes))
    assert switches(client) == [0, True, True, True]


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


def test_trace_settings_of_an_unknown_model(client):
    path = "/v2/models/nope/trace/setting"
    read_refusal(client.get(path), 404)
    read_refusal(client.post(path, json={"trace_rate": "5"}), 404)


@pytest.mark.parametrize("path", [LOGGING, TRACE, OF_LM])
@pytest.mark.parametrize("body", [b"[]", b"{", b'"x"', b"\xff", b"[" * 250_000])
def test_wrong_bodies(client, path, body):
    read_refusal(client.post(path, content=body))
