"""Methods adaptive and dsoftmax: what is trained, restored, planned and refused; the plan has tests of its own."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from shortlist.client.client import Client
from shortlist.errors import BadInput
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.methods.dsoftmax import DsoftmaxOptions, choose_widths
from shortlist_exporter.methods.registry import METHODS
from shortlist_models.adaptive.softmax import AdaptiveSoftmax

from tests.support.heads.adaptive import (
    OPTIONS,
    brute_force,
    compute_logprobs,
    dense,
    examples,
    learn_module,
    make,
    rows,
)
from tests.support.layers import CLASSES, DIM, RunningServer, make_dense, run_cli

pytestmark = pytest.mark.slow


def test_manifest_says_what_was_made(adaptive_head, adaptive_form):
    manifest = adaptive_head.manifest
    assert (manifest.plan, manifest.reference, manifest.normalizer) == ("adaptive", "self", "exact")
    assert manifest.fit["never"] >= 1
    assert "never occur in the targets" in manifest.provenance["notes"][0]
    assert manifest.quality.p_at_1 == manifest.quality.p_at_5 == manifest.quality.p_at_10 == 1
    assert manifest.quality.logprob_error_p99 < 1e-5
    assert manifest.quality.targets.head.perplexity < manifest.quality.targets.dense.perplexity
    assert 0 < manifest.quality.cost_macs < 1


FOREIGN = """
import numpy as np, sys, torch
rng = torch.Generator().manual_seed(0)
targets = torch.multinomial(1.0 / torch.arange(1, 301), 3000, replacement=True, generator=rng)
contexts = torch.randn(301, 16, generator=rng)[targets] + 0.5 * torch.randn(3000, 16, generator=rng)
torch.manual_seed(0)
layer = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 300, cutoffs=[30, 100], div_value=2.0, head_bias=True)
optimizer = torch.optim.Adagrad(layer.parameters(), lr=0.1)
for step in range(200):
    picked = torch.randint(3000, (64,), generator=rng)
    optimizer.zero_grad()
    layer(contexts[picked], targets[picked]).loss.backward()
    optimizer.step()
