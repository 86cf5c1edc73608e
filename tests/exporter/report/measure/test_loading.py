from pathlib import Path

import pytest
from shortlist.errors import BundleError
from shortlist_exporter.report.measure import loading


def test_a_load_in_a_process_of_its_own(reported):
    found = loading.loading_of(reported, "cpu", 1)
    assert found.seconds > 0
    assert found.private > 0
    assert found.mapped > 0


def test_a_load_that_fails_has_no_figures(tmp_path):
    assert loading.loading_of(tmp_path, "cpu", 1) is None
    with pytest.raises(BundleError):
        loading.measured(tmp_path, "cpu", 1)


def test_a_system_that_tells_nothing_of_memory(reported, monkeypatch):
    monkeypatch.setattr(loading, "SMAPS", Path("/nowhere"))
    found = loading.measured(reported, "cpu", 1)
    assert (found.private, found.mapped) == (None, None)
