"""The report's figures are those that brute force gives."""

import json

import numpy as np
import pytest
from shortlist.bundle.reader import Bundle
from shortlist.errors import BadInput
from shortlist.head import Head
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.methods.svd import Shape, estimate_cost
from shortlist_exporter.records.report import HELD_OUT, Figures
from shortlist_exporter.report.measure.answers import answer_sample
from shortlist_exporter.report.measure.figures import (
    count_candidates,
    measure_calibration,
    measure_documents,
    measure_domain,
    measure_sample,
)
from shortlist_exporter.report.measure.samples import Sample, compute_exact, name_samples, read_sample
from shortlist_exporter.report.measure.variants import make_variants

from tests.exporter.report.conftest import CONTEXTS
from tests.support.layers import logprobs_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

SHAPE = {"basis": "context", "preview": "fp32", "width": "6", "full_view": "160"}


@pytest.fixture(scope="module")
def svd_head(tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("svd"), make_dense(), CONTEXTS, options=SHAPE)


@pytest.fixture(scope="module")
def sample(svd_head):
    rows = make_contexts(200, seed=9).contexts
    return Sample("rows", rows, compute_exact(svd_head, rows, np.arange(200)))


def test_exact_answers_are_those_of_float64(sample):
    exact = logprobs_of(make_dense(), sample.contexts)
    assert (sample.truth.ids == np.argsort(-exact, axis=1)[:, :10]).all()
    np.testing.assert_allclose(sample.truth.logprobs, np.take_along_axis(exact, sample.truth.ids, axis=1), atol=1e-4)


def test_the_export_s_own_figures_come_out_again(report_bundle):
    """The report measures the same rows as the manifest's quality."""
    figures = Figures.model_validate_json((report_bundle / "report" / "figures.json").read_bytes())
    quality, own = Bundle(report_bundle).manifest.quality, figures.domains[0]
    assert (own.name, own.rows) == (HELD_OUT, quality.rows)
    found = {k: share.mean for k, share in own.precision.items()}
    assert found == pytest.approx({1: quality.p_at_1, 5: quality.p_at_5, 10: quality.p_at_10})
    assert own.error_mean == pytest.approx(quality.logprob_error_mean, rel=1e-3)
    assert own.error_hits_mean == pytest.approx(quality.logprob_error_hits_mean, rel=1e-3)
    assert own.error_hits_p99 < own.error_p99, "rows that miss their best class are off by most"
    assert figures.measured.points[0].macs == pytest.approx(quality.cost_macs)
    assert (figures.promise, figures.verdict.status) == ({1: 0.5}, "kept")


def test_multiply_adds_of_a_query_time_option_are_the_method_s_own(svd_head, sample):
    result, _ = measure_sample(svd_head, sample)
    by_label = {point.label: point for point in result.points}
    assert set(by_label) == {"this head", "full view 40", "full view 80", "full view 300", "dense"}
    for full_view in (40, 80, 300):
        cost = estimate_cost(make_dense(), Shape.model_validate(SHAPE | {"full_view": full_view}))
        point = by_label[f"full view {full_view}"]
        assert (point.macs, point.scored) == (pytest.approx(cost.macs), full_view)
        assert point.us > 0
    precision = [by_label[f"full view {full_view}"].precision[5] for full_view in (40, 80, 300)]
    assert precision == sorted(precision)
    assert by_label["dense"].precision == {1: 1, 5: 1, 10: 1}
    assert result.batch_times.keys() == {1, 8, 32}


def test_options_of_a_screen_change_what_is_opened(report_bundle):
    head = Head(Bundle(report_bundle), "cpu", 1)
    rows = make_contexts(200, seed=9).contexts
    plans = make_variants(head, rows)
    assert set(plans) == {"2 probes", "3 probes", "second probe for 10%", "second probe for 30%"}
    clusters = {label: np.mean([len(route) for route in plan.choose_routes(rows)]) for label, plan in plans.items()}
    assert clusters == pytest.approx(
        {"2 probes": 2, "3 probes": 3, "second probe for 10%": 1.1, "second probe for 30%": 1.3}, abs=0.02
    )
    assert {len(route) for route in head.plan.choose_routes(rows)} == {1}, "the head itself stays as it is"


def test_no_option_of_grouped_takes_the_slow_way(tmp_path):
    options = {"width": "8", "previewed": "256", "candidates": "128"}
    head = make_head(tmp_path, make_dense(4000), make_contexts(300), method="grouped", options=options)
    plans = make_variants(head, make_contexts(20).contexts)
    assert set(plans) == {"120 candidates", "256 candidates"}, "not more than are previewed"
    assert not any(plan.is_wide(10) for plan in plans.values())


