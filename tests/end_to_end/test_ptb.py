"""A trained language model's head: exported, served, and held against its own dense softmax."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from shortlist import Client
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, Dense

from tests.support.layers import RunningServer, logits_of

pytestmark = pytest.mark.slow

STREAMS, STEPS = 20, 600


@pytest.fixture(scope="module")
def penn_treebank(data):
    """The base model's output layer, contexts of its validation words, and others of its test words."""
    tensors = load_file(data / "ptb" / "lstm200.safetensors")
    lstm = torch.nn.LSTM(200, 200, 2)
    lstm.load_state_dict({name.removeprefix("lstm."): value for name, value in tensors.items() if "lstm." in name})

    def contexts(split):
        words = torch.from_numpy(np.load(data / "ptb" / f"{split}.npy")[: STREAMS * STEPS]).long()
        with torch.inference_mode():
            states, _ = lstm(tensors["emb.weight"][words.reshape(STREAMS, STEPS).T])
        return states.permute(1, 0, 2).reshape(-1, 200).numpy()

    dense = Dense(tensors["out.weight"].numpy(), tensors["out.bias"].numpy())
    return dense, contexts("valid"), contexts("test")


def test_the_served_head_keeps_its_promise_on_fresh_text(penn_treebank, tmp_path):
    dense, fit, fresh = penn_treebank
    options = {"basis": "context", "width": "64", "full_view": "300"}
    request = Request("svd", options=options, promise={1: 0.98, 5: 0.97}, fallback=False, threads=1)
    export(dense, Contexts(fit), tmp_path / "ptb" / "1", request)
    truth = np.argsort(-logits_of(dense, fresh[:2000]), axis=1, kind="stable")[:, :5]
    with RunningServer(tmp_path) as server, Client(server.url) as client:
        top = client.topk("ptb", fresh[:2000], 5)
    assert (top.ids[:, 0] == truth[:, 0]).mean() > 0.98
    assert (top.ids[:, :, None] == truth[:, None]).any(axis=1).mean() > 0.97
    assert set(top.scored.tolist()) == {300}
