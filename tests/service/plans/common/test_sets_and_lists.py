"""Named sets answer as the lists of their ids do, on every plan; what they permit is what comes back."""

import numpy as np
import pytest
import shortlist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shortlist.bundle.class_sets import SETS_FOLDER, pack_set, write_set
from shortlist.items.batch import ItemBatch
from shortlist.items.live_head import LiveHead
from shortlist.items.overlay import ItemOverlay
from shortlist_exporter.export import seal

from tests.support.heads import adaptive, ds, mixtape
from tests.support.layers import CLASSES, make_contexts, make_dense, make_head

SEARCHES = {
    "full": {},
    "svd": {"basis": "context", "width": "8", "full_view": "40"},
    "cascade": {},
    "grouped": {"width": "12", "groups": "12", "opened": "200", "previewed": "120", "candidates": "40"},
    "l2s": {"clusters": "6", "budget": "60", "rounds": "0", "second_probe": "0.3", "fallback": "0.2"},
    "l2s with previews": {"clusters": "6", "budget": "90", "rounds": "0", "second_stage": "int8", "full_view": "9"},
}
RANDOM = np.random.default_rng(9)
SETS = {
    "even": np.arange(0, CLASSES, 2),
    "few": RANDOM.choice(CLASSES, 7, replace=False),
    "most": RANDOM.choice(CLASSES, CLASSES - 9, replace=False),
    "none": np.empty(0, np.int64),
    "all": np.arange(CLASSES),
}
NAMES = st.lists(st.sampled_from(list(SETS)), max_size=2)
IDS = st.none() | st.lists(st.integers(-1, CLASSES - 1), min_size=1, max_size=40)


def open_head(method, folder):
    if method in SEARCHES:
        return make_head(folder, make_dense(), make_contexts(600), method=method.split()[0], options=SEARCHES[method])
    if method == "adaptive":
        return adaptive.make(folder)
    return ds.exported(folder, ds.make_module()) if method == "ds" else mixtape.make(folder)[0]


@pytest.fixture(scope="module", params=[*SEARCHES, "adaptive", "ds", "mixtape"])
def head(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:  # of two ways to answer a list, a busy machine may measure either
        patch.setattr(seal, "measure_list_costs", lambda head, contexts: None)
        head = open_head(request.param, tmp_path_factory.mktemp(request.param))
    for name, ids in SETS.items():
        write_set(head.folder.parent / SETS_FOLDER, name, pack_set(ids[ids < head.classes]))
    return shortlist.load(head.folder, threads=1)


def list_legal(classes, within, without, allow, ban):
    """The ids that sets and lists leave, ascending."""
    legal = set(range(classes)) if allow is None else set(allow) - {-1}
    for name in within:
        legal &= set(SETS[name].tolist())
    for name in without:
        legal -= set(SETS[name].tolist())
    return sorted(legal - set(ban or []))


def answer(head, rows, k, legal, exact):
    """By the shorter list: of the ids, padded where there are none, or of all others."""
    if 2 * len(legal) <= head.classes:
        return head.topk(rows, k, allow=legal or [-1], exact=exact)
    return head.topk(rows, k, ban=sorted(set(range(head.classes)) - set(legal)) or [-1], exact=exact)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES, NAMES, IDS, IDS, st.integers(1, 60), st.booleans(), st.integers(1, 3))
def test_sets_are_the_lists_of_their_ids(head, within, without, allow, ban, k, exact, rows):
    contexts = make_contexts(rows, head.manifest.dim, seed=k).contexts
    legal = list_legal(head.classes, within, without, allow, ban)
    sets = head.topk(contexts, k, within=within, without=without, allow=allow, ban=ban, exact=exact)
    assert set(sets.ids[sets.ids >= 0].tolist()) <= set(legal)
    assert ((sets.ids >= 0).sum(axis=1) == min(k, len(legal))).all() or head.manifest.reference == "self"
    if exact or head.manifest.plan == "full" or (allow is None and ban is None):
        lists = answer(head, contexts, k, legal, exact)
        np.testing.assert_array_equal(sets.ids, lists.ids)
        np.testing.assert_allclose(sets.logprobs, lists.logprobs, atol=1e-5)


@pytest.mark.parametrize("k", [1, 2, 7, 12, 20, 33, 60])
def test_a_ban_of_nothing_changes_nothing(head, k):
    contexts = make_contexts(20, head.manifest.dim, seed=k).contexts
    plain, banned = head.topk(contexts, k), head.topk(contexts, k, ban=[-1])
    np.testing.assert_array_equal(banned.ids, plain.ids)
    np.testing.assert_allclose(banned.logprobs, plain.logprobs, atol=1e-5)


LISTS = {
    "bans of every other row": ("ban", [[] if row % 2 else [3, 50 + row, 200] for row in range(12)]),
    "many bans of some": ("ban", [list(range(row, 200)) if row % 3 == 0 else [] for row in range(12)]),
    "bans of all rows": ("ban", [[row, 2 * row + 1] for row in range(12)]),
    "bans of any length": ("ban", [list(range(15 * row)) for row in range(12)]),
    "lists of all rows": ("allow", [list(range(row, 200 + row)) for row in range(12)]),
}


def check_rows_alone(head, option, lists, k):
    """Each row is answered as by itself."""
    contexts = make_contexts(len(lists), head.manifest.dim, seed=k).contexts
    top = head.topk(contexts, k, **{option: lists})
    for row, ids in enumerate(lists):
        alone = head.topk(contexts[row : row + 1], k, **({option: ids} if ids else {}))
        np.testing.assert_array_equal(top.ids[row], alone.ids[0])
        np.testing.assert_allclose(top.logprobs[row], alone.logprobs[0], rtol=2e-6, atol=3e-5)
        assert top.scored[row] == alone.scored[0]


@pytest.mark.parametrize("k", [1, 7, 20, 60])
@pytest.mark.parametrize("name", LISTS)
def test_a_row_with_lists_is_answered_as_alone(head, name, k):
    option, lists = LISTS[name]
    check_rows_alone(head, option, [[id for id in ids if id < head.classes] for ids in lists], k)


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("banned", [3, 250])
def test_a_row_without_bans_beside_others_is_answered_as_alone_with_changed_items(head, banned, k):
    if head.exact_rows is None:
        pytest.skip("a head that is its own reference takes no changes")
    items = ItemOverlay(head.manifest, head.names, 0, 1, head.exact_rows.loops)
    vectors = np.random.default_rng(1).standard_normal((40, head.manifest.dim)).astype(np.float32)
    items.apply(1, [ItemBatch.make(list(range(head.classes, head.classes + 40)), vectors, [5, 6, 7])])
    lists = [[] if row % 2 else list(range(banned)) for row in range(60)]
    check_rows_alone(LiveHead.make(head, items), "ban", lists, k)
