"""New versions that hold the changes of items, beside heads that have them live."""

from dataclasses import replace

import numpy as np
import pytest
import shortlist
from shortlist.bundle.class_sets import pack_set, write_set
from shortlist.bundle.names import Names
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.errors import BadInput, BundleError
from shortlist.items.batch import ItemBatch
from shortlist.items.store import ItemStore
from shortlist_exporter.export.compact import compact
from shortlist_exporter.export.like import load_like_layer
from shortlist_exporter.export.request import Request, limit_classes
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sampled import normalize_layer
from shortlist_exporter.inputs.sources import Contexts

from tests.support.layers import DIM, call_cli, make_contexts, make_dense, make_small_repository, run_cli

ROWS = make_contexts(rows=20, seed=6).contexts


@pytest.fixture
def repository(tmp_path):
    make_small_repository(tmp_path / "repository")
    return tmp_path / "repository"


def change(ledger, put, remove, seed, **numbered):
    vectors = np.random.default_rng(seed).standard_normal((len(put), DIM)).astype(np.float32) * 2
    return ledger.submit(ItemBatch.make(put, vectors, remove, **numbered)).result()


@pytest.fixture
def store(repository, tmp_path):
    store = ItemStore(tmp_path / "changes", repository)
    yield store
    store.close()


def load(store, repository, version):
    return store.attach(shortlist.load(repository / "lm" / str(version), threads=1))


def test_a_compacted_version_answers_as_the_changed_one(repository, store):
    first = load(store, repository, 1)
    ledger = store.ledgers["lm"]
    change(ledger, ["a", "b", "item-3"], ["item-5", "item-6"], 1, source="s", sequence=4)
    change(ledger, ["c", "item-6"], ["a"], 2)
    before = first.topk(ROWS, 8, exact=True, names=True)
    manifest = compact(repository / "lm", store.folder, make_contexts())
    assert (manifest.version, manifest.classes, manifest.provenance["item_position"]) == (2, 303, 2)
    second = load(store, repository, 2)
    assert not second.is_changed
    after = second.topk(ROWS, 8, exact=True, names=True)
    np.testing.assert_array_equal(after.ids, before.ids)
    np.testing.assert_array_equal(after.names, before.names)
    np.testing.assert_allclose(after.logprobs, before.logprobs, atol=1e-4)
    # both go on with what comes after, and give new items the same ids
    change(ledger, ["d", "a", "item-3"], ["c"], 3)
    old, new = (head.topk(ROWS, 8, exact=True, names=True) for head in (first, second))
    np.testing.assert_array_equal(new.ids, old.ids)
    np.testing.assert_array_equal(new.names, old.names)
    np.testing.assert_allclose(new.logprobs, old.logprobs, atol=1e-4)
    assert second.items.find_ids(["d", "a"]) == first.items.find_ids(["d", "a"]) == [303, 300]


def test_a_version_with_removed_items_is_compacted_again(repository, store):
    first = load(store, repository, 1)
    ledger = store.ledgers["lm"]
    change(ledger, ["a"], ["item-5", "item-6"], 1)
    compact(repository / "lm", store.folder, make_contexts())
    change(ledger, ["item-6", "b"], ["item-7"], 2)
    before = first.topk(ROWS, 8, exact=True, names=True)
    manifest = compact(repository / "lm", store.folder, make_contexts())
    assert (manifest.version, manifest.classes, manifest.provenance["item_position"]) == (3, 302, 2)
    after = load(store, repository, 3).topk(ROWS, 8, exact=True, names=True)
    np.testing.assert_array_equal(after.names, before.names)
    np.testing.assert_allclose(after.logprobs, before.logprobs, atol=1e-4)


def test_removed_items_may_go_and_names_stay(repository, store):
    first = load(store, repository, 1)
    ledger = store.ledgers["lm"]
    change(ledger, ["a", "b"], ["item-5", "item-6"], 1)
    before = first.topk(ROWS, 5, exact=True, names=True)
    manifest = compact(repository / "lm", store.folder, make_contexts(), renumber=True)
    assert manifest.classes == 300
    second = load(store, repository, 2)
    np.testing.assert_array_equal(second.topk(ROWS, 5, exact=True, names=True).names, before.names)
    change(ledger, ["item-5"], ["a"], 2)
    both = [head.topk(ROWS, 5, exact=True, names=True).names for head in (first, second)]
    np.testing.assert_array_equal(*both)


