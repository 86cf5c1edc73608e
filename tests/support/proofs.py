"""Heads with proofs, and the graphs of their bounds."""

from __future__ import annotations

import numpy as np
from shortlist.bundle.reader import CERTIFICATE_FILE, Bundle
from shortlist.kernels.proofs import CompiledProofs
from shortlist.runtime.session import Graph

from tests.support.layers import logits_of, make_contexts, make_head

CLASSES, DIM = 600, 24
TIE = 1e-5  # of the largest logit
rows = make_contexts(64, DIM, seed=5).contexts


def proved(folder, dense, contexts=None, **request):
    """A head whose exact answers are proved."""
    contexts = make_contexts(dim=dense.dim) if contexts is None else contexts
    request = {"method": "full", "options": {}} | request
    return make_head(folder, dense, contexts, **request)


def graph_of(head):
    return Graph(Bundle(head.folder).graph("bounds"), "cpu", 1)


def check_best(top, logits, k):
    """Fail unless rank by rank the classes' true logits are the largest legal ones, ties aside."""
    largest = np.abs(np.where(np.isfinite(logits), logits, 0)).max(axis=1, keepdims=True)
    best = -np.sort(-logits, axis=1)[:, :k]
    known = top.ids >= 0
    assert (known == np.isfinite(best)).all(), "as many as are legal"
    scores = np.take_along_axis(logits, np.maximum(top.ids, 0), axis=1)
    most = (TIE * largest + 1e-30).repeat(k, axis=1)
    assert (np.abs(scores[known] - best[known]) <= most[known]).all()
    for ids in top.ids:
        assert len(set(ids[ids >= 0].tolist())) == np.count_nonzero(ids >= 0)


def check_bounds(head, dense, contexts):
    """Fail unless every true logit lies within its bounds, in float64: those of the graph, and of compiled loops."""
    certificate = Bundle(head.folder).tensors(CERTIFICATE_FILE)
    coarse, fine = certificate["four_bit_scale"], certificate["scale"]
    common, mean = (np.linalg.norm(certificate[name].astype(np.float64)) for name in ("common", "mean"))
    sizes = np.linalg.norm(contexts.astype(np.float64), axis=1, keepdims=True) + 1
    floor = head.certified.rounding.floor + 8 * 2.0**-24 * common * (mean + 1) * sizes
    logits = logits_of(dense, contexts)
    graph_estimates, spreads = graph_of(head)(context=contexts)
    parts = [(graph_estimates, fine, spreads)]
    is_compiled = isinstance(head.certified.proofs, CompiledProofs)  # tiny layers have their weights in the graphs
    if is_compiled:
        estimates, bounds = head.certified.proofs.bound(contexts)
        parts += [(estimates[:, 0], coarse, bounds[:, :1]), (estimates[:, 1], fine, bounds[:, 1:2])]
    for estimate, scale, reach in parts:
        sound = np.isfinite(logits) & np.isfinite(reach)
        with np.errstate(invalid="ignore"):
            off = np.abs(estimate - logits) - floor
            assert (off <= scale.astype(np.float64) * reach)[sound].all()
    if not is_compiled:
        return
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        off = np.maximum(np.abs(estimates[:, 0] - logits) - floor, 0) / coarse
        squares = np.where(np.isfinite(logits) & (coarse > 0), off, 0) ** 2
        assert (np.sqrt(squares.sum(axis=1)) <= bounds[:, 2])[np.isfinite(bounds[:, 2])].all()
