"""Heads with proofs, and the graphs of their bounds."""

from __future__ import annotations

from shortlist.bundle.reader import Bundle
from shortlist.runtime.session import Graph

from tests.support.layers import make_contexts, make_head

CLASSES, DIM = 600, 24
rows = make_contexts(64, DIM, seed=5).contexts


def proved(folder, dense, contexts=None, **request):
    """A head whose exact answers are proved."""
    contexts = make_contexts(dim=dense.dim) if contexts is None else contexts
    request = {"method": "full", "options": {}} | request
    return make_head(folder, dense, contexts, **request)


def graph_of(head):
    return Graph(Bundle(head.folder).graph("bounds"), "cpu", 1)
