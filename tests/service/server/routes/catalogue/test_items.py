"""Changing items of a served model: routes, clients, restarts, a disk without room."""

import asyncio
import os
import resource
import signal
from contextlib import ExitStack

import numpy as np
import pytest
import shortlist
from shortlist.errors import BadInput, Forbidden, NotFound, StorageFull
from shortlist.server.routes.catalogue.items import ItemChanges

from tests.support.layers import DIM, RunningServer, make_contexts, make_dense
from tests.support.servers.fleet import Fleet

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=6).contexts
BEST = ROWS[:1] * 3  # a vector that is best for the first of them


@pytest.fixture(scope="module")
def live(small_repository, tmp_path_factory):
    """A server whose items change, and the folder of its logs."""
    folder = tmp_path_factory.mktemp("changes") / "logs"
    with RunningServer(small_repository, "--item-changes", str(folder)) as server:
        yield server


@pytest.fixture
def client(live):
    with shortlist.Client(live.url) as client:
        yield client


def best_names(client, **options):
    return client.topk("lm", ROWS, 3, names=True, **options).names[0].tolist()


def test_items_are_added_replaced_and_removed(client):
    before = best_names(client)
    answer = client.put_items("lm", ["new-1"], BEST)
    assert (answer["model"], answer["version"], answer["applied"], answer["ids"]) == ("lm", 1, True, [300])
    assert best_names(client) == ["new-1", *before[:2]]
    assert best_names(client, exact=True)[0] == "new-1"
    client.put_items("lm", ["new-1"], -BEST)
    assert best_names(client) == before
    client.put_items("lm", [before[2]], BEST, remove=[before[0], "new-1", "nobody"])
    assert best_names(client)[:2] == [before[2], before[1]]
    assert before[0] not in best_names(client, allow=[before[0], before[1]])
    assert client.items("lm") | {"position": 0, "log_bytes": 0} == {
        "model": "lm", "version": 1, "position": 0, "exported_position": 0,
        "added": 0, "replaced": 1, "removed": 1, "log_bytes": 0, "sources": {},
    }  # fmt: skip
    items = [int(name.removeprefix("item-")) for name in (before[0], before[2])]
    client.put_items("lm", [before[0], before[2]], make_dense().weight[items])
    assert best_names(client) == before


def test_null_is_as_if_left_out(live):
    body = dict.fromkeys(ItemChanges.model_fields) | {"remove": ["nobody"]}
    answer = live.http.put("/v1/models/lm/items", json=body)
    assert (answer.status_code, answer.json()["ids"]) == (200, []), answer.text


def test_json_and_lists_know_added_items(live, client):
    http = live.http
    body = {"put": ["json-1", "json-2"], "vectors": [[0.0] * DIM, (ROWS[1] * 4).tolist()], "remove": []}
    answer = http.put("/v1/models/lm/items", json=body)
    assert answer.status_code == 200, answer.text
    ask = {"model": "lm", "contexts": ROWS[1:2].tolist(), "k": 1, "names": True, "labels": True, "scores": True}
    best = http.post("/v1/topk", json=ask).json()
    assert (best["names"], best["labels"], best["ids"]) == ([["json-2"]], [[None]], [answer.json()["ids"][1:]])
    np.testing.assert_allclose(best["scores"][0][0], 4 * ROWS[1] @ ROWS[1], rtol=1e-5)
    others = http.post("/v1/topk", json=ask | {"ban": ["json-2"]}).json()
    assert others["names"] != best["names"]
    assert client.topk("lm", ROWS[1:2], 1, labels=True).labels.tolist() == [[""]]
    client.put_items("lm", remove=["json-1", "json-2"])


def test_sets_hold_no_added_items(client):
    client.put_items("lm", ["early"], BEST)
    with pytest.raises(BadInput, match="ids hold 'early', which was added after the export: leave it out"):
        client.put_set("lm", "some", ["item-3", "early"])
    client.put_items("lm", remove=["early"])


def test_a_sequence_number_is_applied_once(client):
    first = client.put_items("lm", ["s"], BEST, source="shop", sequence=5)
    again = client.put_items("lm", ["s"], -BEST, source="shop", sequence=5)
    assert (first["applied"], again["applied"], again["position"]) == (True, False, first["position"])
    assert best_names(client)[0] == "s"
    assert client.put_items("lm", remove=["s"], source="other", sequence=1)["applied"]
    assert client.items("lm")["sources"] == {"shop": 5, "other": 1}


def test_the_asyncio_client_changes_items(live):
    async def change():
        async with shortlist.AsyncClient(live.url) as client:
            await client.put_items("lm", ["async"], BEST)
            top = await client.topk("lm", ROWS, 1, names=True)
            await client.put_items("lm", remove=["async"])
            return top.names[0, 0], await client.items("lm")

    name, state = asyncio.run(change())
    assert name == "async"
    assert state["added"] == 0


def test_items_without_names_follow_each_other(client):
    assert client.put_items("dense", [300, 301], np.repeat(BEST, 2, axis=0))["ids"] == [300, 301]
    assert client.topk("dense", ROWS, 2).ids[0].tolist() == [300, 301]
    with pytest.raises(BadInput, match="put holds id 303 and the next new one is 302"):
        client.put_items("dense", [303], BEST)
    client.put_items("dense", remove=[300, 301])


