"""A layer whose classes are ever rarer, and heads of method adaptive or dsoftmax trained on it."""

import numpy as np
import torch
from shortlist.bundle.reader import Bundle
from shortlist.head import Head
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.methods.registry import METHODS

from tests.support.layers import CLASSES, DIM, make_dense

OPTIONS = {"cutoffs": "40,120", "div_value": "2", "epochs": "2", "batch": "64", "learning_rate": "0.02"}
BUCKETS = {"cutoffs": "40,120", "widths": "16,8,4", "epochs": "1"}
FORMS = {
    "adaptive": ("adaptive", OPTIONS),
    "one tail": ("adaptive", OPTIONS | {"cutoffs": "60"}),
    "dsoftmax": ("dsoftmax", BUCKETS),
}
ABSENT = 7


def make_examples(rows=1500, seed=0):
    """Contexts, and targets of a softmax whose classes are ever rarer; class 7 never occurs."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((rows, DIM)).astype(np.float32)
    bias = -1.2 * np.log(rng.permutation(CLASSES) + 1)
    bias[ABSENT] = -np.inf
    logits = contexts @ (make_dense().weight.T * 0.5) + bias + rng.gumbel(size=(rows, CLASSES))
    return Contexts(contexts, logits.argmax(axis=1))


examples = make_examples()
rows = make_examples(80, 1).contexts
dense = make_dense(bias=np.zeros(CLASSES, np.float32))


def make(folder, method="adaptive", options=OPTIONS, head=None, sample=examples, **request):
    out = folder / "lm" / "1"
    export(dense, sample, out, Request(method, options, threads=1, head=head, **request))
    return Head(Bundle(out), "cpu", 1)


def learn_module(method, options):
    """The module that the exporter trains, trained once more."""
    fit = Contexts(examples.contexts[:1350], examples.targets[:1350])
    return METHODS[method].learn(dense, fit, options, 0).module


def compute_logprobs(module):
    with torch.inference_mode():
        return module.log_prob(torch.from_numpy(rows)).numpy()


def brute_force(logprobs, k):
    best = np.argsort(-logprobs, axis=1, kind="stable")[:, :k]
    return best, np.take_along_axis(logprobs, best, axis=1)
