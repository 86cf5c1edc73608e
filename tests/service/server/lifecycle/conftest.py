"""A repository that changes, and what is served of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from shortlist.bundle.reader import CALIBRATION_FILE
from shortlist.server.lifecycle.arrivals import Arrivals
from shortlist.server.lifecycle.releases import ReleaseRules, Releases

from tests.service.server.attacks.bad_bundles import reseal
from tests.support.layers import copy_writable

pytestmark = pytest.mark.slow


class WatchedRepository:
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
    def ready_versions(self):
        return {version for (name, version), state in self.states.items() if name == "lm" and state == "ready"}

    def find(self, name="lm"):
        return self.releases.models.find(name).version


@pytest.fixture
def repository(small_repository, tmp_path):
    return WatchedRepository(tmp_path, small_repository / "lm" / "1")
