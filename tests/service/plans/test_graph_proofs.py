"""Proofs by bounds.onnx and numpy: beside those by compiled loops."""

from __future__ import annotations

import numpy as np
import pytest
import shortlist
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.plans.graph_proofs import GraphProofs

from tests.support.layers import list_layers, make_contexts, make_dense
from tests.support.proofs import proved, rows

pytestmark = [pytest.mark.usefixtures("prove_small_layers"), pytest.mark.slow]

ALLOWED = ClassFilter(np.array([[7, 7, -1, 5, 1999, 1200]]), None)


@pytest.mark.parametrize("layer", list_layers(2003))
@pytest.mark.parametrize("lists", [UNRESTRICTED, ClassFilter(None, np.arange(300)[None]), ALLOWED])
def test_loops_and_the_graph_prove_the_same_ids(tmp_path, lists, layer):
    layer_head = proved(tmp_path, make_dense(2003, 27, **list_layers(2003)[layer]), make_contexts(dim=27))
    contexts, plan = make_contexts(50, 27, seed=8).contexts, layer_head.certified
    bundle = shortlist.bundle.Bundle(layer_head.folder)
    rows_of = layer_head.exact_rows
    graph = GraphProofs(bundle, plan.proofs.tables["scale"], plan.rounding, rows_of, "cpu", 1)
    (one, errors), (two, others) = (each.prove(contexts, 5, lists) for each in (plan.proofs, graph))
    both = np.isfinite(errors) & np.isfinite(others)
    assert both.mean() > 0.1
    np.testing.assert_array_equal(one.ids[both], two.ids[both])
    np.testing.assert_array_equal(one.logits[both], two.logits[both])
    off = np.abs(one.log_normalizer - two.log_normalizer)
    assert (off <= errors + others)[both].all()


def test_without_the_library_the_graph_proves_the_same(proved_head, no_library):
    other = shortlist.load(proved_head.folder)
    assert isinstance(other.certified.proofs, GraphProofs)
    one, two = (each.topk(rows, 5, exact=True) for each in (proved_head, other))
    np.testing.assert_array_equal(one.ids, two.ids)
    np.testing.assert_allclose(one.logprobs, two.logprobs, atol=2 * proved_head.manifest.certificate.logprob_bound)
