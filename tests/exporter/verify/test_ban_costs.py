"""From how many bans on exact answers are taken: by times of both ways, which come from the number of bans here."""

from collections import Counter

import numpy as np
import pytest
from shortlist.bundle.settings import DEEP_BANS
from shortlist_exporter.verify import ban_costs
from shortlist_exporter.verify.ban_costs import BANNED, choose_ban_limits

from tests.support.heads.grouped import promise_contexts
from tests.support.layers import make_contexts, make_dense, make_head

ROWS = promise_contexts.contexts[-30:]


def set_times(monkeypatch, own, exact):
    """own: number of bans -> seconds of the head's search."""

    def time_ways(head, contexts, k, bans):
        count = 0 if bans is None else bans.shape[1]
        assert head.manifest.settings.deep_bans >= count, "such rows are left to the exact answers that it is timed by"
        best = head.topk(contexts, max(count, 1), exact=True).ids
        assert bans is None or np.array_equal(bans, best[:, :count])
        return own(count), exact

    monkeypatch.setattr(ban_costs, "time_ways", time_ways)


@pytest.mark.parametrize(
    ("slower_from", "exact", "deep", "most"),
    [(1, 3.0, 0, 0), (20, 3.0, 10, 10), (20, 5.0, 10, None), (101, 5.0, 100, None), (801, 3.0, 800, 800)],
)
def test_exact_answers_are_taken_from_where_they_are_the_faster(
    promise_head, monkeypatch, slower_from, exact, deep, most
):
    set_times(monkeypatch, lambda banned: exact + 1 if banned >= slower_from else 1.0, exact)
    settings = choose_ban_limits(promise_head, ROWS)
    assert (settings.deep_bans, settings.most_bans) == (deep, most)
    rest = settings.model_copy(update={"deep_bans": DEEP_BANS, "most_bans": None})
    assert rest == promise_head.manifest.settings


@pytest.mark.parametrize("bans", [None, np.array([[3, 4], [5, 6]])])
def test_both_ways_are_timed_for_each_row_with_its_own_bans(promise_head, monkeypatch, bans):
    asked = Counter()

    def note(contexts, k, *, ban, exact):
        asked[contexts.tobytes(), k, None if ban is None else tuple(ban), exact] += 1

    monkeypatch.setattr(promise_head, "topk", note)
    own, exact = ban_costs.time_ways(promise_head, ROWS[:2], 5, bans)
    lists = [None, None] if bans is None else map(tuple, bans)
    rows = [(row.tobytes(), 5, ban) for row, ban in zip(ROWS, lists, strict=False)]
    assert asked == {(*row, exact): ban_costs.TIMED_CALLS for row in rows for exact in (False, True)}
    assert min(own, exact) > 0


def test_real_times_give_one_of_the_numbers_that_are_timed(promise_head):
    assert choose_ban_limits(promise_head, ROWS[:2]).deep_bans in (0, *BANNED, DEEP_BANS)


@pytest.mark.parametrize(
    "request_", [{"method": "svd"}, {"method": "grouped", "options": {"promise": "0"}}], ids=["other", "no promise"]
)
def test_other_heads_keep_their_settings(tmp_path, request_):
    head = make_head(tmp_path, make_dense(), make_contexts(400), **request_)
    assert choose_ban_limits(head, make_contexts(9).contexts) is head.manifest.settings


@pytest.mark.parametrize("missing", ["exact", "kernels"])
def test_a_head_without_a_dense_layer_or_loops_keeps_its_settings(promise_head, missing, monkeypatch):
    """Graphs take other times than the loops of the machine that serves."""
    set_times(monkeypatch, lambda banned: 2.0, 1.0)
    monkeypatch.setattr(promise_head, missing, None)
    assert choose_ban_limits(promise_head, ROWS) is promise_head.manifest.settings


@pytest.mark.parametrize("fallback", [True, False])
def test_an_export_keeps_what_was_chosen(tmp_path, monkeypatch, fallback):
    """Where dense may answer, so that the bundle has it."""
    set_times(monkeypatch, lambda banned: 2.0, 1.0)
    request = {"method": "grouped", "options": {}, "fallback": fallback}
    head = make_head(tmp_path, make_dense(2003, 20), make_contexts(2000, 20), **request)
    settings = head.manifest.settings
    assert (settings.deep_bans, settings.most_bans) == ((0, 0) if fallback else (DEEP_BANS, None))
