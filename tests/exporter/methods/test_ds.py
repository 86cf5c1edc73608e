"""Methods ds and ds-svd through the real runtime: plan `gated`."""

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from shortlist import Client
from shortlist.bundle.reader import Bundle
from shortlist.errors import BadInput
from shortlist.evaluation.evaluator import evaluate
from shortlist.head import Head
from shortlist.plans.screen.gated import MAX_FUSED_ROWS
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.graphs.gate.int8 import round_rows
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_models.ds.mitosis import clone
from shortlist_models.ds.softmax import DSSoftmax

from tests.support.heads.ds import QUICK, best, contexts, dense, exported, make_module, rows, sample
from tests.support.layers import CLASSES, DIM, RunningServer, call_cli, make_dense, make_head, run_cli
from tests.support.searches import check_rows_alone

pytestmark = pytest.mark.slow

AT_ONCE = ("cluster", "top_logits", "top_position", "log_normalizer")


@pytest.fixture(scope="module")
def head(module, tmp_path_factory):
    return exported(tmp_path_factory.mktemp("ds"), module)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    options = QUICK | {"checkpoint": str(folder / "state.pt"), "retrain": "true"}
    return make_head(folder, dense, contexts, method="ds", options=options)


def test_onnx_path_agrees_with_torch(head, module):
    for count in (1, MAX_FUSED_ROWS, MAX_FUSED_ROWS + 1, 60):  # a call a row, and a call for all
        top = head.topk(rows[:count], 5)
        ids, logprobs = module.topk(torch.from_numpy(rows[:count]), 5)
        np.testing.assert_array_equal(top.ids, ids.numpy())
        np.testing.assert_allclose(top.logprobs, logprobs.numpy(), atol=1e-4)
    assert top.normalizer == "exact"
    assert set(top.scored.tolist()) <= set(module.sizes)


@pytest.mark.parametrize("scale", [1, 1e-20, 0])
def test_int8_rows_are_the_rounded_head_itself(module, tmp_path_factory, scale):
    """Whether one row asks, of the integers, or many, of the same rows in float32."""
    head = exported(tmp_path_factory.mktemp("int8"), module, options={"int8": "true"})
    whole = round_rows(module)
    assert 0 < float((whole.weight - module.weight).abs().max().detach()) < 0.02
    assert bool((module.weight == make_module().weight).all())
    for count in (1, MAX_FUSED_ROWS, 60):
        some = rows[:count] * np.float32(scale)
        top = head.topk(some, 5)
        ids, logprobs = whole.topk(torch.from_numpy(some), 5)
        np.testing.assert_array_equal(top.ids, ids.numpy())
        np.testing.assert_allclose(top.logprobs, logprobs.numpy(), atol=5e-5)
    quality = head.manifest.quality
    assert quality.p_at_10 == 1
    gate = 4 / CLASSES
    assert quality.cost_bytes - gate == pytest.approx((quality.cost_macs - gate) / 4)


def test_each_graph_runs_alone(head, module):
    graphs = head.folder / "graphs"
    run = lambda name, **inputs: onnxruntime.InferenceSession(str(graphs / name)).run(None, inputs)  # noqa: E731
    scores = run("gate.onnx", context=rows)[0]
    np.testing.assert_allclose(scores, module.gates(torch.from_numpy(rows)).detach().numpy(), atol=1e-5)
    own = rows[scores.argmax(axis=1) == 1]
    scale = scores[scores.argmax(axis=1) == 1].max(axis=1, keepdims=True)
    logits = run("experts/0001.onnx", context=own, scale=scale, k=np.array([3]))[0]
    expected = module.log_prob(torch.from_numpy(own)).detach().numpy()[:, module.sets[1]]
    shifted = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(shifted, expected, atol=1e-4)
    assert not (graphs / "rows.onnx").exists()


def test_one_call_equals_gate_and_experts(head):
    """Also where some experts get no row, and in whatever order rows come."""
    graphs = head.folder / "graphs" / "experts"
    fused, batch = (onnxruntime.InferenceSession(str(graphs / f"{name}.onnx")) for name in ("fused", "batch"))
    k = np.array([4])
    for some in (rows, rows[::-1].copy(), rows[:2], rows[7:8]):
        found = batch.run(None, {"context": some, "k": k})
        singly = [fused.run(None, {"context": row[None], "k": k}) for row in some]
        for name, together, alone in zip(AT_ONCE, found, zip(*singly, strict=True), strict=True):
            np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-4, err_msg=name)
        for row, cluster in zip(some[:5], found[0][:5], strict=False):
            scale = head.plan.gate(context=row[None])[0].max(axis=1, keepdims=True)
            expert = onnxruntime.InferenceSession(str(graphs / f"{cluster:04d}.onnx"))
            logits, top, index, normalizer = expert.run(None, {"context": row[None], "scale": scale, "k": k})
            place = int(np.flatnonzero((some == row).all(axis=1))[0])
            np.testing.assert_allclose(found[1][place], top[0], atol=1e-4)
            np.testing.assert_array_equal(found[2][place], index[0] + head.plan.sets.offsets[cluster])
            np.testing.assert_allclose(found[3][place], np.log(np.exp(logits).sum()), atol=1e-4)
            np.testing.assert_allclose(normalizer, found[3][place], atol=1e-4)


