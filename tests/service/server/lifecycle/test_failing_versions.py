"""Versions that fail, are damaged, arrive in part or are rolled back replace none that answers."""

from __future__ import annotations

import errno
import shutil

import pytest
from shortlist.bundle.repository import find_version_folders
from shortlist.errors import BundleError
from shortlist.items.store import ItemStore
from shortlist.server.lifecycle import candidates

pytestmark = pytest.mark.slow


def test_a_version_that_fails_replaces_none_and_stops_no_other(repository):
    repository.start(latest=1)
    repository.spoil(2)
    repository.put(1, "other")
    (failure,) = repository.look()
    assert "failed its canary" in failure
    assert repository.states == {("lm", 1): "ready", ("lm", 2): "failed", ("other", 1): "ready"}
    assert repository.look() == [], "it is not tried again as it is"
    shutil.rmtree(repository.root / "lm" / "1")
    repository.look()
    assert repository.ready_versions == {1}, "the one that answers stays, be its folder gone"
    shutil.rmtree(repository.root / "lm" / "2")
    repository.put(2)
    repository.look()
    assert repository.ready_versions == {2}


def test_a_model_whose_folder_cannot_be_listed_holds_up_no_other(repository, monkeypatch, caplog):
    (repository.root / "closed").mkdir()

    def find_folders(folder):
        if folder.name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return find_version_folders(folder)

    monkeypatch.setattr(candidates, "find_version_folders", find_folders)
    assert repository.start() == []
    repository.put(2)
    repository.look()
    assert repository.ready_versions == {1, 2}
    assert caplog.text.count("closed cannot be listed (Permission denied)") == 1


def test_a_start_with_a_bad_newest_version_serves_the_one_before(repository):
    repository.spoil(2)
    repository.now = 30
    (failure,) = repository.start(latest=1, arrival_seconds=0)
    assert "version 2" in failure
    assert repository.ready_versions == {1}
    repository.releases.models.check_ready()


def test_a_log_of_items_that_cannot_be_opened_is_why_its_model_does_not_answer(repository, tmp_path):
    changes = tmp_path.with_name(f"{tmp_path.name}-changes")
    (changes / "lm.items").mkdir(parents=True)
    repository.put(1, "other")
    (failure,) = repository.start(arrival_seconds=None, items=ItemStore(changes, tmp_path))
    assert "lm.items cannot be opened for changes of items (Is a directory)" in failure
    assert repository.states == {("lm", 1): "failed", ("other", 1): "ready"}
    (changes / "lm.items").rmdir()
    assert repository.look() == []
    assert repository.states["lm", 1] == "failed", "nothing of the version has changed"
    repository.releases.retry_failures()
    repository.look()
    assert repository.states["lm", 1] == "ready"
    repository.releases.rules.items.close()


def test_a_damaged_version_is_reported_once_no_more_of_it_can_come(repository):
    repository.start(latest=1)
    repository.damage(2)
    assert repository.look() == []
    assert repository.states == {("lm", 1): "ready"}
    repository.now += 30
    assert "SHA-256" in "".join(repository.look())
    assert repository.states == {("lm", 1): "ready", ("lm", 2): "failed"}


def test_a_half_written_version_is_nothing_until_it_is_whole(repository):
    repository.start(latest=1)
    (repository.root / "lm" / "2").mkdir()
    for _ in range(2):
        assert repository.look() == []
        assert repository.states == {("lm", 1): "ready"}
        repository.now += 20
        copy = repository.root / "lm" / "2" / "labels.json"
        copy.write_bytes((repository.bundle / "labels.json").read_bytes())
    shutil.copytree(repository.bundle, repository.root / "lm" / "2", dirs_exist_ok=True)
    assert repository.look() == []
    assert repository.ready_versions == {2}


def test_a_folder_that_stays_without_a_manifest_is_reported_once(repository, caplog):
    repository.start(latest=1)
    (repository.root / "lm" / "2").mkdir()
    repository.look()
    repository.now += 30
    assert "manifest" in "".join(repository.look())
    assert repository.look() == []
    assert repository.states["lm", 2] == "failed"


