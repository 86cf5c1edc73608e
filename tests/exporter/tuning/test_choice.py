"""From trials to one head: what fails on the test split gives way."""

from dataclasses import replace

import pytest
from shortlist.bundle.reader import Bundle
from shortlist_exporter.inputs.sources import Contexts
from shortlist_exporter.tuning.promises import measure_margin
from shortlist_exporter.tuning.tuner import NoHead, tune

from tests.exporter.tuning.conftest import contexts, dense, only, request_of, sample

pytestmark = pytest.mark.slow


def test_what_fails_on_test_gives_way_to_the_next_more_precise(cache, tmp_path, monkeypatch):
    only(monkeypatch, 48, 16, 256)
    harder = Contexts(sample(2000, 5, floor=0.3))
    record = tune(dense, contexts, tmp_path / "lm" / "1", request_of(cache), test=harder)
    test_trials = [trial for trial in record.trials if trial.test is not None]
    winner = record.trials[record.chosen]
    assert record.looks == len(test_trials) > 1
    assert f"after {record.looks - 1} that failed on test" in record.sentence
    assert winner.test.precision[1].low >= 0.95
    losers = [trial for trial in test_trials if trial is not winner]
    assert all(trial.test.precision[1].low < 0.95 or trial.test.precision[5].low < 0.9 for trial in losers)
    by_margin = sorted(test_trials, key=lambda trial: measure_margin(record.promise, trial.tune))
    assert by_margin[-1] is winner


def test_no_head_keeps_it_and_dense_only_where_allowed(cache, tmp_path, monkeypatch):
    only(monkeypatch, 24, 128, 256)
    request, elsewhere, out = request_of(cache), Contexts(sample(2000, 6, floor=1.0)), tmp_path / "lm" / "1"
    with pytest.raises(NoHead, match=r"no head that is faster than dense keeps P@1 >= 0.95, P@5 >= 0.9; of") as excinfo:
        tune(dense, contexts, out, request, test=elsewhere)
    assert "times dense: ask for less, or give --allow-dense to export dense, which always does" in str(excinfo.value)
    assert "on the test split" in str(excinfo.value)
    assert excinfo.value.record.chosen is None
    assert list(tmp_path.iterdir()) == []
    record = tune(dense, contexts, out, replace(request, allow_dense=True), test=elsewhere)
    assert record.trials[record.chosen].method == Bundle(out).manifest.method == "full"
    assert record.trials[record.chosen].test.precision[1].mean > 0.999
