"""Bytes that proved exact answers read."""

import numpy as np
import pytest
from shortlist.kernels.proofs import ANCHOR_CLASSES, CompiledProofs

from benchmarks.studies.kernels.reads import count_candidates, measure_reads
from tests.support.layers import make_contexts, make_dense, make_head
from tests.support.proofs import proved

pytestmark = [pytest.mark.usefixtures("prove_small_layers"), pytest.mark.slow]

CLASSES, DIM = 2003, 27


def test_every_part_that_is_read_counts(tmp_path):
    head, contexts = (
        proved(tmp_path, make_dense(CLASSES, DIM), make_contexts(dim=DIM)),
        make_contexts(20, DIM, 8).contexts,
    )
    proofs = head.certified.proofs
    assert isinstance(proofs, CompiledProofs)
    counts = count_candidates(proofs, contexts)
    assert counts.min() >= ANCHOR_CLASSES
    assert counts.max() <= CLASSES
    share, dense_bytes = measure_reads(head, contexts), 4 * CLASSES * DIM
    least = proofs.tables["four_bits"].nbytes + proofs.tables["change"].nbytes + DIM * counts.mean()
    assert share is not None
    assert share * dense_bytes >= least + 4 * DIM * ANCHOR_CLASSES
    wide = np.float32(100) * contexts  # probabilities of few classes, so that few weigh
    assert count_candidates(proofs, wide).mean() <= counts.mean()


def test_a_head_without_proofs_has_no_such_share(tmp_path):
    head = make_head(tmp_path, make_dense(), make_contexts(), method="svd", certificate=False)
    assert measure_reads(head, make_contexts(2).contexts) is None
