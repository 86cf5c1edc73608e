"""A real Prometheus scrapes real servers: calm ones raise no alert, faults raise each, panels find their series."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import shortlist
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.graphs import certificate

from tests.deploy.files import DASHBOARD, panels, series_of
from tests.deploy.monitoring.prometheus import RunningPrometheus, list_rules, needs_prometheus
from tests.support.heads import adaptive, grouped
from tests.support.layers import (
    RunningServer,
    contexts_elsewhere,
    copy_writable,
    make_contexts,
    make_dense,
    make_head,
)

pytestmark = [pytest.mark.slow, needs_prometheus]

ALERT_SECONDS = 60.0  # by which all alerts are to fire
CALM_SECONDS = 20.0  # by which a scraped server shows in every panel
CALM_ROUNDS = 4
CROWD = 6  # clients at once
RULES = [rule["alert"] for rule in list_rules()]
EXPRESSIONS = {
    f"{panel['title']} {target['refId']}": target["expr"] for panel in panels() for target in panel["targets"]
}
CONTEXTS = make_contexts(rows=2000, seed=1)
OTHERS = contexts_elsewhere(CONTEXTS.contexts[:400], 60)
FLAGS = ("--threads", "1", "--precision-share", "1", "--precision-cpu", "1")
CALM, FAULTY = "calm", "faulty"


def make_kept(folder):
    """A head with a promise, whose exact answers are proved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "MIN_WEIGHTS", 0)
        options = grouped.PROMISE_OPTIONS | {"promise": "0.99"}
        layer = make_dense(grouped.PROMISE_CLASSES, grouped.DIM)
        return make_head(folder, layer, grouped.promise_contexts, method="grouped", options=options)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Models that export every series among them: `calm` (svd), `whole` (full), `tails` and `kept` (by a promise)."""
    root, scratch = tmp_path_factory.mktemp("calm"), tmp_path_factory.mktemp("heads")
    export(make_dense(), CONTEXTS, root / "whole" / "1", Request("full", threads=1))
    heads = {
        CALM: make_head(scratch / CALM, make_dense(), CONTEXTS),
        "tails": adaptive.make(scratch / "tails"),
        "kept": make_kept(scratch / "kept"),
    }
    for name, head in heads.items():
        copy_writable(head.folder, root / name / "1")
    return root


@pytest.fixture(scope="module")
def calm_server(repository, tmp_path_factory):
    """A server that fares well, whose models were asked a little, and whose items may change, as one did."""
    changes = str(tmp_path_factory.mktemp("changes"))
    with RunningServer(repository, *FLAGS, "--item-changes", changes) as server:
        with shortlist.Client(server.url) as client:
            client.put_items("whole", [0], make_dense().weight[:1])
        yield server


def ask_calmly(server, turn):
    """A little of all that the dashboard shows, rows of its own in each of a few turns."""
    part = slice(20 * turn, 20 * turn + 20)
    with shortlist.Client(server.url) as client:
        for name in (CALM, "whole"):
            client.topk(name, CONTEXTS.contexts[part], 5)
        client.topk("tails", adaptive.rows[:20], 5)
        client.topk("kept", grouped.promise_contexts.contexts[part], 5)
        client.topk("kept", grouped.promise_contexts.contexts[:1], 5, exact=True)


@pytest.fixture(scope="module")
def calm_prometheus(calm_server, tmp_path_factory):
    """A Prometheus that scrapes it under a little load."""
    with RunningPrometheus(tmp_path_factory.mktemp("prometheus"), [calm_server.url.removeprefix("http://")]) as own:
        own.wait_for_scrape()
        for turn in range(CALM_ROUNDS):
            ask_calmly(calm_server, turn)
            time.sleep(1)
        yield own


def test_no_alert_fires_without_a_fault(calm_prometheus):
    (group,) = calm_prometheus.ask("rules")["groups"]
    assert [rule["name"] for rule in group["rules"]] == RULES
    assert {rule["name"]: rule["state"] for rule in group["rules"]} == dict.fromkeys(RULES, "inactive")
    assert {rule["health"] for rule in group["rules"]} == {"ok"}


@pytest.mark.parametrize("where", EXPRESSIONS)
def test_panels_show_what_a_server_exports(calm_prometheus, where):
    expression = EXPRESSIONS[where].replace("$model", ".*").replace("$__rate_interval", "1m")
    end = time.monotonic() + CALM_SECONDS
    wanted = [expression, *series_of(expression)]
    while (missing := [each for each in wanted if not calm_prometheus.query(each)]) and time.monotonic() < end:
        time.sleep(0.2)
    assert missing == []


def test_variables_of_the_dashboard_list_the_models(calm_prometheus):
    (variable,) = json.loads(DASHBOARD.read_text("utf-8"))["templating"]["list"]
    assert variable["query"] == "label_values(shortlist_model_info, model)"
    names = calm_prometheus.ask("label/model/values", **{"match[]": "shortlist_model_info"})
    assert names == [CALM, "kept", "tails", "whole"]


@pytest.fixture(scope="module")
def faulty_repository(tmp_path_factory):
    """`faulty` with a version that cannot be loaded, `touched`, which a test writes to, and `gone`, to be unloaded."""
    root = tmp_path_factory.mktemp("faulty")
    folder = make_head(
        tmp_path_factory.mktemp("head"),
        make_dense(),
        CONTEXTS,
        options={"basis": "context", "width": "8", "full_view": "60"},
    ).folder
    for place in (f"{FAULTY}/1", f"{FAULTY}/2", "touched/1", "gone/1"):
        copy_writable(folder, root / place)
    (root / FAULTY / "2" / "manifest.json").write_text("{}")
    return root


@pytest.fixture
def faulty_server(faulty_repository):
    """A slow server of a short queue, some of whose models are not as they should be."""
    flags = (
        "--model-control",
        "explicit",
        "--canary-seconds",
        "0.5",
        "--batch-delay-us",
        "150000",
        "--queue-rows",
        "64",
    )
    with RunningServer(faulty_repository, *FLAGS, *flags) as server:
        yield server


@pytest.fixture
def forsaken_server(repository, tmp_path):
    """A server whose repository is moved away."""
    root = tmp_path / "repository"
    copy_writable(repository / CALM, root / CALM)
    with RunningServer(root, *FLAGS, "--model-control", "poll", "--poll-seconds", "0.2") as server:
        root.rename(tmp_path / "elsewhere")
        yield server


def make_faults(server, client):
    """One round of what each alert is about, but for the server's end."""
    client.topk(FAULTY, OTHERS, 5)  # slow, and not the classes that were promised
    client.topk(FAULTY, OTHERS, 5)
    client.topk(FAULTY, np.tile(OTHERS, (10, 1)), 5, exact=True)
    body = {"contexts": OTHERS[:1].tolist(), "k": 1}
    assert server.http.post("/v1/topk", json=body | {"model": "gone"}).status_code == 503
    crowd = body | {"model": FAULTY, "contexts": OTHERS.tolist()}
    with ThreadPoolExecutor(CROWD) as pool:  # more than the queue holds
        statuses = list(pool.map(lambda _: server.http.post("/v1/topk", json=crowd).status_code, range(CROWD)))
    assert 429 in statuses
    for _ in range(60):
        assert server.http.get("/v1/models", headers={"Host": "evil.example"}).status_code == 403


