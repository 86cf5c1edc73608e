"""What an export says of figures that are worse than most."""

import numpy as np
import pytest
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.methods.registry import METHODS

from tests.support.layers import make_contexts, make_head

DIM = 16
OPTIONS = {"promise": "0", "candidates": "30", "opened": "1200"}


@pytest.mark.parametrize(("spread", "noted"), [(0.0, False), (1.0, True)])
def test_far_off_logprobs_are_noted_with_what_mends_them(tmp_path, spread, noted):
    """A linear guess of the normaliser's rest does not follow users whose vectors differ in length."""
    random = np.random.default_rng(0)
    layer = Dense(random.standard_normal((1200, DIM)).astype(np.float32))
    users = make_contexts(1500, DIM).contexts
    users /= np.linalg.norm(users, axis=1, keepdims=True)
    users *= np.exp(spread * random.standard_normal((len(users), 1))).astype(np.float32)
    manifest = make_head(tmp_path, layer, Contexts(users), method="grouped", options=OPTIONS).manifest
    notes = [note for note in manifest.provenance.get("notes", []) if "nats" in note]
    error = manifest.quality.logprob_error_mean
    assert (error > 0.1) == noted
    start = f"log-probabilities are off by {error:.2f} nats in the mean (ids and scores are not): "
    assert notes == [start + METHODS["grouped"].ways_to_normalize] * noted
