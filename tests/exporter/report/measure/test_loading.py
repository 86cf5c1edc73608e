from pathlib import Path

import pytest
from shortlist.errors import BundleError
from shortlist_exporter.report.measure import loading


def test_a_load_in_a_process_of_its_own(reported):
    found = loading.measure_in_process(reported, "cpu", 1)
    assert found.seconds > 0
    assert found.private > 0
    assert found.mapped > 0


def test_a_load_that_fails_has_no_figures(tmp_path):
    assert loading.measure_in_process(tmp_path, "cpu", 1) is None
    with pytest.raises(BundleError):
        loading.measure_loading(tmp_path, "cpu", 1)


def test_a_system_that_tells_nothing_of_memory(reported, monkeypatch):
    monkeypatch.setattr(loading, "SMAPS_FILE", Path("/nowhere"))
    found = loading.measure_loading(reported, "cpu", 1)
    assert (found.private, found.mapped) == (None, None)
