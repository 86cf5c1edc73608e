"""A server that gathers waits for shards that begin, and says which one never answers."""

import pytest
from shortlist.bundle.reader import Bundle
from shortlist.fleet.ray import gathered_releases
from shortlist.fleet.ray.gathered_releases import GatheredModel
from shortlist.fleet.shards.gathered_head import LostShard
from shortlist.fleet.shards.shard import open_shard
from shortlist.fleet.shards.shard_list import read_shard_list
from shortlist_exporter.export.shard import export_shards

from tests.support.layers import make_contexts, make_dense, make_head

SHARDS = 2
LOST = LostShard("shard 2 of 2 of 'lm' did not answer within 0.5 s")


@pytest.fixture
def folder(tmp_path):
    whole = make_head(tmp_path / "whole", make_dense(), make_contexts(), method="full", options={})
    export_shards(Bundle(whole.folder), SHARDS, tmp_path / "shards", threads=1)
    return tmp_path / "shards"


def make_model(folder, losses):
    """A model whose second shard is lost for so many questions."""
    shards, left = [open_shard(folder, number, threads=1) for number in range(SHARDS)], [losses]

    def ask(message):
        left[0] -= 1
        answers = [shard.answer(message) for shard in shards]
        return answers if left[0] < 0 else [answers[0], LOST]

    return GatheredModel(read_shard_list(folder), folder, ask)


@pytest.mark.slow
def test_shards_that_answer_late_at_the_start_are_waited_for(folder, monkeypatch):
    monkeypatch.setattr(gathered_releases, "RETRY_SECONDS", 0.0)
    model = make_model(folder, losses=3)
    model.load(None, None)
    assert model.state == "ready"


@pytest.mark.slow
def test_a_shard_that_never_answers_is_named(folder, monkeypatch):
    monkeypatch.setattr(gathered_releases, "START_SECONDS", 0.05)
    model = make_model(folder, losses=1000)
    with pytest.raises(LostShard, match="shard 2 of 2 of 'lm' did not answer"):
        model.load(None, None)
    assert model.state != "ready"
