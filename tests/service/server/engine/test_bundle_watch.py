"""The canary now and then: files first, then answers; nothing is counted as a request."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.head import Head
from shortlist.server.engine.bundle_watch import BundleWatch, copy_uncounted, find_fault
from shortlist.server.models import Models

from tests.support.layers import copy_writable, make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=5).contexts


@pytest.fixture
def models(small_repository, tmp_path):
    models = Models(copy_writable(small_repository, tmp_path / "repository"))
    models.load_all("cpu", 1, lambda model: None)
    return models


@pytest.fixture
def findings(models):
    """The watch, and what it has published."""
    published = {}
    return BundleWatch(models, 60, lambda model, passed: published.update({model.name: passed})), published


def test_bundles_as_they_were_pass(models, findings):
    watch, published = findings
    for model in models:
        watch.check(model)
    assert published == {"lm": True, "dense": True}


def test_answers_that_differ_are_a_fault(models, small_repository, monkeypatch):
    """Contexts of other rows than the answers: as if the weights had changed in memory."""
    bundle = Bundle(small_repository / "lm" / "1")
    tensors = bundle.tensors(CALIBRATION_FILE)
    tensors["contexts"] = np.ascontiguousarray(tensors["contexts"][::-1])
    monkeypatch.setattr(bundle, "tensors", lambda name: tensors)
    fault = find_fault(models.find("lm").head, bundle)
    assert "failed its canary" in fault


def test_a_file_that_was_touched_is_a_fault_until_the_bundle_is_loaded_again(models, findings):
    watch, published = findings
    model = models.find("lm")
    labels = model.folder / "labels.json"
    labels.write_bytes(labels.read_bytes())
    watch.check(model)
    assert published == {"lm": False}
    models.load("lm", "cpu", 1, lambda model: None)
    watch.check(model)
    assert published == {"lm": True}


def test_a_model_that_is_not_served_is_left_alone(models, findings):
    watch, published = findings
    models.unload("lm")
    watch.check(models.find("lm"))
    assert published == {}


def test_its_searches_are_not_counted(adaptive_head):
    head = adaptive_head
    before = list(head.plan.tally.counts)
    bundle = Bundle(head.folder)
    assert find_fault(head, bundle) is None
    assert head.plan.tally.counts == before
    assert isinstance(copy_uncounted(head), Head)
