"""Changed items are merged with what a search of the export's classes found: natively as by all logits."""

from dataclasses import replace

import numpy as np
import pytest
from shortlist.core.filters import Members
from shortlist.items import search
from shortlist.items.batch import ItemBatch
from shortlist.items.live_head import LiveHead
from shortlist.items.overlay import ItemOverlay, Snapshot

from tests.support.heads import grouped


def test_many_removed_classes_weigh_by_previews_what_they_weigh_exactly(promise_head, monkeypatch):
    """Normalisers that are estimates lose what exact ones lose, but for the rounding of previews."""
    head, rows = promise_head, grouped.promise_contexts.contexts[:40]
    overlay = ItemOverlay(head.manifest, head.names, 0, 1, head.exact_rows.loops)
    live = LiveHead.make(head, overlay)
    removed = np.random.default_rng(0).permutation(grouped.PROMISE_CLASSES)[:3000].tolist()
    for position, start in enumerate(range(0, 3000, 500)):
        overlay.apply(position + 1, [ItemBatch.make([], np.empty((0, 0), np.float32), removed[start : start + 500])])
    near, exact = live.topk(rows, 3), live.topk(rows, 3, exact=True)
    assert overlay.snapshot.hidden_rows.struct.previews
    forget_loops(overlay, monkeypatch)
    np.testing.assert_allclose(near.logprobs, live.topk(rows, 3).logprobs, atol=0.003)
    np.testing.assert_array_equal(exact.logprobs, live.topk(rows, 3, exact=True).logprobs)
    assert not np.isin(near.ids, removed).any()


def forget_loops(overlay, monkeypatch):
    """Let answers go by all logits from now on; a snapshot keeps the loops that it has opened."""
    for name in ("merge", "hidden_rows"):
        monkeypatch.setattr(Snapshot, name, None)
    overlay.snapshot = replace(overlay.snapshot)


@pytest.fixture
def many_items(promise_head, monkeypatch):
    """A head with 3,000 added items, some of which were replaced or removed since, that are found by previews."""
    monkeypatch.setattr("shortlist.items.table.MIN_PREVIEWED_ITEMS", 1000)
    overlay = ItemOverlay(promise_head.manifest, promise_head.names, 0, 1, promise_head.exact_rows.loops)
    first, random = grouped.PROMISE_CLASSES, np.random.default_rng(1)

    def put(ids, removed=()):
        vectors = random.standard_normal((len(ids), promise_head.manifest.dim)).astype(np.float32)
        overlay.apply(overlay.position + 1, [ItemBatch.make(list(ids), vectors, list(removed))])

    put(range(first, first + 3000))
    put(range(first + 100, first + 200), removed=range(first, first + 100))
    assert overlay.snapshot.table.open_rows(overlay.snapshot.size, 2).struct.previews
    return LiveHead.make(promise_head, overlay)


@pytest.mark.parametrize("hides", [False, True])
@pytest.mark.parametrize("k", [1, 10, 200])
def test_native_merges_equal_those_by_all_logits(many_items, monkeypatch, k, hides):
    """Of rows with lists that ban or without, with many items and few, with hidden classes and without."""
    rows = grouped.promise_contexts.contexts[:40]
    if hides:
        best = many_items.topk(rows, 3).ids
        gone = np.unique(best[best < grouped.PROMISE_CLASSES])[:300].tolist()
        batch = ItemBatch.make([], np.empty((0, 0), np.float32), gone)
        many_items.items.apply(many_items.items.position + 1, [batch])
    asked = {
        "none": {},
        "one for all": {"ban": many_items.topk(rows, 5).ids[0]},
        "by row": {"ban": many_items.topk(rows, 5).ids[:, :3]},
        "of many lengths": {"ban": [ids[: row % 4].tolist() for row, ids in enumerate(many_items.topk(rows, 5).ids)]},
    }
    near = {name: many_items.topk(rows, k, **lists) for name, lists in asked.items()}
    assert (near["none"].ids >= grouped.PROMISE_CLASSES).any()
    forget_loops(many_items.items, monkeypatch)
    for name, lists in asked.items():
        expected = many_items.topk(rows, k, **lists)
        np.testing.assert_array_equal(near[name].ids, expected.ids, err_msg=name)
        np.testing.assert_allclose(near[name].logprobs, expected.logprobs, atol=0.003, err_msg=name)
        np.testing.assert_array_equal(near[name].scored, expected.scored)
        np.testing.assert_array_equal(near[name].risk, expected.risk)


def test_native_merges_leave_rows_that_they_cannot_decide(many_items, monkeypatch):
    """The hundred best classes of one row are removed, so that too few of those found are left."""
    rows, calls = grouped.promise_contexts.contexts[:40], []
    merge_base = search.merge_base
    monkeypatch.setattr(search, "merge_base", lambda *given: calls.append(len(given[2].contexts)) or merge_base(*given))
    gone = many_items.topk(rows[:1], 100, allow=np.arange(grouped.PROMISE_CLASSES)).ids[0].tolist()
    batch = ItemBatch.make([], np.empty((0, 0), np.float32), gone)
    many_items.items.apply(many_items.items.position + 1, [batch])
    near = many_items.topk(rows, 20)
    assert 0 < sum(calls) < 40
    alone = [many_items.topk(row[None], 20).ids[0] for row in rows]
    np.testing.assert_array_equal(alone, near.ids)
    forget_loops(many_items.items, monkeypatch)
    expected = many_items.topk(rows, 20)
    np.testing.assert_array_equal(near.ids, expected.ids)
    np.testing.assert_allclose(near.logprobs, expected.logprobs, atol=0.003)


def test_added_items_are_none_of_the_marked_classes_of_the_export(many_items, monkeypatch):
    """A set that leaves two classes out answers as a ban of these, however many items were added."""
    monkeypatch.setattr(many_items.plan, "most_listed", 100)
    rows, gone = (
        grouped.promise_contexts.contexts[:64],
        many_items.topk(grouped.promise_contexts.contexts[-1:], 2).ids[0],
    )
    marks = np.ones(grouped.PROMISE_CLASSES, bool)
    marks[gone] = False
    monkeypatch.setattr(many_items.sets, "find", lambda within, without: Members(marks))
    without, banned = many_items.topk(rows, 30, without="two"), many_items.topk(rows, 30, ban=gone)
    assert not np.isin(without.ids, gone).any()
    assert np.mean([np.isin(*pair).mean() for pair in zip(banned.ids, without.ids, strict=True)]) > 0.99


def test_items_that_previews_do_not_tell_apart_are_all_scored(many_items, monkeypatch):
    """Equal vectors tie by the lower id, though previews hold only so many of them."""
    row, overlay = grouped.promise_contexts.contexts[:1], many_items.items
    ids = list(range(overlay.classes, overlay.classes + 500))
    vectors = np.repeat(3 * row, len(ids), axis=0)
    overlay.apply(overlay.position + 1, [ItemBatch.make(ids[::-1], vectors, [])])
    assert overlay.snapshot.table.open_rows(overlay.snapshot.size, 0).struct.previews
    np.testing.assert_array_equal(many_items.topk(row, 10).ids[0], ids[:10])