def test_an_alias_of_a_version_that_fails_stays_where_it_is(repository):
    repository.declare({"latest": 1, "aliases": {"stable": {"version": 1}}})
    repository.start(arrival_seconds=0)
    repository.spoil(2)
    repository.declare({"latest": 1, "aliases": {"stable": {"version": 2}}})
    assert "version 2" in "".join(repository.look())
    assert repository.find("lm@stable") == repository.find("lm") == 1
    assert repository.ready_versions == {1}


def test_a_wrong_file_changes_nothing_until_it_is_mended(repository):
    repository.start()
    repository.declare("{")
    repository.put(2)
    repository.look()
    assert repository.ready_versions == {1}
    assert "model.json" in repository.releases.models.by_name["lm"].fault
    repository.declare({})
    repository.look()
    assert repository.ready_versions == {1, 2}
    assert repository.releases.models.by_name["lm"].fault is None


def test_at_the_start_a_wrong_file_is_why_its_model_does_not_answer(repository):
    repository.put(1, "other")
    repository.declare("{")
    assert "model.json" in "".join(repository.start())
    assert repository.states == {("lm", 1): "failed", ("other", 1): "ready"}
    repository.declare({})
    assert repository.look() == []
    assert repository.ready_versions == {1}


def test_pinned_versions_of_which_there_is_none_change_nothing(repository, caplog):
    caplog.set_level("INFO", "shortlist.server.lifecycle.candidates")
    repository.declare({"pinned": [9, 10]})
    (failure,) = repository.start()
    assert "model.json pins 9, 10, and none of that is among the versions here" in failure
    assert repository.states == {("lm", 1): "failed"}
    repository.declare({"pinned": [1]})
    repository.look()
    repository.declare({"pinned": [2]})
    for _ in range(3):
        assert repository.look() == []
    assert (repository.ready_versions, repository.find()) == ({1}, 1)
    assert "pins 2" in repository.releases.models.find_table("lm").fault
    with pytest.raises(BundleError, match="pins 2"):
        repository.releases.reload("lm")
    repository.put(2)
    repository.look()
    assert repository.ready_versions == {2}
    assert caplog.text.count("is served as its model.json declares") == 2
    for version in ("1", "2"):
        shutil.rmtree(repository.root / "lm" / version)
    repository.put(1, "other")
    repository.look()
    assert repository.states == {("other", 1): "ready"}, "a model without versions goes, whatever it pins"


@pytest.mark.parametrize("latest", [1, 2])
def test_a_version_that_is_rolled_back_gives_way_to_the_one_before_and_stays_away(repository, latest):
    repository.put(2)
    repository.start(latest=latest)
    change = repository.releases.roll_back(repository.releases.models.find("lm"), "precision .97, promised .99")
    assert [model.version for model in change.rolled_back] == [2]
    assert repository.ready_versions == {1}
    assert repository.releases.models.find("lm", 2).reason == "rolled back: precision .97, promised .99"
    repository.look()
    assert repository.ready_versions == {1}
    repository.put(3)
    repository.look()
    assert 3 in repository.ready_versions
    repository.releases.reload("lm")
    assert 2 in repository.ready_versions or latest == 1, "who asks for it by name gets it"


def test_a_version_is_listed_at_every_moment_of_its_roll_back(repository, monkeypatch):
    repository.put(2)
    repository.start(latest=2)
    models, tables = repository.releases.models, []
    monkeypatch.setattr(models, "put", lambda table: tables.append(table) or type(models).put(models, table))
    repository.releases.roll_back(models.find("lm"), "precision .97, promised .99")
    assert tables
    assert all(list(table.by_number) == [1, 2] for table in tables)
    assert tables[-1].by_number[2].state == "rolled_back"


def test_the_only_version_that_answers_is_not_rolled_back(repository):
    repository.start()
    change = repository.releases.roll_back(repository.releases.models.find("lm"), "worse than promised")
    assert change.rolled_back == []
    assert repository.ready_versions == {1}
    repository.look()
    assert repository.ready_versions == {1}


def test_an_alias_whose_version_is_rolled_back_leads_to_the_one_before(repository):
    repository.put(2)
    repository.declare({"latest": 1, "aliases": {"stable": {"version": 2}}})
    repository.start()
    assert repository.ready_versions == {2}
    repository.releases.roll_back(repository.releases.models.find("lm@stable"), "worse than promised")
    assert repository.find("lm@stable") == repository.find("lm") == 1
