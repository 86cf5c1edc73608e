"""Changes that one process is asked for are done by all, and what is read of one is of all."""

from __future__ import annotations

import signal

import pytest

from tests.support.layers import make_contexts
from tests.support.servers.fleet import Fleet, ask_everywhere, replace_process

pytestmark = pytest.mark.slow

CONTEXTS = make_contexts(rows=16, seed=7).contexts.tolist()
KEYS = "boss administer,observe,ask 0123456789abcdef-boss;decoder ask 0123456789abcdef-decoder"


@pytest.fixture(scope="module")
def fleet(small_repository):
    with Fleet(small_repository, "--model-control", "explicit", "--precision-share", "1") as server:
        server.wait_for_processes(2)
        yield server


def list_index(server):
    return [{entry["name"]: entry["state"] for entry in content} for _, content in ask_index(server)]


def ask_index(server):
    return ask_everywhere(server, "POST", "/v2/repository/index", {})


def test_unloading_and_loading_reaches_all_also_who_comes_later(fleet):
    assert fleet.http.post("/v2/repository/models/dense/unload").status_code == 200
    assert list_index(fleet) == [{"dense": "UNAVAILABLE", "lm": "READY"}] * 4
    replace_process(fleet, 0)
    assert list_index(fleet) == [{"dense": "UNAVAILABLE", "lm": "READY"}] * 4
    assert fleet.http.post("/v2/repository/models/dense/load").status_code == 200
    assert list_index(fleet) == [{"dense": "READY", "lm": "READY"}] * 4


def test_what_one_process_refuses_no_other_is_asked_for(fleet):
    response = fleet.http.post("/v2/repository/models/none/load")
    assert response.status_code == 404
    assert "none" in response.json()["error"]


def test_log_settings_reach_all_also_who_comes_later(fleet):
    assert fleet.http.post("/v2/logging", json={"log_info": False}).json()["log_info"] is False
    assert fleet.http.post("/v2/logging", json={"log_warning": False}).json()["log_error"] is True
    fleet.http.post("/v2/logging", json={"log_warning": True})
    replace_process(fleet, 1)
    settings = [content for _, content in ask_everywhere(fleet, "GET", "/v2/logging")]
    assert [(each["log_info"], each["log_warning"]) for each in settings] == [(False, True)] * 4
    fleet.http.post("/v2/logging", json={"log_info": True})


def test_lists_are_known_to_all_also_who_comes_later(fleet):
    assert fleet.http.put("/v1/lists/some", json={"lists": [[1, 2, 3, 4]]}).status_code == 200
    replace_process(fleet, 0)
    tables = [content["tables"] for _, content in ask_everywhere(fleet, "GET", "/v1/lists")]
    assert [[table["name"] for table in each] for each in tables] == [["some"]] * 4
    assert fleet.http.delete("/v1/lists/some").status_code == 200
    assert [status for status, _ in ask_everywhere(fleet, "DELETE", "/v1/lists/some")] == [404] * 4


def test_precision_and_statistics_are_those_of_all(fleet):
    rows = 4 * len(CONTEXTS)
    before = fleet.read_metric("shortlist_precision_trials_total", model="lm", k="1")
    stats_before = fleet.http.get("/v2/models/lm/stats").json()["model_stats"][0]["inference_count"]
    assert [status for status, _ in ask_everywhere(fleet, "POST", "/v1/topk", topk())] == [200] * 4
    for _ in range(100):
        trials = fleet.read_metric("shortlist_precision_trials_total", model="lm", k="1")
        if trials == before + rows:
            break
    hits = fleet.read_metric("shortlist_precision_hits_total", model="lm", k="1")
    assert trials == before + rows
    assert fleet.read_metric("shortlist_precision", model="lm", k="1", bound="mean") == pytest.approx(hits / trials)
    models = [content["served_precision"]["at"]["1"] for _, content in ask_everywhere(fleet, "GET", "/v1/models/lm")]
    assert {each["trials"] for each in models} == {trials}
    stats = fleet.http.get("/v2/models/lm/stats").json()["model_stats"][0]
    assert stats["inference_count"] == stats_before + rows
    assert sum(entry["batch_size"] for entry in stats["batch_stats"]) > 0


def topk():
    return {"model": "lm", "contexts": CONTEXTS, "k": 3}


def test_keys_are_checked_before_anything_goes_to_another_process(small_repository):
    variables = {"SHORTLIST_API_KEYS": KEYS}
    headers = {name: {"Authorization": f"Bearer 0123456789abcdef-{name}"} for name in ("boss", "decoder")}
    with Fleet(small_repository, "--model-control", "explicit", variables=variables) as server:
        path = "/v2/repository/models/lm/unload"
        assert server.http.post(path).status_code == 401
        assert server.http.post(path, headers=headers["decoder"]).status_code == 403
        assert server.http.get("/metrics").status_code == 401
        assert server.http.post(path, headers=headers["boss"]).status_code == 200
        assert "shortlist_processes 2.0" in server.http.get("/metrics", headers=headers["boss"]).text


def test_what_was_changed_stays_so_for_who_comes_after_the_key_is_gone(small_repository, tmp_path):
    """A process that comes later is sent it again, by a supervisor that has no key."""
    keys, former, new = tmp_path / "keys", "a" * 20, "b" * 20
    keys.write_text(f"boss ask,observe,administer {former}")
    flags = ("--model-control", "explicit", "--api-keys-file", str(keys))
    headers = {"Authorization": f"Bearer {former}"}
    with Fleet(small_repository, *flags, headers=headers) as server:
        server.wait_for_processes(2)
        server.http.post("/v2/repository/models/dense/unload").raise_for_status()
        server.http.put("/v1/lists/some", json={"lists": [[1]]}).raise_for_status()
        keys.write_text(f"boss ask,observe,administer {new}")
        server.process.send_signal(signal.SIGHUP)
        server.wait_until(lambda: server.http.get("/v1/lists").status_code == 401)
        server.http.headers["Authorization"] = f"Bearer {new}"
        server.wait_until(lambda: all(server.http.get("/v1/lists").status_code == 200 for _ in range(8)))
        for number in range(2):
            replace_process(server, number)
        assert [table["name"] for table in server.http.get("/v1/lists").json()["tables"]] == ["some"]
        assert server.http.get("/v1/models/dense").json()["state"] == "unloaded"
