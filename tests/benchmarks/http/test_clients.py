"""The benchmark of clients asks a real server, and prints its ratios."""

from __future__ import annotations

import json

import pytest

from benchmarks.http.clients import run_clients

pytestmark = pytest.mark.slow


def test_every_client_is_measured(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("benchmarks.http.clients.IMPORT_RUNS", 1)
    monkeypatch.setattr("benchmarks.http.clients.WARM_CALLS", 2)
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: None)
    run_clients(tmp_path, 20, 5)
    figures = json.loads(capfd.readouterr().out.splitlines()[-1])
    names = ["client_ratio", "async_ratio", "batch16_ratio", "unix_ratio", "import_ms"]
    assert list(figures)[:5] == names
    assert all(figures[name] > 0 for name in names)
