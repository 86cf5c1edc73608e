"""Heads of method mixtape: of so few classes that graphs search them, and of enough for compiled loops."""

import numpy as np
import torch
from shortlist.bundle.reader import Bundle
from shortlist.head import Head
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_models.mixtures.mixtape import Mixtape
from torch import nn

from tests.support.layers import make_contexts, make_dense

SIZES = {"graphs": (300, 16), "loops": (1100, 20)}  # V and d
SEARCH = {"candidates": "80", "full_view": "40"}


def make_module(classes, dim, components=4, tree=True, frequent=None):
    torch.manual_seed(0)
    module = Mixtape(dim, classes, components, frequent or classes // 10, 8, torch.randperm(classes), tree=tree)
    nn.init.normal_(module.gate_bias)
    with torch.no_grad():
        module.weight.mul_(8)
    return module.eval()


def make(folder, size="graphs", module=None, options=SEARCH, **request):
    """The head of a module with random weights, and the module."""
    module = module or make_module(*SIZES[size])
    write(folder / "lm" / "1", size, module, options, **request)
    return Head(Bundle(folder / "lm" / "1"), "cpu", 1), module


def write(out, size, module, options=SEARCH, **request):
    """Export a module beside a dense layer of this size."""
    classes, dim = SIZES[size]
    bias = np.ones(classes, np.float32)  # of dense alone, as are the scale and the soft-cap
    export(
        make_dense(classes, dim, bias=bias, logit_scale=0.7, soft_cap=5.0), make_contexts(600, dim), out,
        Request("mixtape", options, threads=1, head=module, **request),
    )  # fmt: skip


def compute_logprobs(module, rows):
    with torch.inference_mode():
        return module.log_prob(torch.from_numpy(rows)).numpy()
