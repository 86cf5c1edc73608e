"""What an export says of figures that are worse than most."""

import numpy as np
import pytest
import shortlist
from shortlist.cli import main
from shortlist.items.batch import ItemBatch
from shortlist.items.store import ItemStore
from shortlist_exporter.export import seal
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.methods.registry import METHODS

from tests.support.layers import make_contexts, make_head, make_small_repository

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
    error = manifest.quality.logprob_error_hits_mean
    assert (error > 0.1) == noted
    start = f"log-probabilities are off by {error:.2f} nats in the mean: "
    assert notes == [start + METHODS["grouped"].ways_to_normalize] * noted


@pytest.fixture
def item_changes(tmp_path):
    """A repository, and the folder of its items' changes."""
    repository, changes = tmp_path / "repository", tmp_path / "changes"
    make_small_repository(repository)
    store = ItemStore(changes, repository)
    store.attach(shortlist.load(repository / "lm" / "1", threads=1))
    store.ledgers["lm"].submit(ItemBatch.make([], np.empty((0, 0), np.float32), ["item-1"])).result()
    store.close()
    return repository, changes


@pytest.mark.parametrize("command", ["compact", "shard"])
def test_notes_are_printed_by_what_exports_again(item_changes, tmp_path, monkeypatch, capsys, command):
    monkeypatch.setattr(seal, "LOW_PRECISION", 1.1)
    repository, changes = (str(path) for path in item_changes)
    arguments = {
        "compact": [f"{repository}/lm", "--item-changes", changes],
        "shard": [f"{repository}/lm/1", "--shards", "2", "--out", str(tmp_path / "shards")],
    }
    assert main([command, *arguments[command], "--threads", "1"]) == 0
    printed = capsys.readouterr().err
    assert printed.count("note: P@1 is ") == (2 if command == "shard" else 1)
