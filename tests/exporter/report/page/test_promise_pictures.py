"""What rows of about equal risk missed, as a picture."""

from types import SimpleNamespace

import numpy as np
import pytest
from shortlist.evaluation.evaluator import summarize_depth
from shortlist_exporter.report.page.promise_pictures import draw_risk

pytestmark = pytest.mark.slow


def make_figures(rows):
    random = np.random.default_rng(0)
    risk = random.random(rows) ** 4
    asked = summarize_depth((random.random(rows) >= risk).astype(float), risk)
    return SimpleNamespace(domains=[SimpleNamespace(name="news", asked=asked), SimpleNamespace(name="x", asked=None)])


def test_every_band_is_a_point():
    figures = make_figures(3000)
    (axes,) = draw_risk(figures).axes
    (line,) = [line for line in axes.lines if line.get_label() == "news"]
    bands = figures.domains[0].asked.bands
    np.testing.assert_allclose(line.get_xdata(), [band.risk for band in bands])
    np.testing.assert_allclose(line.get_ydata(), [band.missed for band in bands])


def test_one_band_is_no_picture():
    assert draw_risk(make_figures(30)) is None
