from pathlib import Path

import pytest
from shortlist.errors import BundleError
from shortlist_exporter.report.measure import loading


def test_a_load_in_a_process_of_its_own(report_bundle):
    result = loading.measure_in_process(report_bundle, "cpu", 1)
    assert result.seconds > 0
    assert result.private > 0
    assert result.mapped > 0


def test_a_load_that_fails_has_no_figures(tmp_path):
    assert loading.measure_in_process(tmp_path, "cpu", 1) is None
    with pytest.raises(BundleError):
        loading.measure_loading(tmp_path, "cpu", 1)


def test_a_system_that_tells_nothing_of_memory(report_bundle, monkeypatch):
    monkeypatch.setattr(loading, "SMAPS_FILE", Path("/nowhere"))
    result = loading.measure_loading(report_bundle, "cpu", 1)
    assert (result.private, result.mapped) == (None, None)