def test_every_alert_fires_under_its_fault(faulty_server, faulty_repository, forsaken_server, calm_server, tmp_path):
    """On real servers, with a second in the place of each `for`; the calm server beside stays out of it."""
    servers = faulty_server, forsaken_server, calm_server
    faulty, forsaken, calm = (server.url.removeprefix("http://") for server in servers)
    with (
        RunningPrometheus(tmp_path, [faulty, forsaken, calm]) as prometheus,
        shortlist.Client(faulty_server.url) as client,
    ):
        faulty_server.http.post("/v2/repository/models/gone/unload").raise_for_status()
        next((faulty_repository / "touched" / "1" / "graphs").iterdir()).touch()
        end, firing = time.monotonic() + ALERT_SECONDS, {}
        while set(RULES) - firing.keys() - {"ShortlistNotReady"} and time.monotonic() < end:
            make_faults(faulty_server, client)
            firing |= {labels["alertname"]: labels for labels in prometheus.list_firing()}
            print(f"{end - time.monotonic():.0f} s left, {sorted(set(RULES) - firing.keys())}")
        assert set(RULES) - firing.keys() <= {"ShortlistNotReady"}
        faulty_server.process.kill()
        while "ShortlistNotReady" not in firing and time.monotonic() < end:
            time.sleep(0.2)
            firing |= {labels["alertname"]: labels for labels in prometheus.list_firing()}
        assert firing.keys() == set(RULES)
    assert firing.pop("ShortlistRepositoryAway")["instance"] == forsaken
    assert {labels["instance"] for labels in firing.values() if "instance" in labels} == {faulty}
    assert {labels["model"] for labels in firing.values() if "model" in labels} <= {FAULTY, "touched"}
    assert firing["ShortlistCanaryFailed"]["model"] == "touched"
    assert firing["ShortlistRefusals"]["reason"] == "host"
    assert httpx.get(f"{calm_server.url}/readyz").status_code == 200