REFUSALS = {
    "a name twice": ({"put": ["a"], "vectors": [[0.0] * DIM], "remove": ["a"]}, "item 'a' stands twice"),
    "ids in place of names": ({"remove": [1]}, "1 is no name"),
    "no vector": ({"put": ["a"]}, "vectors have shape [0, 16] for 1 items"),
    "a short vector": ({"put": ["a"], "vectors": [[1.0]]}, "vectors have 1 numbers and the model's have 16"),
    "a large number": ({"put": ["a"], "vectors": [[1e300] * DIM]}, "vectors"),
    "a bias of text": ({"put": ["a"], "vectors": [[0.0] * DIM], "biases": ["1.5"]}, "biases row 0 must be a list"),
    "a bias of true": ({"put": ["a"], "vectors": [[0.0] * DIM], "biases": [True]}, "biases row 0 must be a list"),
    "nested biases": ({"put": ["a"], "vectors": [[0.0] * DIM], "biases": [[1.5]]}, "biases must be a flat list"),
    "true as binary biases": (
        {
            "put": ["a"],
            "vectors": [[0.0] * DIM],
            "inputs": [{"name": "biases", "shape": [1], "datatype": "BOOL", "data": [True]}],
        },
        "biases must hold numbers alone",
    ),
    "an empty name": ({"remove": [""]}, "the name '' has 0 bytes"),
    "a sequence that is none": ({"sequence": "1"}, "sequence is '1'"),
    "another field": ({"delete": []}, "there is no field 'delete'"),
    "lists as names": ({"remove": [["a"]]}, "put and remove must hold names"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_no_change_is_refused(live, name):
    body, sentence = REFUSALS[name]
    response = live.http.put("/v1/models/lm/items", json=body)
    assert response.status_code == 400
    assert sentence in response.json()["error"]


def test_items_change_only_where_that_is_switched_on(small_server, live):
    with shortlist.Client(small_server.url) as client, pytest.raises(Forbidden, match="--item-changes FOLDER"):
        client.put_items("lm", remove=["item-1"])
    with shortlist.Client(live.url) as client, pytest.raises(NotFound):
        client.put_items("none", remove=["item-1"])


def test_changes_are_for_keys_that_administer(small_repository, tmp_path):
    keys = {"SHORTLIST_API_KEYS": "a ask key-of-sixteen-signs-1; b administer,ask key-of-sixteen-signs-2"}
    with RunningServer(small_repository, "--item-changes", str(tmp_path), variables=keys, wait=False) as server:
        with shortlist.Client(server.url, api_key="key-of-sixteen-signs-1") as client:
            while not client.ready():
                pass
            with pytest.raises(Forbidden, match="wants the role administer"):
                client.put_items("lm", remove=["item-1"])
        with shortlist.Client(server.url, api_key="key-of-sixteen-signs-2") as client:
            assert client.put_items("lm", remove=["item-1"])["applied"]


def test_all_processes_show_what_one_has_changed(small_repository, tmp_path):
    with Fleet(small_repository, "--item-changes", str(tmp_path)) as server, ExitStack() as stack:
        server.wait_for_processes(2)
        clients = [stack.enter_context(shortlist.Client(server.url)) for _ in range(4)]  # of both processes
        for number in range(20):
            clients[number % 4].put_items("lm", [f"new-{number}"], (number + 1) * BEST, remove=[f"new-{number - 1}"])
            for client in clients:
                assert best_names(client)[0] == f"new-{number}"
                assert client.topk("lm", ROWS, 1, names=True, ban=[f"new-{number}"]).names[0, 0] != f"new-{number}"
        assert {client.items("lm")["position"] for client in clients} == {20}
        assert server.read_metric("shortlist_item_changes_total", model="lm") == 40
        assert server.read_metric("shortlist_item_position", model="lm") == 20
        assert server.read_metric("shortlist_item_log_bytes", model="lm") == (tmp_path / "lm.items").stat().st_size
        assert server.read_metric("shortlist_items_changed", model="lm", change="added") == 1
        os.kill(server.list_pids()[1], signal.SIGKILL)
        server.wait_for_processes(1)
        clients[0].put_items("lm", ["after"], 30 * BEST)
        server.wait_for_processes(2)
        for _ in range(4):
            client = stack.enter_context(shortlist.Client(server.url))
            assert best_names(client)[:2] == ["after", "new-19"]


def test_a_killed_server_on_a_full_disk_loses_nothing(small_repository, tmp_path):
    logs = tmp_path / "logs"
    with RunningServer(small_repository, "--item-changes", str(logs)) as server:
        with shortlist.Client(server.url) as client:
            client.put_items("lm", ["kept"], BEST)
            size = (logs / "lm.items").stat().st_size
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size + 40, resource.RLIM_INFINITY))
            with pytest.raises(StorageFull, match=r"lm.items cannot be written .*make room"):
                client.put_items("lm", ["lost"], 2 * BEST)
            assert best_names(client)[0] == "kept"
            assert (logs / "lm.items").stat().st_size == size
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            client.put_items("lm", ["more"], 3 * BEST)
        server.process.send_signal(signal.SIGKILL)
    with RunningServer(small_repository, "--item-changes", str(logs)) as server, shortlist.Client(server.url) as client:
        assert best_names(client)[:2] == ["more", "kept"]
        state = client.items("lm")
        assert (state["position"], state["added"]) == (2, 2)
