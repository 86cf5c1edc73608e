"""Rows of plan `screen`: compiled loops against the graphs, through the real runtime."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.bundle.reader import Bundle
from shortlist.bundle.writer import seal
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import TopK
from shortlist.errors import BadInput, BundleError
from shortlist.head import Head
from shortlist.kernels.native.library import open_target
from shortlist.kernels.screen import ChoicePreviews, Loops
from shortlist.kernels.unscored import TO_DENSE, TO_GRAPHS
from shortlist.plans.common.base import MAX_SETS_K
from shortlist.plans.screen.gated import MAX_LOOP_ROWS
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_models.ds.softmax import DSOptions, DSSoftmax

from tests.support.kernels import list_targets
from tests.support.layers import CLASSES, DIM, copy_writable, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

SCREEN = {"clusters": "6", "budget": "60", "rounds": "0", "epochs": "1"}
BIAS = np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32)
SCREENS = {
    "plain": ({}, {}),
    "bias, scale, soft cap, padding": (
        {"bias": BIAS, "logit_scale": 0.7, "soft_cap": 30.0, "padded": np.array([5, 17])},
        {"second_probe": "0.4"},
    ),
    "soft cap": ({"soft_cap": 40.0}, {"probes": "2"}),
    "scale": ({"logit_scale": 1.5}, {"probes": "3"}),
    "bias, one cluster": ({"bias": BIAS}, {"clusters": "1", "budget": "40"}),
    "fall-back": ({"bias": BIAS}, {"fallback": "0.3", "second_probe": "0.3"}),
    "d = 19": ({"dim": 19}, {"second_probe": "0.4"}),
    "equal logits": ({"dim": 19}, {"second_probe": "0.4"}),
}
GATES = {"four experts": ((40, 90, 25, 60), DIM), "one expert": ((70,), 19), "small experts": ((10, 12, 300), 3)}
seeds = st.integers(0, 1 << 32)


@pytest.fixture(scope="module", params=SCREENS)
def screen(request, tmp_path_factory):
    layer, options = SCREENS[request.param]
    dense = make_dense(**layer)
    contexts = make_contexts(300, dense.dim)
    if request.param == "equal logits":  # whole numbers: sums are exact in any order, and few are different
        dense, contexts = Dense(np.round(dense.weight)), Contexts(np.round(contexts.contexts / 4))
    folder = tmp_path_factory.mktemp("screen")
    head = make_head(folder, dense, contexts, method="l2s", options=SCREEN | options, fallback=True)
    head.manifest = head.manifest.model_copy(update={"dense_crossover": None})  # it was measured beside other tests
    return head, contexts.contexts[:80]


@pytest.fixture(scope="module", params=GATES)
def gate(request, tmp_path_factory):
    sizes, dim = GATES[request.param]
    random = torch.Generator().manual_seed(0)
    ids = [torch.randperm(CLASSES, generator=random)[:size].sort().values for size in sizes]
    weight, bias = torch.randn(sum(sizes), dim, generator=random), torch.randn(sum(sizes), generator=random)
    gates = torch.randn(len(sizes), dim, generator=random)
    module = DSSoftmax(weight, bias, gates, ids, CLASSES, DSOptions())
    contexts = make_contexts(300, dim)
    folder = tmp_path_factory.mktemp("gate")
    head = make_head(folder, make_dense(dim=dim), contexts, method="ds", options={}, head=module)
    return head, contexts.contexts[:80]


def assert_equal_to_graphs(head, rows, k, monkeypatch):
    """Row by row, and all together, which is not what every plan takes for loops."""
    assert head.plan.loops is not None
    calls = [*(row[None] for row in rows), rows]
    compiled = [head.topk_by_plan(call, k) for call in calls]
    with monkeypatch.context() as patched:
        patched.setattr(head.plan, "loops", None)
        for call, result in zip(calls, compiled, strict=True):
            assert_same(result, head.topk_by_plan(call, k))


def assert_same(result, wanted):
    np.testing.assert_array_equal(result.ids, wanted.ids)
    np.testing.assert_allclose(result.logprobs, wanted.logprobs, atol=1e-4)
    np.testing.assert_array_equal(result.scored, wanted.scored)
    assert (result.ids.dtype, result.scored.dtype) == (wanted.ids.dtype, wanted.scored.dtype)


@pytest.mark.parametrize("k", [1, 5, "most"])
def test_a_screen_by_loops_equals_its_graphs(screen, k, monkeypatch):
    head, rows = screen
    assert_equal_to_graphs(head, rows, k if k != "most" else min(MAX_SETS_K, head.plan.sets.smallest), monkeypatch)


@pytest.mark.parametrize("k", [1, "most"])
def test_a_gate_by_loops_equals_its_graphs(gate, k, monkeypatch):
    head, rows = gate
    assert_equal_to_graphs(head, rows, k if k != "most" else min(MAX_SETS_K, head.plan.sets.smallest), monkeypatch)


@pytest.mark.parametrize("count", [3, MAX_LOOP_ROWS])
def test_rows_at_once_are_rows_alone_through_a_gate(gate, count):
    head, rows = gate
    assert_as_alone(head, rows[:count], np.ones(count, bool))


def test_rows_at_once_are_rows_alone_through_a_screen(screen):
    head, rows = screen
    plan = head.plan
    scored = plan.loops.score(rows, 1, plan.settings, plan.fallback is not None, 0).scored
    assert (scored == TO_GRAPHS).any() == (scored == TO_GRAPHS).all() == (plan.settings.probes > 2)
    assert (scored == TO_DENSE).any() == (plan.settings.dense_margin > 0)
    assert_as_alone(head, rows, scored > 0)


def assert_as_alone(head, rows, to_the_last_bit):
    together = head.topk_by_plan(rows, 1)
    for row, same in enumerate(to_the_last_bit):
        alone = head.topk_by_plan(rows[row : row + 1], 1)
        np.testing.assert_array_equal(alone.ids[0], together.ids[row])
        np.testing.assert_allclose(alone.logprobs[0], together.logprobs[row], atol=0 if same else 1e-4, rtol=0)
        assert alone.scored[0] == together.scored[row]


def test_rows_come_some_at_a_time_where_they_are_many(screen, monkeypatch):
    """Those that loops leave, those of dense, and those with lists of their own."""
    head, rows = screen
    many, ban = np.concatenate([rows] * 4), np.arange(len(rows) * 4 * 3).reshape(-1, 3) % CLASSES
    plain, banned = head.topk(many, 5), head.topk(many, 5, ban=ban)
    with monkeypatch.context() as patched:
        patched.setattr(head.plan, "most_rows", 7)
        if head.plan.fallback is not None:
            patched.setattr(head.plan.fallback, "max_rows", lambda: 3)
        assert_same(head.topk(many, 5), plain)
        assert_same(head.topk(many, 5, ban=ban), banned)
    assert not (banned.ids[:, :, None] == ban[:, None]).any()
    for row in range(0, len(many), 50):
        assert_same(head.topk(many[row : row + 1], 5, ban=ban[row : row + 1]), taken(banned, row))


def taken(answer, row):
    part = slice(row, row + 1)
    return TopK(answer.ids[part], answer.logprobs[part], answer.scored[part], answer.normalizer)


def test_rows_that_are_left_are_scored_by_no_loop(screen, monkeypatch):
    """Where too many clusters are opened for loops, they do not run; what goes to dense goes there at once."""
    head, rows = screen
    plan, calls = head.plan, []
    score, screen_graph = plan.loops.score, plan.router.screen
    monkeypatch.setattr(plan.loops, "score", lambda *given: calls.append("loops") or score(*given))
    monkeypatch.setattr(plan.router, "screen", lambda **given: calls.append("screen") or screen_graph(**given))
    head.topk_by_plan(rows, 1)
    assert calls == (["screen"] if plan.settings.probes > 2 else ["loops"])


@pytest.mark.parametrize("count", [5, MAX_LOOP_ROWS])
def test_more_threads_answer_the_same(screen, gate, count):
    for head, rows in (screen, gate):
        more = Head(Bundle(head.folder), "cpu", 3)
        more.plan.loops.threaded_rows.row_seconds = 10.0  # so that every row is worth a thread
        result, wanted = more.topk_by_plan(rows[:count], 5), head.topk_by_plan(rows[:count], 5)
        np.testing.assert_array_equal(result.logprobs, wanted.logprobs)
        assert_same(result, wanted)


@pytest.mark.parametrize("target", list_targets())
@given(st.integers(1, 40), st.integers(1, 9), seeds)
@settings(max_examples=50, deadline=None)
def test_rows_come_in_the_order_of_their_best_sets(target, count, sets, seed):
    rng = np.random.default_rng(seed)
    contexts, columns = rng.integers(-2, 3, (count, 6)), rng.integers(-2, 3, (6, sets))
    tables = {"chooser": columns.astype(np.float32), "offsets": np.arange(sets + 1)}
    loops = Loops(tables, 6, 1, are_experts=False)
    loops.kernels = open_target(target)
    scores, order = loops.order_rows(contexts.astype(np.float32))
    np.testing.assert_array_equal(scores, contexts @ columns)
    np.testing.assert_array_equal(order, scores.argmax(axis=1).argsort(kind="stable"))


@pytest.mark.parametrize("target", list_targets())
@given(st.integers(1, 12), st.integers(1, 70), st.integers(1, 40), st.sampled_from([0, 1e-30, 1e-4, 1, 1e25]), seeds)
@settings(max_examples=100, deadline=None)
def test_the_two_best_of_previewed_scores_are_exact(target, count, dim, sets, size, seed):
    """Of columns that differ little, so that previews alone would mistake them, and of contexts of any size."""
    rng = np.random.default_rng(seed)
    contexts = (size * rng.standard_normal((count, dim))).astype(np.float32)
    columns = rng.standard_normal((dim, 1)) + 10.0 ** rng.integers(-6, 1) * rng.standard_normal((dim, sets))
    columns = columns.astype(np.float32)
    tables = {"chooser": columns, "offsets": np.arange(sets + 1)}
    loops = Loops(tables, dim, 1, are_experts=False, previews=ChoicePreviews(columns))
    loops.kernels = open_target(target)
    scores, order = loops.order_rows(contexts)
    exact = contexts.astype(np.float64) @ columns
    off = 1e-5 * np.linalg.norm(contexts.astype(np.float64), axis=1) * np.linalg.norm(columns, axis=0).max() + 1e-37
    two, places = np.sort(exact)[:, -2:], np.argsort(scores, kind="stable")[:, -2:]
    np.testing.assert_array_less(abs(np.take_along_axis(exact, places, 1) - two).max(axis=1), off)
    np.testing.assert_array_less(abs(np.sort(scores)[:, -2:] - two).max(axis=1), off)
    np.testing.assert_array_equal(order, scores.argmax(axis=1).argsort(kind="stable"))


def test_contexts_whose_squares_overflow_have_exact_scores():
    columns = np.random.default_rng(0).standard_normal((8, 20)).astype(np.float32)
    contexts = np.full((2, 8), 1e30, np.float32)
    tables = {"chooser": columns, "offsets": np.arange(21)}
    scores, _ = Loops(tables, 8, 1, are_experts=False, previews=ChoicePreviews(columns)).order_rows(contexts)
    np.testing.assert_allclose(scores, contexts @ columns, rtol=1e-5)


def test_who_of_equal_ones_leads_can_be_seen(screen, request):
    head, rows = screen
    logits = head.plan.topk(rows, 10, UNRESTRICTED).logits
    assert (np.diff(logits) == 0).any() == ("equal logits" in request.node.name)


def test_arrays_of_any_layout_are_taken(screen, gate):
    for head, rows in (screen, gate):
        more = Head(Bundle(head.folder), "cpu", 3)
        more.plan.loops.threaded_rows.row_seconds = 10.0  # so that every row is worth a thread
        raw = b"x" + rows[:1].tobytes()
        unaligned = np.frombuffer(raw, np.float32, offset=1)[None]
        assert_same(head.topk(unaligned, 1), head.topk(rows[:1], 1))
        for count in (1, 2, 5, MAX_LOOP_ROWS):
            k = count % 4 + 1
            assert_same(more.topk_by_plan(np.asfortranarray(rows[:count]), k), head.topk_by_plan(rows[:count], k))


def test_every_target_gives_the_same_bits(screen, gate):
    for head, rows in (screen, gate):
        wanted, plan = head.topk_by_plan(rows[:MAX_LOOP_ROWS], 5), head.plan
        fastest = plan.loops.kernels
        try:
            for target in list_targets():
                plan.loops.kernels = open_target(target)
                result = head.topk_by_plan(rows[:MAX_LOOP_ROWS], 5)
                np.testing.assert_array_equal(result.logprobs, wanted.logprobs)
                assert_same(result, wanted)
        finally:
            plan.loops.kernels = fastest


def assert_overflow_is_refused(head, rows):
    with pytest.raises(BadInput, match="overflow"):
        head.topk(rows[:1] / abs(rows[0]).max() * np.float32(3e38), 1)


def test_screened_scores_that_overflow_are_refused(screen):
    head, rows = screen
    if head.manifest.soft_cap is None:  # else they cannot
        assert_overflow_is_refused(head, rows)


def test_gated_scores_that_overflow_are_refused(gate):
    assert_overflow_is_refused(*gate)


def test_without_the_library_graphs_answer(screen, gate, no_library):
    for head, rows in (screen, gate):
        plain = Head(Bundle(head.folder), "cpu", 1)
        assert plain.plan.loops is None
        np.testing.assert_array_equal(plain.topk(rows[:1], 5).ids, head.topk(rows[:1], 5).ids)


def test_without_arrays_for_loops_graphs_answer(screen, gate, tmp_path):
    for (head, rows), role in ((screen, "screen_sets"), (gate, "gate_sets")):
        folder = copy_writable(head.folder, tmp_path / role / "1")
        arrays = {name: array for name, array in head.manifest.arrays.items() if name != role}
        assert len(arrays) == len(head.manifest.arrays) - 1
        (folder / "manifest.json").unlink()
        seal(folder, head.manifest.model_copy(update={"arrays": arrays}))
        plain = Head(Bundle(folder), "cpu", 1)
        assert plain.plan.loops is None
        np.testing.assert_array_equal(plain.topk(rows[:1], 5).ids, head.topk(rows[:1], 5).ids)


def test_weights_of_unknown_layout_are_refused(screen, tmp_path):
    head, _ = screen
    sets = head.manifest.arrays["screen_sets"]
    biased = int((head.folder / sets.file).stat().st_size == 4 * head.plan.sets.ids.size * (head.manifest.dim + 1))
    assert sets.shape == (head.plan.sets.ids.size, head.manifest.dim + biased)
    folder = copy_writable(head.folder, tmp_path / "flat" / "1")
    flat = sets.model_copy(update={"shape": (sets.size // 4,)})
    (folder / "manifest.json").unlink()
    seal(folder, head.manifest.model_copy(update={"arrays": head.manifest.arrays | {"screen_sets": flat}}))
    text = r"the array 'screen_sets', which has shape \[\d+\] instead of \[\d+, lines\]: export the bundle again"
    with pytest.raises(BundleError, match=text):
        Head(Bundle(folder), "cpu", 1)


def test_arrays_of_another_size_are_refused(screen, gate, tmp_path):
    for (head, _), role in ((screen, "screen_sets"), (gate, "gate_sets")):
        folder = copy_writable(head.folder, tmp_path / role / "1")
        with (folder / head.manifest.arrays[role].file).open("ab") as file:
            file.write(bytes(4))
        (folder / "manifest.json").unlink()
        seal(folder, head.manifest)
        with pytest.raises(BundleError, match=f"is not the float32 array .* of '{role}': export it again"):
            Head(Bundle(folder), "cpu", 1)
