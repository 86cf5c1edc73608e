"""Shares by document, lost rows by probability, and what a contender finds on a kind."""

import numpy as np
import pytest
from shortlist.evaluation.truth import compute_truth, rank_logits

from benchmarks.datasets.kinds.base import Kind
from benchmarks.studies.domains.contenders import Asked
from benchmarks.studies.domains.inputs import TRUE_CLASSES, Domain
from benchmarks.studies.domains.measure import count_lost, measure_finding, share_by_document, time_kind
from tests.support.layers import logits_of, make_contexts, make_dense

DENSE = make_dense()
ROWS = make_contexts(rows=60, seed=3).contexts
LOGITS = logits_of(DENSE, ROWS).astype(np.float32)


def make_domain() -> Domain:
    kind = Kind("verse", ROWS, np.repeat(np.arange(6, dtype=np.int32), 10), in_mixture=False)
    truth = compute_truth(lambda rows, k: rank_logits(LOGITS[rows], k), ROWS, TRUE_CLASSES)
    return Domain(kind, truth, "0")


def ask_dense(rows, k):
    return np.argsort(-logits_of(DENSE, rows), axis=1, kind="stable")[:, :k]


def test_an_interval_by_document_is_wider_where_documents_differ():
    documents = np.repeat(np.arange(20, dtype=np.int32), 100)
    alike, apart = np.tile([1.0] * 9 + [0.0], 200), np.repeat([1.0] * 18 + [0.0] * 2, 100)
    for hits in (alike, apart):
        assert share_by_document(hits, documents).mean == pytest.approx(0.9)
    assert share_by_document(alike, documents).low == pytest.approx(0.9)
    spread = 1.96 * np.sqrt(0.9 * 0.1 / 19)
    assert share_by_document(apart, documents).low == pytest.approx(0.9 - spread, abs=1e-3)


def test_lost_rows_are_counted_by_the_probability_of_their_best_class():
    lost = np.array([True, True, False, True, True, True, False, False])
    probability = np.array([0.05, 0.3, 0.9, 0.5, 0.7, 0.1, 0.2, 0.6])
    assert count_lost(lost, probability) == (125.0, 250.0, 250.0)


def test_dense_finds_all_and_what_was_found_is_kept(tmp_path):
    calls = []

    def ask(rows, k):
        calls.append(k)
        return ask_dense(rows, k)

    finding = measure_finding(Asked("dense", ask, "1"), make_domain(), tmp_path)
    assert (finding.p1.mean, finding.p5.mean, finding.lost) == (1.0, 1.0, (0.0, 0.0, 0.0))
    assert (finding.rows, finding.documents) == (60, 6)
    asked = len(calls)
    assert measure_finding(Asked("dense", ask, "1"), make_domain(), tmp_path) == finding
    assert len(calls) == asked
    measure_finding(Asked("dense", ask, "of another fit"), make_domain(), tmp_path)
    assert len(calls) == 2 * asked


def test_a_contender_that_misses_is_seen_to(tmp_path):
    finding = measure_finding(
        Asked("second", lambda rows, k: ask_dense(rows, k + 1)[:, 1:], "1"), make_domain(), tmp_path
    )
    assert finding.p1.mean == 0
    assert finding.p5.mean == pytest.approx(0.8)
    assert sum(finding.lost) == pytest.approx(1000)


def test_times_are_beside_dense():
    calls = {"dense": lambda rows: ask_dense(rows, 5), "head": lambda rows: ask_dense(rows, 5)}
    paces = time_kind(calls, ROWS, 20, 1)
    assert list(paces) == ["head"]
    assert paces["head"].times_dense > 0
    assert paces["head"].p99 >= paces["head"].mean / 2
