"""Named sets over HTTP: put, listed, asked by, deleted."""

import asyncio
import contextlib
import errno
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import shortlist
from shortlist.bundle.class_sets import SETS_FOLDER, pack_set, read_set, write_set
from shortlist.errors import BadInput, NotFound, StorageFull, TooLarge
from shortlist.server.app import create_app
from shortlist.server.routes import v1_lists
from shortlist.server.settings import Settings
from starlette.testclient import TestClient

from tests.support.layers import CLASSES, RunningServer, copy_writable, make_contexts
from tests.support.servers.responses import read_refusal

SERVICE = SimpleNamespace(settings=SimpleNamespace(sets=1, set_bytes=100))
ROWS = make_contexts(rows=6, seed=5).contexts
EVEN, LOW = list(range(0, CLASSES, 2)), list(range(40))


@pytest.fixture
def client(small_server):
    with shortlist.Client(str(small_server.http.base_url)) as client:
        client.put_set("lm", "even", np.array(EVEN))
        client.put_set("lm", "low", [f"item-{id_}" for id_ in LOW])
        yield client
        for each in client.sets("lm"):
            client.delete_set("lm", each["name"])


@pytest.mark.parametrize(
    ("sets", "lists"),
    [
        ({"within": "even"}, {"allow": EVEN}),
        ({"without": ["even", "low"]}, {"ban": EVEN + LOW}),
        ({"within": ["even", "low"]}, {"allow": EVEN[:20]}),
        ({"within": "low", "without": "even", "ban": [1, 3]}, {"allow": LOW[5::2]}),
        ({"within": "low", "allow": [4, 41]}, {"allow": [4]}),
        ({"within": [], "without": []}, {}),
        ({"within": (), "without": "even"}, {"ban": EVEN}),
    ],
)
def test_sets_equal_their_lists(client, small_server, head, sets, lists):
    expected = head.topk(ROWS, 3, **lists)
    np.testing.assert_array_equal(client.topk("lm", ROWS, 3, **sets).ids, expected.ids)
    np.testing.assert_array_equal(head.topk(ROWS, 3, **sets).ids, expected.ids)
    fields = {"model": "lm", "contexts": ROWS.tolist(), "k": 3} | sets
    assert small_server.http.post("/v1/topk", json=fields).json()["ids"] == expected.ids.tolist()


def test_a_set_may_have_more_names_than_json_may(client, small_server):
    client.put_set("lm", "many", [f"item-{id_}" for id_ in range(CLASSES)] * 1000)
    assert small_server.http.get("/v1/models/lm/sets/many").json()["ids"] == list(range(CLASSES))


def test_a_set_is_an_input_of_texts_too(client, small_server, head):
    context = {"name": "context", "datatype": "FP32", "shape": [1, ROWS.shape[1]], "data": ROWS[0].tolist()}
    names = {"name": "without", "datatype": "BYTES", "shape": [2], "data": ["even", "low"]}
    body = {"inputs": [context, names], "parameters": {"k": 3}}
    outputs = small_server.http.post("/v2/models/lm/infer", json=body).json()["outputs"]
    assert outputs[0]["data"] == head.topk(ROWS[:1], 3, ban=EVEN + LOW).ids[0].tolist()


def test_a_set_that_is_put_again_holds_from_the_next_request_on(client, head):
    for ids in ([7, 8, 9], [7, 9, 11]):
        client.put_set("lm", "few", ids)
        assert set(client.topk("lm", ROWS[:1], 3, within="few").ids[0]) == set(ids)


def test_a_set_that_was_empty_holds_from_the_next_request_on(client, head):
    best = head.topk(ROWS[:1], 3).ids[0]
    for ids in ([], best[:1].tolist(), []):
        client.put_set("lm", "sold", ids)
        for _ in range(2):  # the second is read as the first was
            assert (best[0] in client.topk("lm", ROWS[:1], 3, without="sold").ids[0]) == (not ids)
    client.delete_set("lm", "sold")
    with pytest.raises(NotFound, match="no set 'sold'"):
        client.topk("lm", ROWS[:1], 3, without="sold")


def test_sets_are_listed_and_read(client, small_server, small_repository):
    assert [(each["name"], each["ids"]) for each in client.sets("lm")] == [("even", len(EVEN)), ("low", len(LOW))]
    assert small_server.http.get("/v1/models/lm/sets/low").json() == {"name": "low", "ids": LOW}
    assert sorted(path.name for path in (small_repository / "lm" / SETS_FOLDER).iterdir()) == [
        "even.roaring",
        "low.roaring",
    ]


