"""What `shortlist tune` left beside the bundle enters its report."""

import pytest
from shortlist.bundle.reader import Bundle
from shortlist.evaluation.statistics import Share
from shortlist.head import Head
from shortlist_exporter.records import tuning
from shortlist_exporter.report.measure import tune_record
from shortlist_exporter.report.verdict import TUNE_SOURCE
from shortlist_exporter.report.write import write_report

pytestmark = pytest.mark.slow


def make_figures(precision, speedup):
    share = Share(mean=precision, low=precision - 0.01, high=min(1, precision + 0.01))
    return tuning.SplitFigures(
        rows=100, precision={1: share, 5: share}, logprob_error=0.1, logprob_error_high=0.2, us=50.0, us_p99=60.0,
        dense_us=50.0 * speedup, speedup=speedup, scored=40.0, dense_share=0.0,
    )  # fmt: skip


def trial(width, tune, test=None):
    return tuning.Trial(
        method="svd", options={"width": str(width)}, setting={"full_view": 9}, rung=0, fit_rows=100, fit_seconds=1.0,
        bytes=1000, cost_macs=0.1, cost_bytes=0.1, tune=tune, test=test,
    )  # fmt: skip


def make_record():
    part = tuning.Part(rows=100)
    trials = [trial(3, make_figures(0.7, 9.0)), trial(4, make_figures(0.9, 5.0), make_figures(0.8, 4.0))]
    promise = tuning.Promise(precision={1: 0.5})
    return tuning.TuneRecord(
        promise=promise, fit=part, tune=part, test=part, trials=trials, chosen=1, sentence="Tried two heads."
    )


def test_trials_are_points_those_on_test_before_those_on_tune(bundle_folder):
    tuning.write_record(bundle_folder, make_record())
    result = tune_record.read_trials(bundle_folder)
    assert (result.targets, result.batch) == ({1: 0.5}, 1)
    assert [(one.label, one.precision[1], one.times_dense) for one in result.points] == [
        ("svd width=3 full_view=9", 0.7, 9.0),
        ("svd width=4 full_view=9", 0.8, 4.0),
    ]


def test_no_record_and_one_that_is_not_understood(bundle_folder):
    assert tune_record.read_trials(bundle_folder) is None
    (bundle_folder / "report" / "tune.json").write_text('{"format": 99}')
    assert tune_record.read_trials(bundle_folder) is None


def test_a_report_shows_what_was_tried_and_keeps_the_record(bundle_folder):
    (bundle_folder / "report" / "figures.json").unlink()  # which holds what the export was asked for
    tuning.write_record(bundle_folder, make_record())
    bundle = Bundle(bundle_folder)
    figures = write_report(bundle, Head(bundle, "cpu", 1), [])
    assert (figures.promise, figures.promise_source) == ({1: 0.5}, TUNE_SOURCE)
    text = (bundle_folder / "report" / "index.html").read_text("utf-8")
    assert "svd width=4 full_view=9" in text
    assert "Tried two heads." in text
    assert tuning.read_record(bundle_folder) == make_record()
