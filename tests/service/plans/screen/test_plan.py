"""Plan `screen` through the real runtime: how few of its own functions one request passes."""

import sys
from collections.abc import Callable
from inspect import CO_GENERATOR
from pathlib import Path

import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist.plans.screen import plan as screen_plan

from tests.support.layers import CLASSES, logprobs_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

FOLDER = str(Path(screen_plan.__file__).parent)
OPTIONS = {"clusters": "6", "budget": "40", "rounds": "0", "epochs": "1"}
FORMS = {
    "one cluster": {},
    "two clusters": {"probes": "2"},
    "second stage": {"second_stage": "int8", "width": "12", "full_view": "30", "probes": "2"},
    "fall-back": {"fallback": "0.3", "second_probe": "0.3"},
}
PARTS = "ids", "logprobs", "scored"
contexts = make_contexts(400)
rows = contexts.contexts[-64:]


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    dense = make_dense()
    return {
        form: make_head(tmp_path_factory.mktemp("l2s"), dense, contexts, method="l2s", options=OPTIONS | options)
        for form, options in FORMS.items()
    }


def count_calls(call: Callable[[], object]) -> int:
    """Calls from a function of the folder to one of the folder, comprehensions apart."""
    count = 0

    def is_inside(code):
        return code.co_filename.startswith(FOLDER) and (code.co_name == "<lambda>" or code.co_name[0] != "<")

    def note(frame, event, _):
        nonlocal count
        if event == "call" and is_inside(frame.f_code) and not frame.f_code.co_flags & CO_GENERATOR:
            caller = frame.f_back
            while caller is not None and caller.f_code.co_name in ("<listcomp>", "<genexpr>"):
                caller = caller.f_back
            count += caller is not None and is_inside(caller.f_code)

    call()  # unions of sets are remembered from now on
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    ("form", "loops", "count", "k", "lists", "most"),
    [
        ("one cluster", True, 1, 5, {}, 0),
        ("one cluster", True, 64, 5, {}, 0),
        ("fall-back", True, 64, 5, {}, 1),
        ("one cluster", False, 1, 5, {}, 2),
        ("two clusters", False, 1, 5, {}, 3),
        ("one cluster", False, 64, 5, {}, 4 + 6),  # a call a cluster
        ("two clusters", False, 64, 5, {}, 4 + 2 * 64),
        ("one cluster", True, 1, 70, {}, 6),  # k over every set
        ("one cluster", True, 1, 5, {"allow": [3, 99, 200]}, 4),
        ("two clusters", True, 64, 5, {"ban": [3, 99, 200]}, 2 + 2 * 64),
        ("second stage", False, 1, 5, {}, 5),
        ("second stage", False, 64, 5, {}, 4 + 2 * 64),
    ],
)
def test_a_request_passes_few_functions(heads, form, loops, count, k, lists, most, monkeypatch):
    """Half of the calls of a plan whose functions wrote into a result that they were given, or fewer."""
    head = heads[form]
    if not loops:
        monkeypatch.setattr(head.plan, "loops", None)
    assert count_calls(lambda: head.topk(rows[:count], k, **lists)) <= most


@pytest.mark.parametrize("form", FORMS)
def test_no_rows_have_no_answers(heads, form):
    for lists in ({}, {"ban": [3]}):
        top = heads[form].topk(rows[:0], 4, **lists)
        assert (top.ids.shape, top.logprobs.shape, top.scored.shape) == ((0, 4), (0, 4), (0,))


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_into_an_answer_changes_no_other(heads, form, loops, monkeypatch):
    """Results are written into where other ways answer some rows: sizes of sets were overwritten so."""
    if not loops:
        monkeypatch.setattr(heads[form].plan, "loops", None)
    for count in (1, 64):
        top = heads[form].topk_by_plan(rows[:count], 5)
        scored = top.scored.copy()
        top.scored[:] = CLASSES - 1
        np.testing.assert_array_equal(heads[form].topk_by_plan(rows[:count], 5).scored, scored)


