"""Log settings, in a real app that loads nothing."""

from __future__ import annotations

import logging

import pytest

from tests.support.servers.responses import read_refusal

LOGGING = "/v2/logging"


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


@pytest.mark.parametrize("body", [b"[]", b"{", b'"x"', b"\xff", b"[" * 60_000])
def test_wrong_bodies(client, body):
    read_refusal(client.post(LOGGING, content=body))
