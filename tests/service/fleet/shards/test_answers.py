"""A shard whose answer is none to the question is lost, and the sentence names it."""

import numpy as np
import pytest
from safetensors.numpy import load, save
from shortlist.bundle.reader import Bundle
from shortlist.core.filters import UNRESTRICTED
from shortlist.errors import NotReady
from shortlist.fleet.shards.gathered_head import GatheredHead, LostShard
from shortlist.fleet.shards.shard import open_shard
from shortlist.fleet.shards.shard_list import read_shard_list
from shortlist_exporter.export.shard import export_shards

from tests.support.layers import make_contexts, make_dense, make_head

ROWS = make_contexts().contexts[:3]
K = 4


def change(**changes):
    """What makes another answer of a shard's: its arrays changed each by a function; those without one are left."""

    def make(message):
        arrays = load(message)
        return save({name: np.ascontiguousarray(changes.get(name, lambda a: a)(a)) for name, a in arrays.items()})

    return make


def leave_out(name):
    return lambda message: save({key: array for key, array in load(message).items() if key != name})


def blank(array):
    return np.full_like(array, np.nan)


WRONG = {  # what is wrong, and a part of the sentence
    "nothing": (lambda message: b"", "no message of arrays"),
    "a page of a proxy": (lambda message: b"<html>bad gateway</html>" * 40, "no message of arrays"),
    "half of it": (lambda message: message[: len(message) // 2], "no message of arrays"),
    "no bytes at all": (lambda message: None, "no message of arrays"),
    "JSON": (lambda message: {"ids": [[1]]}, "no message of arrays"),
    "a missing array": (leave_out("scored"), "scored is missing"),
    "a row less": (change(ids=lambda a: a[1:]), r"ids is int64 \[2, 4\] in place of int64 \[3, 4\]"),
    "a class less": (change(logits=lambda a: a[:, 1:]), r"logits is float32 \[3, 3\]"),
    "ids of another type": (change(ids=lambda a: a.astype(np.float32)), "ids is float32"),
    "ids of another shard": (change(ids=lambda a: a - 1000), "ids are not all from"),
    "NaN": (change(logits=blank), "logits has NaN"),
    "no normaliser": (change(log_normalizer=blank), "log_normalizer has NaN"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("garbled")
    whole = make_head(path / "whole", make_dense(), make_contexts(), method="full", options={})
    export_shards(Bundle(whole.folder), 2, path / "shards", threads=1)
    return path / "shards"


@pytest.fixture(scope="module")
def shards(folder):
    return [open_shard(folder, number, threads=1) for number in range(2)]


def gather(folder, shards, garble):
    """A head whose second shard's answers are changed."""
    return GatheredHead(
        folder, read_shard_list(folder), lambda message: [shards[0].answer(message), garble(shards[1].answer(message))]
    )


@pytest.mark.parametrize("wrong", WRONG)
def test_a_shard_with_a_wrong_answer_is_lost_and_named(folder, shards, wrong):
    garble, part = WRONG[wrong]
    head = gather(folder, shards, garble)
    with pytest.raises(LostShard, match=rf"^shard 2 of 2 of 'lm' answered what cannot be merged \(.*{part}") as caught:
        head.topk(ROWS, K)
    assert isinstance(caught.value, NotReady)
    assert caught.value.status == 503
    result = head.run(head.plan.tolerate_loss(), ROWS, K, UNRESTRICTED)
    start, stop = shards[0].part
    assert result.coverage == pytest.approx((stop - start) / head.manifest.classes)
    assert (result.ids < stop).all()


@pytest.mark.parametrize("garble", [lambda message: b"x", change(logits=lambda a: a[:, :1]), change(logits=blank)])
def test_logits_that_are_none_are_a_lost_shard(folder, shards, garble):
    with pytest.raises(LostShard, match="shard 2 of 2"):
        gather(folder, shards, garble).logprobs(ROWS, [1, 2])


def test_right_answers_are_read(folder, shards):
    assert gather(folder, shards, lambda message: message).topk(ROWS, K, exact=True).ids.shape == (3, K)
