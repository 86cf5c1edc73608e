"""A head whose shards are asked by messages answers as the whole head does, and says what it lost."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.bundle.class_sets import SETS_FOLDER, pack_set, write_set
from shortlist.bundle.reader import Bundle
from shortlist.core.filters import ClassFilter
from shortlist.core.row_lists import RowLists
from shortlist.errors import NotFound, Unsupported
from shortlist.evaluation import evaluate
from shortlist.fleet.shards.exchange import Question, flatten_filter, pack_question, unpack_question
from shortlist.fleet.shards.gathered_head import GatheredHead, LostShard
from shortlist.fleet.shards.shard import OtherCut, open_shard
from shortlist.fleet.shards.shard_list import read_shard_list
from shortlist_exporter.export.shard import export_shards
from shortlist_exporter.graphs import builder

from tests.service.fleet.shards.test_sharded_head import CLASSES, DIM, QUESTIONS, make_tied_layer
from tests.support.layers import make_contexts, make_dense, make_head

CONTEXTS = make_contexts(rows=300, dim=DIM, seed=11).contexts


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(builder, "INLINE_BYTES", 128)  # weights in files of their own, as larger layers have them
        yield make_head(folder, make_tied_layer(), make_contexts(dim=DIM), method="full", options={})


@pytest.fixture(scope="module")
def folder(whole, tmp_path_factory):
    out = tmp_path_factory.mktemp("shards")
    export_shards(Bundle(whole.folder), 3, out, threads=1)
    return out


@pytest.fixture(scope="module")
def shards(folder):
    return [open_shard(folder, number, threads=1) for number in range(3)]


def gather(folder, shards, lost=()):
    def ask(message):
        return [
            LostShard(f"shard {number} is lost") if number in lost else shard.answer(message)
            for number, shard in enumerate(shards)
        ]

    return GatheredHead(folder, read_shard_list(folder), ask)


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_those_of_the_whole_head(whole, folder, shards, question):
    expected = whole.topk(CONTEXTS, 5, exact=True, **QUESTIONS[question])
    answers = gather(folder, shards).topk(CONTEXTS, 5, exact=True, **QUESTIONS[question])
    assert np.array_equal(answers.ids, expected.ids)
    finite = np.isfinite(expected.logprobs)
    assert np.abs(answers.logprobs[finite] - expected.logprobs[finite]).max() < 1e-5
    assert answers.coverage == 1


@pytest.mark.slow
def test_what_cannot_be_measured_is_said(folder, shards):
    evaluation = evaluate(gather(folder, shards), CONTEXTS[:5])
    assert evaluation.precision is None
    assert "is in shards, which give no logits of all classes: there is no truth, so no P@k" in evaluation.missing[0]


@pytest.mark.slow
def test_named_sets_hold_in_all_shards(whole, folder, shards):
    for name, ids in {"even": range(0, CLASSES, 2), "low": range(90)}.items():
        for place in (whole.folder.parent, folder):
            write_set(place / SETS_FOLDER, name, pack_set(ids))
    for sets in ({"within": "even"}, {"without": ["even", "low"]}, {"within": "low", "without": "even", "ban": [1, 3]}):
        expected = whole.topk(CONTEXTS[:20], 60, exact=True, **sets)
        answers = gather(folder, shards).topk(CONTEXTS[:20], 60, exact=True, **sets)
        assert np.array_equal(answers.ids, expected.ids)
    with pytest.raises(NotFound, match="no set 'odd'"):
        gather(folder, shards).topk(CONTEXTS[:1], 1, within="odd")


@pytest.mark.slow
def test_log_probabilities_of_given_ids_are_those_of_the_whole_head(whole, folder, shards):
    ids = np.random.default_rng(0).integers(-1, CLASSES, (len(CONTEXTS), 7))
    expected = whole.logprobs(CONTEXTS, ids)
    answers = gather(folder, shards).logprobs(CONTEXTS, ids)
    finite = np.isfinite(expected)
    assert np.array_equal(finite, np.isfinite(answers))
    assert np.abs(answers[finite] - expected[finite]).max() < 1e-5


@pytest.mark.slow
def test_a_lost_shard_is_an_error_or_a_part_is_answered(folder, shards):
    head = gather(folder, shards, lost=[1])
    with pytest.raises(LostShard, match="shard 1 is lost"):
        head.topk(CONTEXTS[:2], 5)
    start, stop = shards[1].part
    others = np.concatenate([np.arange(start), np.arange(stop, CLASSES)])
    expected = gather(folder, shards).topk(CONTEXTS, 5, allow=others)
    part = head.run(head.plan.tolerate_loss(), CONTEXTS, 5, ClassFilter())
    assert np.array_equal(part.ids, expected.ids)
    assert part.coverage == pytest.approx(1 - (stop - start) / CLASSES)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_shards_of_another_cut_or_version_are_not_merged(folder, shards, tmp_path, count):
    """As while servers of one version ask shards of the next: the merge would be neither's answer."""
    other = make_head(tmp_path, make_dense(CLASSES, DIM), make_contexts(dim=DIM), method="full", options={})
    export_shards(Bundle(other.folder), count, tmp_path / "other", threads=1)
    mixed = [*shards[:-1], open_shard(tmp_path / "other", count - 1, threads=1)]
    with pytest.raises(OtherCut, match="is of another version or cut"):
        gather(folder, mixed).topk(CONTEXTS[:2], 5)
    with pytest.raises(OtherCut):
        gather(folder, mixed).logprobs(CONTEXTS[:2], [1, 2])


