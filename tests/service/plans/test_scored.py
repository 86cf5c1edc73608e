"""`scored` is V only where all classes were scored exactly, and only then is a risk that nothing estimates 0."""

import numpy as np
import pytest

from tests.support.layers import make_contexts, make_dense, make_head

CLASSES = 60  # fewer than candidates, so that int8 rows score all of them
contexts = make_contexts(400)
ROWS = contexts.contexts[-8:]


@pytest.fixture(scope="module", params=["grouped", "cascade"])
def head(request, tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("few"), make_dense(CLASSES), contexts, method=request.param, options={})


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("ban", [None, [3]])
def test_candidates_that_are_all_classes_were_not_all_scored_exactly(head, rows, ban, monkeypatch):
    """By a native call, where there is one, and the long way."""
    at_once = head.topk(ROWS[:rows], 2, ban=ban, risk=True)
    monkeypatch.setattr(head, "row_answers", None)
    told = head.topk(ROWS[:rows], 2, ban=ban, risk=True)
    np.testing.assert_array_equal(at_once.scored, told.scored)
    for top in (at_once, told):
        assert ban or (top.scored == CLASSES - 1).all()
        assert np.isnan(top.risk[top.scored < CLASSES]).all()


def test_graphs_say_so_too(head, monkeypatch):
    monkeypatch.setattr(head, "row_answers", None)
    monkeypatch.setattr(head.plan, "compiled", None, raising=False)
    top = head.topk(ROWS, 2, risk=True)
    assert (top.scored == CLASSES - 1).all()
    assert np.isnan(top.risk).all()


def test_all_classes_scored_exactly_leave_no_risk(head):
    whole = head.with_settings(full_view=CLASSES)
    for rows in (ROWS[:1], ROWS):
        top = whole.topk(rows, 2, risk=True)
        assert (top.scored == CLASSES).all()
        assert (whole.topk(rows, 2).scored == CLASSES).all()
        np.testing.assert_array_equal(top.ids, head.topk(rows, 2, exact=True).ids)


def test_dense_answers_say_all_classes(head):
    top = head.topk(ROWS, 2, exact=True, risk=True)
    assert (top.scored == CLASSES).all()
    assert (top.risk == 0).all()


def test_tied_previews_are_no_exact_scores(tmp_path):
    head = make_head(tmp_path, make_dense(), contexts, method="cascade", options={})
    top = head.topk(np.full((1, ROWS.shape[1]), 1e-42, np.float32), 2, risk=True)
    assert top.scored[0] == head.classes - 1
    assert np.isnan(top.risk).all()
