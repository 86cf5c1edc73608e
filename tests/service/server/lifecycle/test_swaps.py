"""Version after version under load: nobody notices, and nothing of the former ones stays."""

from __future__ import annotations

import pytest

from tests.support.layers import RunningServer, make_contexts, make_dense, make_head
from tests.support.servers.swaps import list_versions_in_metrics, put_version, swap_under_load

pytestmark = pytest.mark.slow

CLASSES, DIM = 20_000, 64
CONTEXTS = make_contexts(rows=40, dim=DIM, seed=5).contexts
POLLS = ("--model-control", "poll", "--poll-seconds", "0.1", "--latest-versions", "1", "--threads", "1")
MAX_GROWTH = 0.05  # of memory


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Two heads that answer differently, each of which takes some megabytes."""
    options = {"basis": "context", "width": "16", "full_view": "100"}
    return [
        make_head(tmp_path_factory.mktemp("swaps"), make_dense(CLASSES, DIM, seed=seed), options=options).folder
        for seed in range(2)
    ]


@pytest.mark.parametrize("swaps", [10, pytest.param(200, marks=pytest.mark.long)])
def test_swaps_under_load(bundles, tmp_path, swaps):
    home = tmp_path / "lm"
    home.mkdir()
    put_version(bundles[1], home, 1)
    with RunningServer(tmp_path, *POLLS) as server:
        load, before, after = swap_under_load(server, home, bundles, CONTEXTS, swaps)
        print(f"{swaps} swaps, {load.answers} answers, {before >> 10} KiB before, {after >> 10} KiB after")
        assert load.failures == []
        assert load.strays == []
        assert len(load.versions) > swaps / 2, "requests went to the versions in between, too"
        assert list_versions_in_metrics(server) == {swaps + 1}
        assert [version["version"] for version in server.http.get("/v1/models/lm").json()["versions"]] == [swaps + 1]
        assert after < (1 + MAX_GROWTH) * before
        assert [line for line in server.log if "ERROR" in line] == []