@pytest.mark.slow
def test_with_all_shards_lost_nothing_is_answered(folder, shards):
    head = gather(folder, shards, lost=[0, 1, 2])
    with pytest.raises(LostShard):
        head.run(head.plan.tolerate_loss(), CONTEXTS, 5, ClassFilter())


@pytest.mark.slow
def test_draws_from_all_classes_are_refused_and_from_the_best_the_same(whole, folder, shards):
    head = gather(folder, shards)
    with pytest.raises(Unsupported, match="give a k"):
        head.sample(CONTEXTS[:3], seed=1)
    expected = whole.sample(CONTEXTS, seed=1, top_k=20)
    assert np.array_equal(head.sample(CONTEXTS, seed=1, top_k=20).ids, expected.ids)


@pytest.mark.slow
def test_no_rows_ask_nobody(folder):
    def refuse(message):
        raise AssertionError("asked")

    head = GatheredHead(folder, read_shard_list(folder), refuse)
    assert head.topk(np.empty((0, DIM), np.float32), 5).ids.shape == (0, 5)


def test_forced_and_hidden_classes_become_lists():
    class_filter = ClassFilter(
        allow=np.array([[1, 2, 3]]), hidden=np.array([[2, -1], [3, 4]]), forced=np.array([-1, 9])
    )
    flat = flatten_filter(class_filter, 2)
    for row in range(2):
        ids = np.arange(12)
        assert np.array_equal(flat.mask(ids, row), class_filter.mask(ids, row))
    assert flat.hidden is None
    assert flat.forced is None


def test_a_question_survives_its_message():
    lists = RowLists.from_lists([[3, 1], [7]], [1, 0, -1])
    question = Question(
        np.ones((3, 2), np.float32), 4, exact=True, class_filter=ClassFilter(lists, np.array([[5, -1]]))
    )
    other = unpack_question(pack_question(question))
    assert (other.k, other.exact) == (4, True)
    assert np.array_equal(other.contexts, question.contexts)
    assert [other.class_filter.allow_list(row) for row in (2,)] == [None]
    assert other.class_filter.allow_list(1).tolist() == [3, 1]
    assert other.class_filter.ban.tolist() == [[5, -1]]
    assert other.bias is None
