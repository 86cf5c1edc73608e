"""What is served, in line with a repository that changes: real bundles, loaded in this process."""

from __future__ import annotations

import json
import shutil
import weakref

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from shortlist.bundle.reader import CALIBRATION_FILE
from shortlist.errors import BundleError, NotFound
from shortlist.server.lifecycle.arrivals import Arrivals
from shortlist.server.lifecycle.releases import ReleaseRules, Releases

from tests.service.server.attacks.bad_bundles import reseal
from tests.support.heads import adaptive, grouped
from tests.support.layers import copy_writable, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=5).contexts


class Watched:
    """A watched repository with `lm`, its releases, and a clock for arrivals."""

    def __init__(self, root, bundle):
        self.root, self.bundle, self.now, self.published = root, bundle, 0.0, []
        self.put(1)

    def start(self, **rules):
        rules = {"device": "cpu", "threads": 1, "arrival_seconds": 30} | rules
        self.releases = Releases(self.root, ReleaseRules(**rules), self.published.append)
        if rules["arrival_seconds"] is not None:
            self.releases.candidates.arrivals = Arrivals(rules["arrival_seconds"], lambda: self.now)
        return self.look()

    def put(self, version, name="lm"):
        return copy_writable(self.bundle, self.root / name / str(version))

    def spoil(self, version):
        """A whole bundle whose answers are not those of its export."""
        path = self.put(version) / CALIBRATION_FILE
        tensors = load_file(path)
        save_file(tensors | {"contexts": np.ascontiguousarray(tensors["contexts"][::-1])}, path)
        reseal(path.parent)

    def damage(self, version):
        """A bundle with a wrong byte, as one whose last bytes are still to come."""
        (self.put(version) / "labels.json").write_bytes(b"x" * (self.bundle / "labels.json").stat().st_size)

    def declare(self, content, name="lm"):
        (self.root / name / "model.json").write_text(content if isinstance(content, str) else json.dumps(content))

    def look(self):
        changes = [self.releases.update(name) for name in self.releases.list_models()]
        return [str(failure) for change in changes for failure in change.failures]

    @property
    def states(self):
        return {(model.name, model.version): model.state for model in self.releases.models}

    @property
    def served(self):
        return {version for (name, version), state in self.states.items() if name == "lm" and state == "ready"}

    def find(self, name="lm"):
        return self.releases.models.find(name).version


@pytest.fixture
def watched(small_repository, tmp_path):
    return Watched(tmp_path, small_repository / "lm" / "1")


def test_a_new_version_takes_the_place_of_the_old_one_which_is_freed(watched):
    watched.start(latest=1)
    former = weakref.ref(watched.releases.models.find("lm"))
    head = weakref.ref(former().head)
    watched.published.clear()
    watched.put(2)
    assert watched.look() == []
    assert watched.served == {2}
    assert former() is head() is None, "by reference counts alone: nobody waits for a garbage collection"
    assert watched.look() == []


def make_screened(folder):
    options = {"clusters": "6", "budget": "40", "epochs": "1"}
    return make_head(folder, make_dense(), method="l2s", options=options)


def make_grouped(folder):
    layer = make_dense(grouped.CLASSES, grouped.DIM, **next(iter(grouped.LAYERS.values())))
    return make_head(folder, layer, grouped.contexts, method="grouped", options=grouped.OPTIONS)


def make_adaptive(folder):
    return adaptive.make(folder, *next(iter(adaptive.FORMS.values())))


@pytest.mark.parametrize("make", [make_screened, make_grouped, make_adaptive])
def test_heads_of_other_plans_are_freed_as_well(make, tmp_path, watched):
    watched.bundle = make(tmp_path / "other").folder
    watched.put(2)
    watched.start(latest=1)
    head = weakref.ref(watched.releases.models.find("lm").head)
    watched.put(3)
    watched.published.clear()
    watched.look()
    assert watched.served == {3}
    assert head() is None


def test_latest_versions_and_their_number_by_model(watched):
    for version in (2, 3, 10):
        watched.put(version)
    watched.start(latest=2)
    assert watched.served == {3, 10}
    watched.declare({"latest": 3})
    watched.look()
    assert watched.served == {2, 3, 10}
    watched.declare({"pinned": [1, 10]})
    watched.look()
    assert watched.served == {1, 10}


def test_a_version_that_fails_replaces_none_and_stops_no_other(watched):
    watched.start(latest=1)
    watched.spoil(2)
    watched.put(1, "other")
    (failure,) = watched.look()
    assert "failed its canary" in failure
    assert watched.states == {("lm", 1): "ready", ("lm", 2): "failed", ("other", 1): "ready"}
    assert watched.look() == [], "it is not tried again as it is"
    shutil.rmtree(watched.root / "lm" / "1")
    watched.look()
    assert watched.served == {1}, "the one that answers stays, be its folder gone"
    shutil.rmtree(watched.root / "lm" / "2")
    watched.put(2)
    watched.look()
    assert watched.served == {2}


def test_a_start_with_a_bad_newest_version_serves_the_one_before(watched):
    watched.spoil(2)
    watched.now = 30
    (failure,) = watched.start(latest=1, arrival_seconds=0)
    assert "version 2" in failure
    assert watched.served == {1}
    watched.releases.models.check_ready()


def test_a_damaged_version_is_reported_once_no_more_of_it_can_come(watched):
    watched.start(latest=1)
    watched.damage(2)
    assert watched.look() == []
    assert watched.states == {("lm", 1): "ready"}
    watched.now += 30
    assert "SHA-256" in "".join(watched.look())
    assert watched.states == {("lm", 1): "ready", ("lm", 2): "failed"}


