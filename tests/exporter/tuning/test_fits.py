"""Fits of a search that later ones find in the cache."""

import pytest
from shortlist_exporter.core.types import quiet
from shortlist_exporter.tuning.cache import Cache
from shortlist_exporter.tuning.fits import ABOUT_FILE, Fits
from shortlist_exporter.tuning.space import Build

from tests.support.layers import make_contexts, make_dense

BUILD, ROWS = Build("svd", (("width", "8"),)), 100


def open_fits(tmp_path):
    return Fits(Cache(tmp_path), make_dense(300, 16), make_contexts(dim=16), 0, keep_dense=True)


def test_a_fit_is_found_again(tmp_path):
    fit = open_fits(tmp_path).fit(BUILD, ROWS, quiet)
    again = open_fits(tmp_path).find(BUILD, ROWS)
    assert (again.folder, again.cost, again.seconds) == (fit.folder, fit.cost, fit.seconds)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"\xff"])
def test_a_fit_that_is_not_whole_is_made_again(tmp_path, content):
    fit = open_fits(tmp_path).fit(BUILD, ROWS, quiet)
    (fit.folder / ABOUT_FILE).write_bytes(content)
    assert open_fits(tmp_path).find(BUILD, ROWS) is None
    open_fits(tmp_path).fit(BUILD, ROWS, quiet)
    assert open_fits(tmp_path).find(BUILD, ROWS) is not None