@pytest.mark.parametrize("form", FORMS)
def test_chunks_of_rows_are_the_rows(heads, form, monkeypatch):
    """Also where some rows of a chunk go to dense, or open more clusters."""
    plan = heads[form].plan
    together = heads[form].topk_by_plan(rows, 70)
    monkeypatch.setattr(plan, "most_rows", 5)
    by_chunks = heads[form].topk_by_plan(rows, 70)
    np.testing.assert_array_equal(by_chunks.ids, together.ids)
    np.testing.assert_allclose(by_chunks.logprobs, together.logprobs, atol=1e-4)
    np.testing.assert_array_equal(by_chunks.scored, together.scored)
    assert (together.scored >= 70).all()
    assert (together.scored == CLASSES).any() == (form == "fall-back")


@pytest.mark.parametrize("form", ["one cluster", "two clusters", "fall-back"])
def test_a_ban_that_takes_nothing_away_changes_no_answer(heads, form):
    """Rows that go to dense go there with lists, too. A second stage, which is not tried, scores more with lists."""
    plain, banned = heads[form].topk(rows, 4), heads[form].topk(rows, 4, ban=[-1])
    np.testing.assert_array_equal(banned.ids, plain.ids)
    np.testing.assert_allclose(banned.logprobs, plain.logprobs, atol=1e-4)
    np.testing.assert_array_equal(banned.scored, plain.scored)


def test_rows_that_go_to_dense_keep_their_own_lists(heads):
    head = heads["fall-back"]
    best = head.topk(rows, 2)
    assert 0 < (best.scored == CLASSES).sum() < len(rows)
    banned = head.topk(rows, 1, ban=best.ids[:, :1])
    by_dense = best.scored == CLASSES
    np.testing.assert_array_equal(banned.ids[by_dense, 0], best.ids[by_dense, 1])
    np.testing.assert_allclose(banned.logprobs[by_dense, 0], best.logprobs[by_dense, 1], atol=1e-4)


def test_a_full_view_is_of_a_second_stage(heads):
    staged = 0
    for head in heads.values():
        if head.manifest.settings.second_stage:
            assert head.with_settings(full_view=9).plan.settings.full_view == 9
            staged += 1
        else:
            with pytest.raises(BadInput, match="'full_view' would change nothing: this head has no previews"):
                head.with_settings(full_view=9)
    assert 0 < staged < len(heads)


def test_a_class_that_all_rows_ask_for_is_looked_up_once_a_cluster(heads, monkeypatch):
    head, looks = heads["one cluster"], []
    misses = head.plan.misses
    monkeypatch.setattr(head.plan, "misses", lambda route, ids: looks.append((route, *ids)) or misses(route, ids))
    together = head.logprobs(rows, [7])
    assert 1 <= len(looks) == len(set(looks)) <= 6
    monkeypatch.undo()
    np.testing.assert_allclose(together, np.concatenate([head.logprobs(row[None], [7]) for row in rows]), atol=1e-5)


@pytest.mark.parametrize("way", ["loops", "single row", "graphs"])
def test_two_clusters_that_hold_all_classes_leave_nothing_to_estimate(tmp_path, way, prove_small_layers):
    dense = make_dense(9)
    options = {"clusters": "3", "budget": "5", "rounds": "0", "epochs": "1", "probes": "2"}
    head = make_head(tmp_path, dense, contexts, method="l2s", options=options)
    assert head.plan.loops is not None
    head.plan.loops = head.plan.loops if way == "loops" else None
    count = 1 if way == "single row" else len(rows)
    tops = [head.topk_by_plan(rows[i : i + count], 2) for i in range(0, len(rows), count)]
    ids, logprobs, scored = (np.concatenate([getattr(top, name) for top in tops]) for name in PARTS)
    is_whole = scored == 9
    assert 0 < is_whole.sum() < len(rows)
    wanted = np.take_along_axis(logprobs_of(dense, rows), ids, axis=1)
    np.testing.assert_allclose(logprobs[is_whole], wanted[is_whole], atol=1e-5)
