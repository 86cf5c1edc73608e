"""The canary now and then: files first, then answers; nothing is counted as a request."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.head import Head
from shortlist.server.engine import bundle_watch
from shortlist.server.engine.bundle_watch import BundleWatch, copy_uncounted, find_fault
from shortlist.server.lifecycle.releases import ReleaseRules, Releases
from shortlist.server.lifecycle.version_table import VersionTable

from tests.support.layers import copy_writable, make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=5).contexts


@pytest.fixture
def releases(small_repository, tmp_path):
    repository = copy_writable(small_repository, tmp_path / "repository")
    releases = Releases(repository, ReleaseRules("cpu", 1), lambda model: None)
    for name in releases.list_models():
        releases.update(name)
    return releases


@pytest.fixture
def models(releases):
    return releases.models


@pytest.fixture
def findings(models):
    """The watch, and what it has published."""
    published = {}
    return BundleWatch(models, 60, lambda model, passed: published.update({model.name: passed})), published


def test_bundles_as_they_were_pass(models, findings):
    watch, published = findings
    for model in models:
        watch.note(model, watch.is_sound(model))
    assert published == {"lm": True, "dense": True}


def test_answers_that_differ_are_a_fault(models, small_repository, monkeypatch):
    """Contexts of other rows than the answers: as if the weights had changed in memory."""
    bundle = Bundle(small_repository / "lm" / "1")
    tensors = bundle.tensors(CALIBRATION_FILE)
    tensors["contexts"] = np.ascontiguousarray(tensors["contexts"][::-1])
    monkeypatch.setattr(bundle, "tensors", lambda name: tensors)
    fault = find_fault(models.find("lm").head, bundle)
    assert "failed its canary" in fault


def test_a_file_that_was_touched_is_a_fault_until_the_bundle_is_loaded_again(models, releases, findings):
    watch, published = findings
    model = models.find("lm")
    labels = model.folder / "labels.json"
    labels.write_bytes(labels.read_bytes())
    watch.note(model, watch.is_sound(model))
    assert published == {"lm": False}
    releases.reload("lm")
    watch.note(model, watch.is_sound(model))
    assert published == {"lm": True}


@pytest.mark.parametrize("damage", [None, "labels.json"])
def test_a_link_that_is_turned_to_another_copy_of_the_repository_is_no_fault(small_repository, tmp_path, damage):
    """As volumes of Kubernetes and tools of deployment put a next release in the place of one."""
    copies = [copy_writable(small_repository / "lm", tmp_path / name / "lm") for name in ("first", "second")]
    if damage is not None:
        (copies[1] / "1" / damage).write_bytes(b"x" * (copies[0] / "1" / damage).stat().st_size)
    link, turned = tmp_path / "repository", tmp_path / "turned"
    link.symlink_to("first")
    bundle = Bundle(link / "lm" / "1")
    turned.symlink_to("second")
    turned.rename(link)
    assert bundle.find_change() == (None if damage is None else "manifest.json")
    (copies[1] / "1" / "labels.json").write_bytes(b"x")
    assert bundle.find_change() is not None


def test_a_fault_is_logged_once_and_so_is_its_end(models, releases, findings, caplog):
    watch, _ = findings
    labels = models.find("lm").folder / "labels.json"
    for _ in range(2):
        labels.write_bytes(labels.read_bytes())
        for _ in range(3):
            asyncio.run(watch.check_all())
        releases.reload("lm")
        for _ in range(3):
            asyncio.run(watch.check_all())
    lines = [record.getMessage() for record in caplog.records if record.name == bundle_watch.__name__]
    assert ["is served, but" in line for line in lines] == [True, False] * 2
    assert all(line.startswith(str(models.find("lm"))) for line in lines)
    assert "is as it was loaded again" in lines[1]


def test_a_fault_of_a_version_that_comes_back_is_logged_again(models, findings, caplog):
    watch, _ = findings
    table, model = models.find_table("lm"), models.find("lm")
    labels = model.folder / "labels.json"
    labels.write_bytes(labels.read_bytes())
    asyncio.run(watch.check_all())
    models.put(VersionTable("lm", {}))
    asyncio.run(watch.check_all())
    models.put(table)
    asyncio.run(watch.check_all())
    assert caplog.text.count("is served, but") == 2


def test_a_model_that_is_not_served_is_left_alone(models, releases, findings):
    watch, published = findings
    releases.unload("lm")
    model = models.find("lm")
    watch.note(model, watch.is_sound(model))
    assert published == {}


def test_nothing_is_published_of_a_version_that_was_dropped_meanwhile(models, findings):
    watch, published = findings
    model = models.find("lm")
    sound = watch.is_sound(model)
    models.put(VersionTable("lm", {}))
    watch.note(model, sound)
    assert (sound, published) == (True, {})


def test_a_look_that_fails_as_nobody_foresaw_ends_nothing(models, findings, monkeypatch, caplog):
    def fail(model):
        raise MemoryError(str(model))

    watch, published = findings
    monkeypatch.setattr(watch, "is_sound", fail)
    asyncio.run(watch.check_all())
    assert published == {}
    assert caplog.text.count("could not be looked at") == len(list(models))


def test_its_searches_are_not_counted(adaptive_head):
    head = adaptive_head
    before = list(head.plan.tally.counts)
    bundle = Bundle(head.folder)
    assert find_fault(head, bundle) is None
    assert head.plan.tally.counts == before
    assert isinstance(copy_uncounted(head), Head)