torch.save(layer.state_dict(), "layer.pt")
np.save("contexts.npy", contexts.numpy())
np.save("logprobs.npy", layer.log_prob(contexts[:200]).detach().numpy())
np.save("weights.npy", torch.randn(300, 16, generator=rng).numpy())
"""


def test_a_layer_trained_with_plain_torch_in_a_foreign_script_is_served(tmp_path):
    subprocess.run([sys.executable, "-c", FOREIGN], cwd=tmp_path, check=True)
    made = run_cli(
        "export", "--method", "adaptive", "--head", "layer.pt", "--weights", "weights.npy",
        "--contexts", "contexts.npy",
        "--out", "repo/lm/1", cwd=tmp_path,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    contexts, truth = np.load(tmp_path / "contexts.npy")[:200], np.load(tmp_path / "logprobs.npy")
    with RunningServer(tmp_path / "repo") as server, Client(server.url) as client:
        top = client.topk("lm", contexts, 10)
        ids, logprobs = brute_force(truth, 10)
        np.testing.assert_allclose(top.logprobs, logprobs, atol=1e-5)
        assert (top.ids == ids).mean() > 0.999
        scraped = server.http.get("/metrics").text
    assert f'shortlist_opened_tails_count{{model="lm",version="1"}} {len(contexts)}.0' in scraped


def test_the_users_order_comes_with_a_trained_head(tmp_path):
    torch.manual_seed(0)
    order = torch.randperm(CLASSES)
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(DIM, CLASSES, [40, 120], 2.0)
    path = tmp_path / "trained.safetensors"
    save_file({**theirs.state_dict(), "order": order}, path)
    head = make(tmp_path, options={}, head=path, sample=Contexts(examples.contexts))
    with torch.inference_mode():
        truth = np.empty((len(rows), CLASSES), np.float32)
        truth[:, order] = theirs.log_prob(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(head.topk(rows, 7).logprobs, brute_force(truth, 7)[1], atol=1e-5)


PREVIEWED = OPTIONS | {"cutoffs": "20", "div_value": "1", "preview": "4", "full_view": "160"}


def test_previews_inside_tails_are_near_and_say_so(tmp_path):
    head, module = make(tmp_path, options=PREVIEWED), learn_module("adaptive", PREVIEWED)
    preview = module.previews[0]
    assert head.manifest.normalizer == "estimated"
    assert head.manifest.quality.cost_macs < learnt_cost(PREVIEWED | {"preview": "0"})
    truth = compute_logprobs(module)
    top = head.topk(rows, 5)
    assert (top.ids[:, 0] == truth.argmax(axis=1)).mean() > 0.9
    exact = np.take_along_axis(truth, top.ids, axis=1)
    assert 0 < np.abs(top.logprobs - exact).mean() < 0.05
    alone = np.concatenate([head.topk(row[None], 5).logprobs for row in rows])
    np.testing.assert_allclose(alone, top.logprobs, atol=1e-5)
    same = head.topk(rows, 5, exact=True)
    assert same.normalizer == "exact"
    np.testing.assert_allclose(same.logprobs, brute_force(truth, 5)[1], atol=1e-5)
    check_preview(preview, module.softmax, head.topk(rows, 40))


def learnt_cost(options):
    fit = Contexts(examples.contexts[:1350], examples.targets[:1350])
    return METHODS["adaptive"].learn(dense, fit, options, 0).cost.macs


def check_preview(preview, softmax, top):
    """The graph's log-probabilities of tail classes are those of the torch module's preview."""
    contexts = torch.from_numpy(rows)
    narrow, last = softmax.tail_layers()[0]
    with torch.inference_mode():
        chosen, inside = preview.log_prob(contexts @ narrow.T, last)
        cluster = softmax.head(contexts).log_softmax(dim=1)[:, -1:]
    ids = softmax.sections()[1][chosen].numpy()
    compared = 0
    for row in range(len(rows)):
        known = dict(zip(ids[row].tolist(), (inside + cluster)[row].tolist(), strict=True))
        for label, logprob in zip(top.ids[row].tolist(), top.logprobs[row], strict=True):
            if label in known:
                assert logprob == pytest.approx(known[label], abs=1e-4)
                compared += 1
    assert compared > 1000


def test_a_full_view_of_the_whole_tail_is_exact(tmp_path):
    head = make(tmp_path, options=PREVIEWED | {"full_view": "279"})
    truth = compute_logprobs(learn_module("adaptive", PREVIEWED))
    np.testing.assert_allclose(head.topk(rows, 80).logprobs, brute_force(truth, 80)[1], atol=1e-5)


def steady_seconds(rows, classes, width):
    """Of a training step, whatever else the machine does."""
    return 1e-5 + rows * classes * width / 1e10


def test_cutoffs_are_chosen_and_an_interrupted_export_goes_on_with_them(tmp_path, monkeypatch):
    monkeypatch.setattr("shortlist_models.adaptive.cost_model.time_step", steady_seconds)
    state = tmp_path / "state.pt"
    options = {**OPTIONS, "cutoffs": "", "batch": "512", "checkpoint": str(state), "planned_for": "training"}
    layer = make_dense(20_000, 64)
    rng = np.random.default_rng(0)
    sample = Contexts(rng.standard_normal((4000, 64)).astype(np.float32), (rng.zipf(1.5, 4000) - 1) % 20_000)

    def stop(stage, done, total):
        if stage == "training" and done > total * 3 // 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(layer, sample, tmp_path / "lm" / "1", Request("adaptive", options, threads=1), stop)
    assert not (tmp_path / "lm").exists()
    kept = AdaptiveSoftmax.from_state(torch.load(state, weights_only=True)["module"])
    stages = []
    found = export(
        layer, sample, tmp_path / "lm" / "1", Request("adaptive", options, threads=1),
        lambda stage, done, total: stages.append((stage, done, total)),
    )  # fmt: skip
    assert found.fit["cutoffs"] == kept.cutoffs[:-1]
    first = next(done / total for stage, done, total in stages if stage == "training")
    assert first > 0.5
    assert "cost of this machine" not in {stage for stage, _, _ in stages}
    fewer = export(layer, sample, tmp_path / "lm" / "2", Request("adaptive", {**options, "tails": "1"}, threads=1))
    assert len(kept.cutoffs) > 2
    assert len(fewer.fit["cutoffs"]) == 1
    small = make_dense(5000, 64)
    options |= {"epochs": "1", "div_value": "2"}
    of_small = Contexts(sample.contexts, sample.targets % 5000)
    found = export(small, of_small, tmp_path / "lm" / "3", Request("adaptive", options, threads=1))
    assert max(found.fit["cutoffs"]) < 5000


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"module": {"weight": torch.zeros(3, 3)}}, "an adaptive softmax has tensors head.weight"),
        ({"fingerprint": ""}, "holds no tensor"),
        (None, "is not a whole file of torch"),
    ],
)
def test_a_checkpoint_that_is_none_is_one_sentence(tmp_path, content, sentence):
    state = tmp_path / "state.pt"
    state.touch()
    if content is not None:
        torch.save(content, state)
    with pytest.raises(BadInput, match=sentence):
        make(tmp_path, options={"epochs": "1", "checkpoint": str(state)})
    assert list(tmp_path.iterdir()) == [state]


def test_narrow_layers_have_buckets_of_one_dimension_at_least():
    assert choose_widths(DsoftmaxOptions(), 7, 3) == [7, 1, 1]
    assert choose_widths(DsoftmaxOptions(), 200, 3) == [200, 50, 12]


def test_flat_frequencies_are_refused_since_it_does_not_pay(tmp_path):
    layer = make_dense(3000, 32)
    rng = np.random.default_rng(0)
    sample = Contexts(rng.standard_normal((6000, 32)).astype(np.float32) * 0.01, np.arange(6000) % 3000)
    for purpose in ("serving", "training"):
        options = {**OPTIONS, "cutoffs": "", "div_value": "4", "planned_for": purpose}
        with pytest.raises(BadInput, match="adaptive softmax does not pay here"):
            export(layer, sample, tmp_path / "lm" / "1", Request("adaptive", options, threads=1))
    assert not (tmp_path / "lm").exists()


def trained_state(**changed):
    torch.manual_seed(0)
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(DIM, CLASSES, [40, 120], 2.0)
    return theirs.state_dict() | changed


class Tensors(torch.nn.Module):
    """A module of any tensors."""

    def __init__(self, tensors):
        super().__init__()
        self.tensors = tensors

    def state_dict(self, *args, **kwargs):
        return self.tensors


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        ("adaptive", {"cutoffs": "120,40"}, "cutoffs 120, 40 must be increasing"),
        ("adaptive", {"cutoffs": "40,300"}, "must be increasing, from 1 to 299"),
        ("adaptive", {"cutoffs": "a,b"}, "cutoffs=a,b is no list of numbers"),
        ("adaptive", {"cutoffs": "40,120", "div_value": "5"}, "tail 2 would have width 0"),
        ("dsoftmax", {"cutoffs": "40,120", "widths": "4,8,16"}, "widths 4, 8, 16 must fall"),
        ("dsoftmax", {"cutoffs": "40", "widths": "10,4", "project": "false"}, "must sum to d = 16"),
        ("dsoftmax", {"cutoffs": "40,20"}, "must be increasing"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(tmp_path, method, options, sentence):
    with pytest.raises(BadInput, match=sentence):
        make(tmp_path, method, {"epochs": "1"} | options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (trained_state(), r"ids must be sorted by falling frequency; give their order as a tensor `order`"),
        (trained_state(order=torch.zeros(CLASSES)), "order must hold each of the 300 classes once"),
        ({"weight": torch.zeros(3, 3)}, "has tensors head.weight"),
        (torch.nn.AdaptiveLogSoftmaxWithLoss(DIM, 200, [40, 120], 2.0).state_dict(), "V = 200, d = 16 but the weight"),
    ],
)
def test_a_trained_head_that_does_not_fit_is_one_sentence_and_leaves_nothing(tmp_path, state, sentence):
    # the most frequent classes of the examples are in its last tail
    order = np.argsort(np.bincount(examples.targets, minlength=CLASSES), kind="stable")
    relabelled = Contexts(examples.contexts, np.argsort(order)[examples.targets])
    with pytest.raises(BadInput, match=sentence):
        make(tmp_path, options={}, head=Tensors(state), sample=relabelled)
    assert list(tmp_path.iterdir()) == []


def test_training_without_targets_is_one_sentence(tmp_path):
    with pytest.raises(BadInput, match="training needs targets"):
        make(tmp_path, sample=Contexts(examples.contexts))
