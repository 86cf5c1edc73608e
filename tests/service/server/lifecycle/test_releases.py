"""What is served, in line with a repository that changes: real bundles, loaded in this process."""

from __future__ import annotations

import shutil
import weakref

import pytest
from shortlist.errors import BundleError, NotFound

from tests.support.heads import adaptive, grouped
from tests.support.layers import make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=5).contexts


def test_a_new_version_takes_the_place_of_the_old_one_which_is_freed(repository):
    repository.start(latest=1)
    former = weakref.ref(repository.releases.models.find("lm"))
    head = weakref.ref(former().head)
    repository.published.clear()
    repository.put(2)
    assert repository.look() == []
    assert repository.ready_versions == {2}
    assert former() is head() is None, "by reference counts alone: nobody waits for a garbage collection"
    assert repository.look() == []


def make_screened(folder):
    options = {"clusters": "6", "budget": "40", "epochs": "1"}
    return make_head(folder, make_dense(), method="l2s", options=options)


def make_grouped(folder):
    layer = make_dense(grouped.CLASSES, grouped.DIM, **next(iter(grouped.LAYERS.values())))
    return make_head(folder, layer, grouped.contexts, method="grouped", options=grouped.OPTIONS)


def make_adaptive(folder):
    return adaptive.make(folder, *next(iter(adaptive.FORMS.values())))


@pytest.mark.parametrize("make", [make_screened, make_grouped, make_adaptive])
def test_heads_of_other_plans_are_freed_as_well(make, tmp_path, repository):
    repository.bundle = make(tmp_path / "other").folder
    repository.put(2)
    repository.start(latest=1)
    head = weakref.ref(repository.releases.models.find("lm").head)
    repository.put(3)
    repository.published.clear()
    repository.look()
    assert repository.ready_versions == {3}
    assert head() is None


def test_latest_versions_and_their_number_by_model(repository):
    for version in (2, 3, 10):
        repository.put(version)
    repository.start(latest=2)
    assert repository.ready_versions == {3, 10}
    repository.declare({"latest": 3})
    repository.look()
    assert repository.ready_versions == {2, 3, 10}
    repository.declare({"pinned": [1, 10]})
    repository.look()
    assert repository.ready_versions == {1, 10}


def test_models_come_and_go(repository):
    repository.start()
    repository.put(3, "other")
    repository.look()
    assert repository.states == {("lm", 1): "ready", ("other", 3): "ready"}
    shutil.rmtree(repository.root / "lm")
    repository.look()
    assert repository.states == {("other", 3): "ready"}
    with pytest.raises(NotFound):
        repository.find("lm")


def test_a_repository_that_is_away_for_a_while_changes_nothing(repository, tmp_path):
    repository.start()
    (repository.root / "lm").rename(repository.root / ".lm")
    assert repository.look() == []
    repository.root.rename(tmp_path.with_name("away"))
    assert repository.look() == []
    assert repository.ready_versions == {1}
    tmp_path.with_name("away").rename(repository.root)


def test_aliases_lead_to_their_versions_and_keep_them_served(repository):
    repository.put(2)
    repository.declare({"latest": 1, "aliases": {"stable": {"version": 1}}})
    repository.start()
    assert repository.ready_versions == {1, 2}
    assert (repository.find("lm"), repository.find("lm@stable")) == (1, 1)
    repository.put(3)
    repository.declare({"latest": 1, "aliases": {"stable": {"version": 3}}})
    repository.look()
    assert repository.ready_versions == {3}
    assert repository.find("lm@stable") == 3


def test_what_is_asked_for_by_name_is_loaded_again(repository):
    repository.start(arrival_seconds=None)
    former = repository.releases.models.find("lm").head
    repository.releases.unload("lm")
    assert repository.look() == []
    assert repository.states == {("lm", 1): "unloaded"}, "until somebody asks for it"
    repository.releases.reload("lm")
    assert repository.releases.models.find("lm").head is not former
    repository.declare("{")
    with pytest.raises(BundleError, match=r"model\.json"):
        repository.releases.reload("lm")
    assert repository.ready_versions == {1}


def test_a_model_that_was_loaded_again_takes_new_versions_though_fewer_are_served(repository):
    repository.put(2)
    repository.start(latest=2, arrival_seconds=None)
    repository.releases.unload("lm")
    repository.put(3)
    repository.releases.reload("lm")
    assert repository.states == {("lm", 2): "ready", ("lm", 3): "ready"}, "version 1 would not be served at a start"
    repository.put(4)
    repository.look()
    assert repository.ready_versions == {3, 4}


def test_a_stop_ends_loading(repository):
    repository.start()
    repository.put(2)
    repository.releases.stop()
    repository.look()
    assert repository.ready_versions == {1}


def test_a_repository_that_was_away_is_said_to_be_there_again(repository, tmp_path, caplog):
    """The log said that it was away, and then no more."""
    repository.start()
    repository.root.rename(tmp_path.with_suffix(".away"))
    repository.look()
    repository.look()
    assert caplog.text.count("what is served stays") == 1
    assert not repository.releases.candidates.has_repository
    tmp_path.with_suffix(".away").rename(repository.root)
    repository.look()
    repository.look()
    assert caplog.text.count(f"the repository {repository.root} is there again") == 1
    assert repository.releases.candidates.has_repository
    assert repository.ready_versions == {1}
