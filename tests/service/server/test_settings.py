"""Settings come from flags, then variables, then defaults; a wrong one is named with its value."""

from __future__ import annotations

from pathlib import Path

import pytest
from shortlist.errors import BadInput
from shortlist.server.settings import explain_misspelt, load_settings

from tests.support.layers import run_cli

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.delenv("SHORTLIST_DEVICE", raising=False)


def test_defaults():
    result = load_settings()
    assert (result.host, result.port, result.device, result.body_limit) == ("127.0.0.1", 8000, None, 16 << 20)


def test_a_repository_whose_path_is_not_utf8_is_refused(monkeypatch):
    """No bundle of it could be opened, and no answer in JSON could say which."""
    monkeypatch.setenv("SHORTLIST_REPOSITORY", "h\udcfcte")
    with pytest.raises(BadInput, match=r"h\\udcfcte is not UTF-8"):
        load_settings()


def test_variables_are_overridden_by_flags(monkeypatch):
    monkeypatch.setenv("SHORTLIST_PORT", "9000")
    monkeypatch.setenv("SHORTLIST_REPOSITORY", "models")
    result = load_settings(port="9001", host=None)
    assert (result.port, result.repository) == (9001, Path("models"))


def test_what_kubernetes_says_of_a_service_of_this_name_is_no_port(monkeypatch):
    monkeypatch.setenv("SHORTLIST_PORT", "tcp://10.0.0.1:80")
    assert load_settings().port == 8000
    assert load_settings(port="9001").port == 9001


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "abc"), ("PORT", "70000"), ("THREADS", "0"), ("BODY_LIMIT", "1.5"), ("LOG_LEVEL", "loud"),
     ("DRAIN_DELAY", "-1"), ("CONCURRENT_MODELS", ""), ("HOST", ""), ("TRUSTED_PROXIES", "10.0.0.0/99"),
     ("QUOTA_ROWS", "0")],
)  # fmt: skip
def test_wrong_variable_is_named_with_its_value(monkeypatch, name, value):
    monkeypatch.setenv(f"SHORTLIST_{name}", value)
    with pytest.raises(BadInput, match=f"^SHORTLIST_{name} is '{value}': [a-z]") as excinfo:
        load_settings()
    assert "\n" not in str(excinfo.value)


def test_an_address_may_have_the_brackets_of_urls():
    assert load_settings(host="[::1]").host == "::1"


def test_wrong_flag_is_named_with_its_value():
    with pytest.raises(BadInput, match=r"^--max-rows is '0': "):
        load_settings(max_rows="0")


def test_serve_says_it_in_one_line(tmp_path):
    for port in ("none", "70000"):
        process = run_cli("serve", tmp_path, "--port", port)
        assert process.returncode == 2
        assert process.stderr.splitlines() == [process.stderr.strip()]
        assert process.stderr.startswith(f"shortlist serve: --port is '{port}': ")


def test_a_variable_that_is_nearly_a_setting_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SHORTLIST_PROT", "9000")
    process = run_cli("serve", tmp_path, "--port", "none")
    assert process.stderr.startswith(
        "shortlist serve: SHORTLIST_PROT is no setting and does nothing: is it SHORTLIST_PORT?"
    )


def test_variables_of_others_are_nobodys_mistake():
    link = ("SERVICE_HOST", "SERVICE_PORT", "PORT_8000_TCP", "PORT_8000_TCP_ADDR", "PORT_8000_TCP_PROTO")
    assert (
        explain_misspelt(f"SHORTLIST_{name}" for name in (*link, "PORT", "API_KEYS", "API_KEY", "KERNELS", "CPUS"))
        == []
    )


def test_help_names_every_flag_with_its_default():
    text = run_cli("serve", "--help").stdout
    for word in ("--device", "--drain-seconds", "--body-limit", "16777216", "seconds", "bytes"):
        assert word in text


def test_help_names_choices_units_and_kinds_in_place_of_values():
    text = run_cli("serve", "--help").stdout
    for flag in (
        "--model-control none|explicit|poll",
        "--log-format text|json",
        "--log-level debug|info|warning|error",
        "--request-timeout SECONDS",
        "--json-limit BYTES",
        "--unix-socket PATH",
        "--item-changes FOLDER",
        "--tls-key FILE",
        "--queue-rows ROWS",
    ):
        assert f"{flag} " in f"{text} ".replace("\n", " ")
