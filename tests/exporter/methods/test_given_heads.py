"""Heads that were trained elsewhere: of any number format, and none of broken numbers."""

import numpy as np
import pytest
import shortlist
import torch
from safetensors.torch import save_file
from shortlist.errors import BadInput
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export, load_state
from shortlist_exporter.inputs.sources import Contexts, Dense
from shortlist_models.adaptive.dsoftmax import DSoftmax
from shortlist_models.adaptive.softmax import AdaptiveSoftmax
from shortlist_models.ds.mitosis import clone
from shortlist_models.ds.softmax import DSSoftmax
from shortlist_models.mixtures.mixtape import Mixtape

CLASSES, DIM = 60, 8
METHODS = ["ds", "adaptive", "dsoftmax", "mixtape"]

random = np.random.default_rng(0)
dense = Dense(random.standard_normal((CLASSES, DIM)).astype(np.float32))
contexts = Contexts(random.standard_normal((500, DIM)).astype(np.float32))


def make_head(method):
    torch.manual_seed(0)
    if method == "ds":
        head = DSSoftmax.from_dense(dense.module)
        clone(head, torch.from_numpy(contexts.contexts), torch.Generator().manual_seed(0))
        return head
    if method == "adaptive":
        return AdaptiveSoftmax(DIM, CLASSES, [20], 2.0, head_bias=True)
    return DSoftmax(DIM, CLASSES, [20], [8, 4]) if method == "dsoftmax" else Mixtape(DIM, CLASSES)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_heads_of_other_number_formats_are_served_as_they_are_in_float32(tmp_path, method, dtype):
    head = make_head(method).to(dtype).eval()
    save_file({name: value.contiguous() for name, value in head.state_dict().items()}, tmp_path / "head.safetensors")
    export(dense, contexts, tmp_path / "lm" / "1", Request(method, threads=1, head=tmp_path / "head.safetensors"))
    rows = contexts.contexts[-9:]
    top = shortlist.load(tmp_path / "lm" / "1", threads=1).topk(rows, CLASSES, exact=True)
    with torch.inference_mode():
        truth = head.float().log_prob(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(top.logprobs, np.take_along_axis(truth, top.ids, axis=1), atol=1e-4)


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("ds", "int8 sizes speedup used"),
        ("adaptive", "cutoffs full_view opened planned_k preview previewed widths"),
        ("dsoftmax", "cutoffs project widths"),
        ("mixtape", "centre_width components frequent gate_width groups int8_width tail_terms width"),
    ],
)
def test_the_manifest_of_a_given_head_names_no_training(tmp_path, method, names):
    request = Request(method, threads=1, head=make_head(method))
    assert " ".join(sorted(export(dense, contexts, tmp_path / "lm" / "1", request).fit)) == names


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_head_of_broken_numbers_is_refused_by_the_tensor_s_name(tmp_path, method, number):
    head = make_head(method)
    name, parameter = next(iter(head.named_parameters()))
    with torch.no_grad():
        parameter[3] = number
    with pytest.raises(BadInput, match=rf"{name} of the trained head holds NaN or infinity in 1 of \d+ rows, .* row 3"):
        export(dense, contexts, tmp_path / "lm" / "1", Request(method, threads=1, head=head))


@pytest.mark.parametrize("extra", [{}, {"optimizer": {"step": torch.tensor(3.0)}, "fingerprint": "seed 0"}])
def test_a_checkpoint_and_a_state_behind_a_parallel_module_are_the_module_s(tmp_path, extra):
    head = make_head("ds")
    state = {f"module.{name}": value for name, value in head.state_dict().items()}
    torch.save({"module": head.state_dict(), **extra} if extra else state, tmp_path / "head.pt")
    assert load_state(tmp_path / "head.pt").keys() == head.state_dict().keys()


def test_a_single_number_in_a_state_is_no_obstacle():
    head = make_head("mixtape")
    head.register_buffer("steps", torch.tensor(3.0))
    assert load_state(head)["steps"] == 3