def test_refusals(client, small_server):
    with pytest.raises(NotFound, match="no set 'shoes': it has even, low"):
        client.topk("lm", ROWS, 3, within="shoes")
    for names in ("", [""], [1], np.array(["even"])):
        with pytest.raises(BadInput, match="set"):
            client.topk("lm", ROWS, 3, within=names)
    with pytest.raises(NotFound, match="'shoes'"):
        client.delete_set("lm", "shoes")
    with pytest.raises(BadInput, match=f"holds id {CLASSES} but"):
        client.put_set("lm", "shoes", [CLASSES])
    with pytest.raises(BadInput, match="no class of lm is called"):
        client.put_set("lm", "shoes", ["nothing"])
    with pytest.raises(BadInput, match="cannot name a set"):
        client.put_set("lm", ".hidden", [1])
    rows = {"inputs": [{"name": "ids", "datatype": "BYTES", "shape": [1 << 40, 0], "data": []}]}
    header = {"Inference-Header-Content-Length": str(len(json.dumps(rows)))}
    response = small_server.http.put("/v1/models/lm/sets/rows", content=json.dumps(rows), headers=header)
    assert "give them flat" in read_refusal(response, 400)  # before a list is made of each row
    sampled = {"model": "lm", "contexts": ROWS.tolist(), "within": "even", "sample": {"seed": 1}}
    assert "within" in read_refusal(small_server.http.post("/v1/topk", json=sampled), 400)


def test_a_disk_that_refuses_is_the_servers_condition(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("write_set", "delete_set"):
        monkeypatch.setattr(v1_lists, name, refuse)
    sentence = r"cannot be changed \(Read-only file system\): make sets/ writable"
    with pytest.raises(StorageFull, match=sentence):
        v1_lists.store_set(SERVICE, tmp_path, "even", b"content")
    with pytest.raises(StorageFull, match=sentence):
        v1_lists.remove_set(tmp_path, "even")
    assert caplog.messages == [f"named sets in {tmp_path} cannot be changed (Read-only file system)"] * 2


def test_a_file_in_place_of_the_folder_of_sets_is_no_fault_of_the_request(small_repository, tmp_path):
    repository = copy_writable(small_repository, tmp_path / "repository")
    shutil.rmtree(repository / "lm" / SETS_FOLDER, ignore_errors=True)  # of other tests
    (repository / "lm" / SETS_FOLDER).touch()
    with RunningServer(repository) as server:
        response = server.http.put("/v1/models/lm/sets/even", json={"ids": [1]})
        assert "make sets/ writable" in read_refusal(response, 507)
        read_refusal(server.http.delete("/v1/models/lm/sets/even"), 404)


def test_a_set_that_is_deleted_meanwhile_does_not_count(tmp_path, monkeypatch):
    write_set(tmp_path, "here", pack_set([1, 2]))
    monkeypatch.setattr(v1_lists, "list_set_names", lambda _: ["gone", "here"])
    assert [(each["name"], each["ids"]) for each in v1_lists.describe_sets(tmp_path)] == [("here", 2)]
    v1_lists.store_set(SERVICE, tmp_path, "here", pack_set([3]))
    with pytest.raises(TooLarge, match="1 sets are kept for this model"):
        v1_lists.store_set(SERVICE, tmp_path, "other", pack_set([3]))
    assert read_set(tmp_path / "here.roaring").tolist() == [3]


def test_sets_that_are_put_together_keep_to_the_limits(tmp_path, monkeypatch):
    both = threading.Barrier(2)

    def write_together(*arguments):
        with contextlib.suppress(threading.BrokenBarrierError):  # as it should be: the other waits for its turn
            both.wait(0.3)
        write_set(*arguments)

    monkeypatch.setattr(v1_lists, "write_set", write_together)
    with ThreadPoolExecutor() as pool:
        stores = [pool.submit(v1_lists.store_set, SERVICE, tmp_path / "sets", name, pack_set([1])) for name in "ab"]
    assert {type(store.exception()) for store in stores} == {type(None), TooLarge}
    assert len(list((tmp_path / "sets").iterdir())) == 1


def test_what_killed_writers_left_is_removed(tmp_path):
    for name, age in ((".old.roaring", 7200), (".new.roaring", 0)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age, time.time() - age))
    v1_lists.store_set(SERVICE, tmp_path, "even", pack_set([1]))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.roaring", "even.roaring"]


def test_a_set_is_written_beside_the_event_loop_and_counts_among_bytes(small_repository, tmp_path, monkeypatch):
    repository, ids = copy_writable(small_repository, tmp_path / "repository"), list(range(100_000))
    write_set(repository / "lm" / SETS_FOLDER, "many", pack_set(ids))
    with TestClient(create_app(Settings(repository=repository))) as client:
        admission, encode = client.app.state.service.admission, v1_lists.encode_set

        def check_thread(*arguments):
            with pytest.raises(RuntimeError, match="no running event loop"):
                asyncio.get_running_loop()
            assert admission.bytes == 2 * 8 * len(ids)
            return encode(*arguments)

        monkeypatch.setattr(v1_lists, "encode_set", check_thread)
        path = "/v1/models/lm/sets/many"
        response = client.get(path)
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {"name": "many", "ids": ids}
        assert admission.bytes == 0
        admission.add_bytes(admission.byte_shares.limit, "other")
        read_refusal(client.get(path), 429)
