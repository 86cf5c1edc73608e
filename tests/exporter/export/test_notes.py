"""What an export says of figures that are worse than most."""

from types import SimpleNamespace

import numpy as np
import pytest
import shortlist
from shortlist.cli import main
from shortlist.items.batch import ItemBatch
from shortlist.items.store import ItemStore
from shortlist_exporter.export import seal
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_exporter.methods.registry import METHODS

from tests.support.layers import make_contexts, make_dense, make_head, make_small_repository

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


@pytest.mark.parametrize(("spread", "noted"), [(0.0, True), (1.0, False)])
def test_contexts_that_are_all_alike_are_noted(tmp_path, spread, noted):
    """A promise of .99 was made by them, and a third of the best classes of others was missed."""
    random = np.random.default_rng(0)
    alike = random.standard_normal(DIM) + (spread + 1e-3) * random.standard_normal((400, DIM))
    manifest = make_head(tmp_path, make_dense(), Contexts(alike.astype(np.float32))).manifest
    notes = [note for note in manifest.provenance.get("notes", []) if "alike" in note]
    assert [note.partition(":")[0] for note in notes] == [
        "the same class is best for each of the 40 held-out contexts"
    ] * noted


@pytest.mark.parametrize(("best", "rows", "classes", "noted"), [
    (5, 100, 50, True), (6, 120, 60, False), (5, 99, 50, False), (5, 100, 49, False), (1, 19, 300, False),
])  # fmt: skip
def test_contexts_are_alike_where_few_of_many_classes_are_best(best, rows, classes, noted):
    ids = (np.arange(rows) % best)[:, None]
    truth = SimpleNamespace(contexts=np.zeros((rows, 1)), ids=ids)
    assert len(seal.describe_alike(classes, truth)) == noted


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