def test_a_changed_layer_is_not_said_to_be_the_file_that_was_exported(repository, store):
    names = Names.make([f"item-{i}" for i in range(300)])
    dense = make_dense(dtype="float16", sha256="ab" * 32)
    export(dense, make_contexts(), repository / "lm" / "2", Request("full", names=names, threads=1))
    load(store, repository, 2)
    change(store.ledgers["lm"], ["a"], [], 1)
    added = compact(repository / "lm", store.folder, make_contexts())
    change(store.ledgers["lm"], [], ["a"], 2)
    removed = compact(repository / "lm", store.folder, make_contexts())
    hashes = {manifest.provenance["weights_sha256"] for manifest in (added, removed)}
    assert len(hashes - {dense.sha256}) == 2
    assert all(len(text) == 64 for text in hashes)
    assert (added.dtype, removed.dtype) == ("float32", "float32")


def test_sets_hold_the_same_items_when_ids_change(repository, store):
    texts = {"names": Names.make([f"item-{i}" for i in range(300)]), "sets": {"some": np.array([3, 10, 20])}}
    export(make_dense(), make_contexts(), repository / "lm" / "2", Request("full", **texts, threads=1))
    load(store, repository, 2)
    change(store.ledgers["lm"], ["a"], ["item-3", "item-5"], 1)
    compact(repository / "lm", store.folder, make_contexts(), renumber=True)
    top = load(store, repository, 3).topk(ROWS, 2, within="some", names=True)
    assert set(top.names.ravel()) == {"item-10", "item-20"}
    assert top.ids.max() == 18


def test_ids_do_not_change_under_sets_that_were_put(repository, store):
    load(store, repository, 1)
    change(store.ledgers["lm"], ["a"], ["item-5"], 1)
    write_set(repository / "lm" / "sets", "some", pack_set([9]))
    with pytest.raises(BadInput, match="sets of ids, of every version: leave --renumber out"):
        compact(repository / "lm", store.folder, make_contexts(), renumber=True)


def test_fewer_items_than_were_served_are_all_served(repository, store):
    names = Names.make([f"item-{i}" for i in range(300)])
    request = Request("full", names=names, threads=1, max_k=300, at=(20, 300))
    export(make_dense(), make_contexts(), repository / "lm" / "2", request)
    load(store, repository, 2)
    change(store.ledgers["lm"], [], ["item-5"], 1)
    manifest = compact(repository / "lm", store.folder, make_contexts())
    assert (manifest.max_k, list(manifest.quality.p_at)) == (299, [20])


def test_a_fresh_version_without_a_position_gets_all_changes_by_name(repository, store):
    load(store, repository, 1)
    change(store.ledgers["lm"], ["a", "item-3"], ["item-5"], 1)
    fresh = make_dense(seed=9)
    names = [f"item-{299 - i}" for i in range(300)]
    request = Request("full", names=Names.make(names), threads=1)
    export(fresh, make_contexts(), repository / "lm" / "2", request)
    head = load(store, repository, 2)
    assert head.items.find_ids(["a", "item-5"]) == [300, 294]
    assert not (head.topk(ROWS, 50).ids == 294).any()


def test_vectors_of_items_of_cosines_are_divided_by_their_lengths(repository, store):
    dense, contexts = normalize_layer(make_dense(), make_contexts())
    names = Names.make([f"item-{i}" for i in range(300)])
    export(dense, contexts, repository / "lm" / "2", Request("full", names=names, threads=1, cosine=True))
    first = load(store, repository, 2)
    vectors = np.array([7 * dense.weight[3], np.full(DIM, 3e38), np.zeros(DIM)], np.float32)
    store.ledgers["lm"].submit(ItemBatch.make(["same", "large", "nothing"], vectors, [])).result()
    top = first.topk(dense.weight[3:4], 4, allow=[3, 300, 301, 302], exact=True, scores=True)
    by_id = dict(zip(top.ids[0].tolist(), top.scores[0].tolist(), strict=True))
    assert by_id[300] == pytest.approx(by_id[3], abs=1e-6) == pytest.approx(1, abs=1e-6)
    assert by_id[301] == pytest.approx(dense.weight[3].sum() / DIM**0.5, abs=1e-6)
    assert by_id[302] == 0
    manifest = compact(repository / "lm", store.folder, make_contexts())
    assert manifest.provenance["cosine"] is True
    second = Bundle(repository / "lm" / "3")
    rows = [load_like_layer(second).weight[:302], second.tensors(CALIBRATION_FILE)["contexts"]]
    np.testing.assert_allclose(np.linalg.norm(np.concatenate(rows), axis=1), 1, rtol=1e-6)