def test_options_of_a_promise_are_other_promises(promise_head):
    plans = make_variants(promise_head, make_contexts(20).contexts)
    labels = [f"promise {value}" for value in (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)]
    assert list(plans) == [label for label in labels if label != f"promise {promise_head.manifest.promise}"]
    assert all(label == f"promise {plan.settings.promise:g}" for label, plan in plans.items())


def test_calibration_is_estimated_minus_exact(svd_head, sample):
    answers = answer_sample(svd_head, svd_head.plan, sample)
    top = svd_head.topk_by_plan(sample.contexts, 10)
    exact = np.take_along_axis(logprobs_of(make_dense(), sample.contexts), top.ids, axis=1)
    errors = top.logprobs - exact
    np.testing.assert_allclose(np.repeat(answers.measure_errors()[:, None], 10, axis=1), errors, atol=2e-4)
    result = measure_calibration(svd_head, answers)
    assert result.quantiles["p95"] == pytest.approx(np.percentile(errors[:, 0], 95), abs=2e-4)
    assert sum(band.rows for band in result.bands) == len(sample.contexts)
    assert [band.at for band in result.bands] == sorted(band.at for band in result.bands)


def test_candidates_are_counted():
    scored = np.array([3, 3, 5, 900], np.int32)
    result = count_candidates(scored)
    assert (sum(result.counts), result.edges[0], result.edges[-1]) == (4, 3, 900)
    assert result.summary["max"] == 900
    assert len(count_candidates(np.full(7, 30, np.int32)).counts) == 1


def test_documents_are_told_apart(svd_head, sample):
    """The first document's rows get wrong answers; one with too few rows is left out."""
    answers = answer_sample(svd_head, svd_head.plan, sample)
    numbers = np.repeat([7, 8, 9], [100, 95, 5]).astype(np.int32)
    answers.tops[1].ids[:100, 0] = -1
    result = measure_documents(numbers, answers)
    assert [(one.number, one.rows) for one in result] == [(7, 100), (8, 95)]
    assert result[0].p_at_1 == 0
    assert measure_documents(np.zeros(200, np.int32), answers) == []


def test_rows_of_a_file_are_distinct_and_keep_their_documents(tmp_path, svd_head):
    from safetensors.numpy import save_file

    rows = make_contexts(50).contexts
    twice = np.concatenate([rows, rows])
    numbers = np.arange(100, dtype=np.int32) % 50
    kinds = {"low": list(range(10)), "high": list(range(10, 50))}
    save_file({"contexts": twice, "documents": numbers}, tmp_path / "c.safetensors", {"kinds": json.dumps(kinds)})
    result = read_sample(svd_head, tmp_path / "c.safetensors", "c", 4096, 0)
    assert len(result.contexts) == 50
    assert (twice[result.documents] == result.contexts).all()
    assert (result.documents[result.kinds["low"]] < 10).all()
    domain = measure_domain(svd_head, result)
    assert {name: depth.rows for name, depth in domain.kinds.items()} == {"low": 10, "high": 40}
    assert domain.asked.rows == 50


def test_scores_that_overflow_name_the_row_of_the_file(tmp_path, svd_head):
    rows = make_contexts(30).contexts
    rows[17] = 3e38
    np.save(tmp_path / "c.npy", rows)
    with pytest.raises(BadInput, match="contexts row 17 is so large that its scores overflow"):
        read_sample(svd_head, tmp_path / "c.npy", "c", 4096, 0)


def test_a_single_row(tmp_path, svd_head):
    np.save(tmp_path / "c.npy", make_contexts(1).contexts)
    result, domain = measure_sample(svd_head, read_sample(svd_head, tmp_path / "c.npy", "c", 4096, 0))
    assert (domain.rows, result.timed_rows, sum(result.candidates.counts)) == (1, 1, 1)
    assert list(result.batch_times) == [1]


def test_files_of_one_name_are_called_by_their_paths(tmp_path):
    paths = [tmp_path / "a" / "x.npy", tmp_path / "b" / "x.npy", tmp_path / "y.npy"]
    assert name_samples(paths) == [str(paths[0]), str(paths[1]), "y"]


def test_a_layer_of_one_class(tmp_path):
    from shortlist_exporter.inputs.sources import Contexts, Dense

    out = tmp_path / "lm" / "1"
    request = Request("svd", {"basis": "context"}, threads=1, fallback=False, report=True)
    export(Dense(np.ones((1, 1), np.float32)), Contexts(np.array([[1.0], [2.0]], np.float32)), out, request)
    assert (out / "report" / "index.html").is_file()
