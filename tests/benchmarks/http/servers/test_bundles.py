"""Bundles that are made to be served beside others."""

import pytest
import shortlist
from shortlist.bundle.reader import Bundle
from shortlist_exporter.graphs import certificate

from benchmarks.http.servers.bundles import copy_without_certificate
from tests.support.layers import make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow


def test_without_proofs_exact_answers_are_the_dense_layers(tmp_path, monkeypatch):
    monkeypatch.setattr(certificate, "MIN_WEIGHTS", 0)
    head = make_head(
        tmp_path / "head", make_dense(300, 16), make_contexts(dim=16), method="svd", options={"width": "8"}
    )
    copy = copy_without_certificate(Bundle(head.folder), tmp_path / "copy")
    assert copy.relative_to(tmp_path / "copy").as_posix() == "lm/1"
    other, rows = shortlist.load(copy), make_contexts(dim=16, seed=3).contexts[:20]
    assert head.topk(rows, 3, exact=True).normalizer == "bounded"
    assert other.topk(rows, 3, exact=True).normalizer == "exact"
    assert (other.topk(rows, 3).ids == head.topk(rows, 3).ids).all()
