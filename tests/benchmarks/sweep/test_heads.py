"""Cached heads of the benchmarks: used again while they are of the same data and answer as they did."""

from dataclasses import dataclass
from types import SimpleNamespace

from shortlist.bundle.reader import Bundle
from shortlist.bundle.writer import seal

from benchmarks.sweep import heads
from benchmarks.sweep.heads import hash_request, list_requests, reuse_head
from tests.support.layers import make_contexts, make_dense, make_head


@dataclass
class Data:
    dense: SimpleNamespace
    fit: SimpleNamespace


def data_of(head):
    provenance = head.manifest.provenance
    return Data(
        SimpleNamespace(sha256=provenance["weights_sha256"]), SimpleNamespace(sha256=provenance["contexts_sha256"])
    )


def test_a_head_of_the_same_data_is_used_again(tmp_path):
    head = make_head(tmp_path, make_dense(200, 12), make_contexts(dim=12), method="svd", options={"width": "6"})
    data = data_of(head)
    assert reuse_head(head.folder, data.dense, data.fit, 1).folder == head.folder
    data.fit.sha256 = "of others"
    assert reuse_head(head.folder, data.dense, data.fit, 1) is None
    assert reuse_head(tmp_path / "none", data.dense, data.fit, 1) is None


def test_a_head_that_answers_otherwise_now_is_not(tmp_path):
    head = make_head(
        tmp_path, make_dense(200, 12), make_contexts(dim=12), method="svd", options={"width": "2", "full_view": "12"}
    )
    settings = head.manifest.settings.with_changes({"full_view": 150})
    (head.folder / "manifest.json").unlink()
    seal(head.folder, head.manifest.model_copy(update={"settings": settings}))
    assert Bundle(head.folder).manifest.settings == settings
    data = data_of(head)
    assert reuse_head(head.folder, data.dense, data.fit, 1) is None


def test_requests_that_differ_have_keys_of_their_own():
    keys = {hash_request(request) for request in list_requests(10_000, 200).values()}
    assert len(keys) == len(list_requests(10_000, 200))


def test_a_bundle_of_another_format_has_another_key(monkeypatch):
    request = list_requests(10_000, 200)["svd"]
    before = hash_request(request)
    monkeypatch.setattr(heads, "FORMAT_VERSION", heads.FORMAT_VERSION + 1)
    assert hash_request(request) != before
