"""What a bundle says of the packages that made it."""

from importlib import metadata

import numpy as np
import pytest
from shortlist_exporter.core import provenance


@pytest.fixture(autouse=True)
def fresh_versions():
    """Versions are read anew, before this test and after it."""
    provenance.list_versions.cache_clear()
    yield
    provenance.list_versions.cache_clear()


def test_versions_are_those_of_installed_packages():
    versions = provenance.list_versions()
    assert versions["numpy"] == np.__version__
    assert all(metadata.version(name) == version for name, version in versions.items())


def test_a_package_that_is_absent_is_left_out(monkeypatch):
    monkeypatch.setattr(provenance, "RECORDED_PACKAGES", ("numpy", "absent-package"))
    assert list(provenance.list_versions()) == ["numpy"]


def test_a_broken_package_that_bundles_do_not_need_stops_no_export(tmp_path, monkeypatch):
    """As an interrupted `pip uninstall` leaves one: its metadata gives no name."""
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info" / "METADATA").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert "numpy" in provenance.list_versions()
