"""Certificates: which exports write one."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist_exporter.graphs import certificate
from shortlist_exporter.inputs.sources import Contexts, Dense

from tests.support.layers import make_contexts, make_dense
from tests.support.proofs import CLASSES, DIM, proved, rows

pytestmark = [pytest.mark.usefixtures("prove_small_layers"), pytest.mark.slow]


def test_a_layer_that_float32_cannot_hold_is_left_to_dense(tmp_path):
    weight = np.full((40, 4), 3e38, np.float32)
    weight[::2] *= -1
    contexts = make_contexts(40, 4).contexts * np.float32(1e-3)
    head = proved(tmp_path, Dense(weight), Contexts(contexts))
    assert (head.certified, head.manifest.certificate) == (None, None)
    assert head.topk(contexts[:2] * np.float32(1e-3), 1, exact=True).normalizer == "exact"


def test_small_layers_are_left_to_dense(tmp_path, monkeypatch):
    monkeypatch.setattr(certificate, "MIN_WEIGHTS", CLASSES * DIM + 1)
    head = proved(tmp_path, make_dense(CLASSES, DIM))
    assert (head.certified, head.manifest.certificate) == (None, None)
    assert head.topk(rows, 5, exact=True).normalizer == "exact"


def test_export_without(tmp_path):
    head = proved(tmp_path, make_dense(CLASSES, DIM), certificate=False)
    assert head.certified is None
    assert not list(head.folder.rglob("*certificate*"))


def test_every_method_has_it_and_no_dense_has_not(tmp_path):
    options = {"basis": "context", "width": "8", "full_view": "40"}
    head = proved(tmp_path, make_dense(CLASSES, DIM), method="svd", options=options)
    assert (head.topk(rows, 5).normalizer, head.topk(rows, 5, exact=True).normalizer) == ("estimated", "bounded")
    bare = proved(tmp_path / "bare", make_dense(CLASSES, DIM), method="svd", options=options, keep_dense=False)
    assert bare.certified is None
