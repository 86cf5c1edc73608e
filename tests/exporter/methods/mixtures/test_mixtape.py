"""Method mixtape: trained by the exporter, brought along, refused; the plan has tests of its own."""

import numpy as np
import pytest
import torch
from shortlist.bundle.reader import Bundle
from shortlist.errors import BadInput
from shortlist.head import Head
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts
from shortlist_models.mixtures.mixtape import Mixtape
from torch import nn

from tests.support.heads import adaptive, mixtape
from tests.support.layers import CLASSES, DIM, make_contexts

pytestmark = pytest.mark.slow

TRAINED = {"epochs": "2", "batch": "64", "learning_rate": "0.02", "gate_width": "8"}


def test_the_exporter_trains_a_head_that_beats_dense(tmp_path):
    manifest = export(
        adaptive.dense, adaptive.examples, tmp_path / "lm" / "1", Request("mixtape", TRAINED, threads=1, report=False)
    )
    assert (manifest.plan, manifest.reference, manifest.normalizer) == ("mixture", "self", "estimated")
    assert (manifest.fit["components"], manifest.fit["frequent"]) == (4, CLASSES // 10)
    assert "never occur in the targets" in manifest.provenance["notes"][0]
    assert manifest.quality.p_at_1 > 0.98
    assert manifest.quality.targets.head.perplexity < manifest.quality.targets.dense.perplexity
    assert len(manifest.fit["history"]) == 2


def test_a_head_trained_with_a_callers_body_is_served_from_its_file(tmp_path):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, DIM), nn.Tanh())
    module = Mixtape(DIM, CLASSES, gate_width=8)
    inputs, targets = torch.randn(400, 6), torch.randint(CLASSES, (400,))
    optimizer = torch.optim.Adam([*body.parameters(), *module.parameters()], lr=0.01)
    losses = []
    for _ in range(40):
        loss = module(body(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 1
    torch.save(module.state_dict(), tmp_path / "head.pt")
    contexts = body(inputs).detach()
    export(
        adaptive.dense, Contexts(contexts.numpy()), tmp_path / "lm" / "1",
        Request("mixtape", {}, threads=1, head=tmp_path / "head.pt"),
    )  # fmt: skip
    top = Head(Bundle(tmp_path / "lm" / "1"), "cpu", 1).topk(contexts[:50].numpy(), 10, exact=True)
    truth = mixtape.compute_logprobs(module, contexts[:50].numpy())
    np.testing.assert_allclose(top.logprobs, adaptive.brute_force(truth, 10)[1], atol=1e-5)


def test_the_given_layer_stays_beside_the_head(tmp_path):
    """Both have a weight and a bias; neither takes the other's."""
    head, module = mixtape.make(tmp_path, "loops")
    rows = make_contexts(10, module.dim, seed=5).contexts
    logits = head.dense.logits(rows)
    assert not np.allclose(logits, head.exact.compute_distribution(rows), atol=0.1)
    np.testing.assert_allclose(
        head.exact.compute_distribution(rows)
        - np.log(np.exp(head.exact.compute_distribution(rows)).sum(axis=1, keepdims=True)),
        mixtape.compute_logprobs(module, rows),
        atol=2e-5,
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"components": "3"}, "components=3 must be a power of two"),
        ({"frequent": "300"}, "all 300 classes have gates of their own"),
        ({"frequent": "298"}, "2 rare classes are fewer than full_view=7"),
        ({"frequent": "301"}, "frequent=301 must be from 1 to the 300 classes"),
        ({"candidates": "5"}, "candidates=5 is under full_view=7"),
        ({"promise": "0.9"}, "there is no option 'promise'"),
    ],
)
def test_bad_options_are_one_sentence_and_leave_nothing(tmp_path, options, sentence):
    with pytest.raises(BadInput, match=sentence):
        export(
            adaptive.dense, Contexts(adaptive.examples.contexts[:50], adaptive.examples.targets[:50]),
            tmp_path / "lm" / "1", Request("mixtape", {"epochs": "1"} | options, threads=1),
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_trained_head_of_another_shape_is_one_sentence(tmp_path):
    torch.manual_seed(0)
    with pytest.raises(BadInput, match=f"V = 200, d = {DIM} but the weight of V = 300"):
        mixtape.make(tmp_path, module=Mixtape(DIM, 200))