def test_a_row_alone_equals_the_row_in_a_batch(head):
    check_rows_alone(head, rows, step=7, atol=1e-4)


def test_logprobs_are_of_the_heads_own_distribution(head, module):
    ids = np.tile(np.arange(CLASSES), (60, 1))
    expected = module.log_prob(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(head.logprobs(rows, ids), expected, atol=1e-4)
    np.testing.assert_allclose(np.exp(head.logprobs(rows, ids)).sum(axis=1), 1, atol=1e-4)


def test_k_over_the_expert_gives_short_rows(head, module):
    top = head.topk(rows, 95)
    expected = module.log_prob(torch.from_numpy(rows)).detach().numpy()
    for row in range(60):
        possible = int(np.isfinite(expected[row]).sum())
        assert (top.ids[row, :possible] >= 0).all()
        assert (top.ids[row, possible:] == -1).all()
        assert np.isneginf(top.logprobs[row, possible:]).all()
    few = head.topk(rows, 5)
    np.testing.assert_array_equal(top.ids[:, :5], few.ids)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_lists_leave_legal_classes_of_the_expert(head, module, data):
    lists = st.lists(st.integers(0, CLASSES - 1), max_size=250)
    allow = data.draw(st.none() | lists.filter(len))
    ban, k = data.draw(lists), data.draw(st.integers(1, 20))
    top = head.topk(rows[:9], k, allow=allow, ban=ban or None)
    expected = module.log_prob(torch.from_numpy(rows[:9])).detach().numpy()
    illegal = set(range(CLASSES)) - set(allow) if allow is not None else set()
    expected[:, sorted(illegal | set(ban))] = -np.inf
    for row, ids in enumerate(top.ids):
        order = np.argsort(-expected[row], kind="stable")[:k]
        possible = np.isfinite(expected[row, order])
        np.testing.assert_array_equal(ids, np.where(possible, order, -1))
        np.testing.assert_allclose(top.logprobs[row][possible], expected[row, order][possible], atol=1e-4)


def test_the_manifest_says_what_the_truth_is(head):
    manifest = head.manifest
    assert (manifest.reference, manifest.plan, manifest.normalizer) == ("self", "gated", "exact")
    assert manifest.dense_crossover is None
    assert manifest.quality.p_at_10 == 1
    assert manifest.quality.targets.head.impossible > 0
    assert manifest.quality.targets.dense.top_1 == 1
    assert manifest.quality.targets.retrained is None


def test_training_stands_beside_dense_and_dense_retrained(trained):
    targets = trained.manifest.quality.targets
    assert targets.dense.top_1 == 1
    assert targets.head.top_1 > 0.2
    assert targets.retrained.top_10 > 0.5
    assert trained.manifest.fit["speedup"] == pytest.approx(1 / trained.manifest.quality.cost_macs)
    assert trained.manifest.fit["history"][-1]["experts"] == 4
    assert not set(trained.topk(rows, 20).ids.reshape(-1).tolist()) & {5, 17}


def test_evaluate_holds_it_against_itself_and_beside_dense(head):
    found = evaluate(head, contexts.contexts[-100:], contexts.targets[-100:])
    assert found.precision[10].mean == 1
    assert found.kl["mean"] == pytest.approx(0, abs=1e-6)
    assert found.dense_targets.accuracy[1].mean == 1
    assert found.head_targets.accuracy[1].mean < 1


def test_without_targets_dense_is_distilled_and_that_is_said(tmp_path):
    head = make_head(tmp_path, dense, sample, method="ds", options=QUICK)
    assert "distilled" in head.manifest.provenance["notes"][0]
    assert head.manifest.quality.targets is None
    found = head.topk(rows, 1).ids[:, 0]
    assert (found == best[-60:]).mean() > 0.2


def test_a_module_of_somebody_elses_loop_is_exported_and_served(tmp_path):
    """A loop that knows nothing of this project but the loss and `prune`."""
    torch.manual_seed(0)
    module = make_module(3, (CLASSES, CLASSES), lasso=1e-3, gamma=0.05)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    inputs, targets = torch.from_numpy(contexts.contexts), torch.from_numpy(contexts.targets)
    before = float(module(inputs, targets).detach())
    for _ in range(4):
        for start in range(0, 1000, 100):
            optimizer.zero_grad()
            module(inputs[start : start + 100], targets[start : start + 100]).backward()
            optimizer.step()
        module.prune(optimizer)
    assert float(module(inputs, targets).detach()) < before
    export(dense, contexts, tmp_path / "lm" / "1", Request("ds", threads=1, head=module))
    with RunningServer(tmp_path) as server, Client(server.url) as client:
        top = client.topk("lm", rows, 5)
        score = server.http.post("/v1/score", json={"model": "lm", "contexts": rows[:1].tolist(), "ids": [[0, 1, 2]]})
    ids, logprobs = module.topk(torch.from_numpy(rows), 5)
    np.testing.assert_array_equal(top.ids, ids.numpy())
    np.testing.assert_allclose(top.logprobs, logprobs.numpy(), atol=1e-4)
    assert score.status_code == 200


def test_a_head_from_a_file_by_the_command_line(tmp_path, module):
    save_file(module.state_dict(), tmp_path / "trained.safetensors")
    np.save(tmp_path / "weights.npy", dense.weight)
    np.save(tmp_path / "contexts.npy", contexts.contexts)
    out = tmp_path / "repo" / "lm" / "1"
    files = ["--weights", tmp_path / "weights.npy", "--contexts", tmp_path / "contexts.npy", "--out", out]
    command = ["export", *files, "--method", "ds", "--head", tmp_path / "trained.safetensors"]
    done = call_cli(*command, "--set", "experts=4")
    assert "option experts is of a training" in done.stderr
    done = run_cli(*command)
    assert done.returncode == 0, done.stderr
    found = Head(Bundle(out), "cpu", 1).topk(rows, 5)
    np.testing.assert_array_equal(found.ids, module.topk(torch.from_numpy(rows), 5)[0].numpy())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"experts": "6"}, "6 is no power of two"),
        ({"device": "cuda:0"}, "torch has no device 'cuda:0' here"),
        ({"gamma": "-1"}, "option gamma=-1 is wrong"),
        ({"width": "3"}, "there is no option 'width'"),
        ({"int8": "9"}, "option int8=9 is wrong"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(tmp_path, change, sentence):
    out = tmp_path / "lm" / "1"
    with pytest.raises(BadInput, match=sentence):
        export(dense, contexts, out, Request("ds", QUICK | change, threads=1))
    assert not out.exists()


def test_one_class_only(tmp_path):
    one = make_dense(classes=1)
    with pytest.raises(BadInput, match="there is one class only"):
        export(one, Contexts(sample.contexts), tmp_path / "lm" / "1", Request("ds", QUICK, threads=1))
    assert not (tmp_path / "lm").exists()


def test_a_bias_that_rules_out_by_a_huge_number_is_refused_before_the_training(tmp_path):
    bias = np.zeros(CLASSES, np.float32)
    bias[:9] = -1e30
    with pytest.raises(BadInput, match=r"the bias goes to 1e\+30 in size, over 1e\+15: name classes that .* `padded`"):
        export(Dense(dense.weight, bias), Contexts(sample.contexts), tmp_path / "lm" / "1", Request("ds", QUICK))


def test_targets_out_of_range(tmp_path):
    wrong = Contexts(sample.contexts, np.full(1200, CLASSES))
    with pytest.raises(BadInput, match="targets go from 300 to 300 but classes from 0 to 299"):
        export(dense, wrong, tmp_path / "lm" / "1", Request("ds", QUICK, threads=1))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda state: state.pop("gate"), "has no tensor 'gate'"),
        (lambda state: state.update(gate=torch.zeros(4, 3)), "d = 16 but"),
        (lambda state: state.update(gate=torch.zeros(3, DIM)), "the gate has 3 rows for 4 experts"),
        (lambda state: state.update(offsets=torch.tensor([0, 40, 40, 155, 215])), "expert 1 has no class left"),
        (lambda state: state.update(ids=state["ids"] + 200), "ids must ascend and lie in 0 to 299"),
        (lambda state: state.update(offsets=torch.tensor([0, 40, 130, 155, 200])), "no whole DSSoftmax"),
    ],
)
def test_a_head_that_does_not_fit(tmp_path, spoil, sentence):
    state = make_module().state_dict()
    spoil(state)
    save_file(state, tmp_path / "head.safetensors")
    request = Request("ds", threads=1, head=tmp_path / "head.safetensors")
    with pytest.raises(BadInput, match=sentence):
        export(dense, contexts, tmp_path / "lm" / "1", request)
    assert not (tmp_path / "lm").exists()


def test_a_head_for_a_method_that_fits_its_own(tmp_path, module):
    with pytest.raises(BadInput, match="method svd is fitted to the dense layer: leave --head out"):
        export(dense, contexts, tmp_path / "lm" / "1", Request("svd", head=module))


def test_without_dense_its_own_answers_are_all_there(tmp_path, module):
    head = exported(tmp_path, module, keep_dense=False)
    assert head.dense is None
    np.testing.assert_array_equal(head.topk(rows, 5, exact=True).ids, head.topk(rows, 5).ids)
    found = evaluate(head, rows, contexts.targets[-60:])
    assert found.dense_targets is None
    assert "no dense head's figures on the targets" in found.missing[0]


def test_clones_are_exported_too(tmp_path, module):
    twice = DSSoftmax.from_state(module.state_dict(), CLASSES)
    clone(twice, torch.from_numpy(contexts.contexts), torch.Generator().manual_seed(0))
    head = exported(tmp_path, twice)
    np.testing.assert_array_equal(head.topk(rows, 5).ids, twice.topk(torch.from_numpy(rows), 5)[0].numpy())