def test_a_half_written_version_is_nothing_until_it_is_whole(watched):
    watched.start(latest=1)
    (watched.root / "lm" / "2").mkdir()
    for _ in range(2):
        assert watched.look() == []
        assert watched.states == {("lm", 1): "ready"}
        watched.now += 20
        copy = watched.root / "lm" / "2" / "labels.json"
        copy.write_bytes((watched.bundle / "labels.json").read_bytes())
    shutil.copytree(watched.bundle, watched.root / "lm" / "2", dirs_exist_ok=True)
    assert watched.look() == []
    assert watched.served == {2}


def test_a_folder_that_stays_without_a_manifest_is_reported_once(watched, caplog):
    watched.start(latest=1)
    (watched.root / "lm" / "2").mkdir()
    watched.look()
    watched.now += 30
    assert "manifest" in "".join(watched.look())
    assert watched.look() == []
    assert watched.states["lm", 2] == "failed"


def test_models_come_and_go(watched):
    watched.start()
    watched.put(3, "other")
    watched.look()
    assert watched.states == {("lm", 1): "ready", ("other", 3): "ready"}
    shutil.rmtree(watched.root / "lm")
    watched.look()
    assert watched.states == {("other", 3): "ready"}
    with pytest.raises(NotFound):
        watched.find("lm")


def test_a_repository_that_is_away_for_a_while_changes_nothing(watched, tmp_path):
    watched.start()
    (watched.root / "lm").rename(watched.root / ".lm")
    assert watched.look() == []
    watched.root.rename(tmp_path.with_name("away"))
    assert watched.look() == []
    assert watched.served == {1}
    tmp_path.with_name("away").rename(watched.root)


def test_aliases_lead_to_their_versions_and_keep_them_served(watched):
    watched.put(2)
    watched.declare({"latest": 1, "aliases": {"stable": {"version": 1}}})
    watched.start()
    assert watched.served == {1, 2}
    assert (watched.find("lm"), watched.find("lm@stable")) == (1, 1)
    watched.put(3)
    watched.declare({"latest": 1, "aliases": {"stable": {"version": 3}}})
    watched.look()
    assert watched.served == {3}
    assert watched.find("lm@stable") == 3


def test_an_alias_of_a_version_that_fails_stays_where_it_is(watched):
    watched.declare({"latest": 1, "aliases": {"stable": {"version": 1}}})
    watched.start(arrival_seconds=0)
    watched.spoil(2)
    watched.declare({"latest": 1, "aliases": {"stable": {"version": 2}}})
    assert "version 2" in "".join(watched.look())
    assert watched.find("lm@stable") == watched.find("lm") == 1
    assert watched.served == {1}


def test_a_wrong_file_changes_nothing_until_it_is_mended(watched):
    watched.start()
    watched.declare("{")
    watched.put(2)
    watched.look()
    assert watched.served == {1}
    assert "model.json" in watched.releases.models.by_name["lm"].fault
    watched.declare({})
    watched.look()
    assert watched.served == {1, 2}
    assert watched.releases.models.by_name["lm"].fault is None


def test_at_the_start_a_wrong_file_is_why_its_model_does_not_answer(watched):
    watched.put(1, "other")
    watched.declare("{")
    assert "model.json" in "".join(watched.start())
    assert watched.states == {("lm", 1): "failed", ("other", 1): "ready"}
    watched.declare({})
    assert watched.look() == []
    assert watched.served == {1}


@pytest.mark.parametrize("latest", [1, 2])
def test_a_version_that_is_rolled_back_gives_way_to_the_one_before_and_stays_away(watched, latest):
    watched.put(2)
    watched.start(latest=latest)
    change = watched.releases.roll_back(watched.releases.models.find("lm"), "precision .97, promised .99")
    assert [model.version for model in change.rolled_back] == [2]
    assert watched.served == {1}
    assert watched.releases.models.find("lm", 2).reason == "rolled back: precision .97, promised .99"
    watched.look()
    assert watched.served == {1}
    watched.put(3)
    watched.look()
    assert 3 in watched.served
    watched.releases.reload("lm")
    assert 2 in watched.served or latest == 1, "who asks for it by name gets it"


def test_the_only_version_that_answers_is_not_rolled_back(watched):
    watched.start()
    change = watched.releases.roll_back(watched.releases.models.find("lm"), "worse than promised")
    assert change.rolled_back == []
    assert watched.served == {1}
    watched.look()
    assert watched.served == {1}


def test_an_alias_whose_version_is_rolled_back_leads_to_the_one_before(watched):
    watched.put(2)
    watched.declare({"latest": 1, "aliases": {"stable": {"version": 2}}})
    watched.start()
    assert watched.served == {2}
    watched.releases.roll_back(watched.releases.models.find("lm@stable"), "worse than promised")
    assert watched.find("lm@stable") == watched.find("lm") == 1


def test_what_is_asked_for_by_name_is_loaded_again(watched):
    watched.start(arrival_seconds=None)
    former = watched.releases.models.find("lm").head
    watched.releases.unload("lm")
    assert watched.look() == []
    assert watched.states == {("lm", 1): "unloaded"}, "until somebody asks for it"
    watched.releases.reload("lm")
    assert watched.releases.models.find("lm").head is not former
    watched.declare("{")
    with pytest.raises(BundleError, match=r"model\.json"):
        watched.releases.reload("lm")
    assert watched.served == {1}


def test_a_stop_ends_loading(watched):
    watched.start()
    watched.put(2)
    watched.releases.stop()
    watched.look()
    assert watched.served == {1}