def test_logs_drop_what_all_versions_hold(repository, tmp_path):
    store = ItemStore(tmp_path / "changes", repository)
    load(store, repository, 1)
    for number in range(20):
        change(store.ledgers["lm"], ["a"], [], number, source="s", sequence=number)
    store.close()
    compact(repository / "lm", store.folder, make_contexts())
    size = store.ledgers["lm"].file.size
    (repository / "lm" / "1").rename(tmp_path / "old")
    again = ItemStore(tmp_path / "changes", repository)
    load(again, repository, 2)
    ledger = again.ledgers["lm"]
    assert ledger.file.size < size / 4
    assert (ledger.position, ledger.sources) == (20, {"s": 19})
    assert not change(ledger, ["a"], [], 1, source="s", sequence=19).applied
    assert change(ledger, ["a"], [], 1, source="s", sequence=20).position == 21
    (tmp_path / "old").rename(repository / "lm" / "1")
    with pytest.raises(BundleError, match="begins after change 20"):
        load(again, repository, 1)
    again.close()


def test_a_log_that_was_moved_away_goes_on_after_the_bundle(repository, store, tmp_path):
    load(store, repository, 1)
    change(store.ledgers["lm"], ["a"], [], 1)
    compact(repository / "lm", store.folder, make_contexts())
    other = ItemStore(tmp_path / "elsewhere", repository)
    head = load(other, repository, 2)
    assert change(other.ledgers["lm"], ["b"], [], 2).position == 2
    assert head.is_changed
    other.close()
    again = ItemStore(tmp_path / "elsewhere", repository)
    assert load(again, repository, 2).items.find_ids(["b"]) == [301]
    again.close()


def test_the_command_says_what_it_made(repository, store):
    load(store, repository, 1)
    nothing = call_cli("compact", repository / "lm", "--item-changes", store.folder)
    assert nothing.returncode == 1
    assert "there is nothing to do" in nothing.stderr
    change(store.ledgers["lm"], ["a"], ["item-1"], 1)
    result = run_cli("compact", repository / "lm", "--item-changes", store.folder, "--threads", 1)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("lm/2: 301 classes, changes up to 1, P@1 ")


def test_what_cannot_be_compacted_is_refused(repository, tmp_path):
    with pytest.raises(BadInput, match="there is no log of changes at"):
        compact(repository / "lm", tmp_path)
    with pytest.raises(BadInput, match="has no names"):
        compact(repository / "dense", tmp_path, Contexts(ROWS), renumber=True)


def test_a_promise_of_more_classes_than_are_left_is_dropped():
    request = Request(promise={1: 0.5, 5: 0.5, 20: 0.5})
    assert limit_classes(request, 19).promise == {1: 0.5, 5: 0.5}
    assert limit_classes(replace(request, max_k=4), 19).promise == {1: 0.5}


@pytest.mark.parametrize("renumber", [False, True])
def test_a_model_without_items_is_refused_in_a_sentence(repository, store, renumber):
    load(store, repository, 1)
    change(store.ledgers["lm"], [], [f"item-{i}" for i in range(300)], 1)
    with pytest.raises(BadInput, match=r"all items of .* were removed: put some before"):
        compact(repository / "lm", store.folder, make_contexts(), renumber=renumber)


def test_a_bundle_without_its_layer_is_not_told_to_give_what_the_command_does_not_take(store, tmp_path):
    out = tmp_path / "repository" / "bare" / "1"
    export(make_dense(), make_contexts(), out, Request("svd", {}, keep_dense=False, fallback=False, threads=1))
    head = store.attach(shortlist.load(out, threads=1).with_identity("bare", 1))
    store.find_ledger(head).submit(ItemBatch.make([], np.empty((0, DIM), np.float32), [3])).result()
    with pytest.raises(BadInput, match="with --no-dense: export it again, and give --weights"):
        compact(out.parent, store.folder, make_contexts())
