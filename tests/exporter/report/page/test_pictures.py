"""What a picture shows is tested by its figures; here that it keeps to the page and that labels do not meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from shortlist_exporter.records.report import Figures, Point
from shortlist_exporter.report.page import pictures
from shortlist_exporter.report.page.labels import write_beside
from shortlist_exporter.report.pareto_front import find_front

pytestmark = pytest.mark.slow


def point(times, precision):
    return Point(label="x", kind="tried", precision={1: precision}, times_dense=1 / times)


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 1)), min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats(pairs):
    points = [point(*pair) for pair in pairs]
    best = find_front(points, pictures.time_of)
    for one in points:
        at_least_as_good = [
            other
            for other in best
            if pictures.time_of(other) <= pictures.time_of(one) and other.precision[1] >= one.precision[1]
        ]
        assert at_least_as_good
    assert [one.precision[1] for one in best] == sorted({one.precision[1] for one in best})


def test_colours_are_the_page_s(report_bundle):
    figures = Figures.model_validate_json((report_bundle / "report" / "figures.json").read_bytes())
    for picture in pictures.draw_pictures(figures).values():
        assert "var(--ink)" in picture.svg
        assert not any(colour in picture.svg for colour in pictures.VARIABLES)
        assert "<text" in picture.svg, "text is text, in the page's font"
        assert picture.svg.startswith("<svg")


@pytest.mark.parametrize(("value", "text"), [(0.05, "1/20"), (0.4, "1/2.5"), (0.5, "1/2"), (1, "1"), (20, "20")])
def test_fractions(value, text):
    assert pictures.format_tick(value, 0) == text


@pytest.mark.parametrize(("least", "most"), [(0.9, 1.5), (1.1, 3.2), (0.3, 1.1), (1 / 90, 1), (0.02, 70)])
def test_times_that_lie_close_together_have_labels_too(least, most):
    axes = Figure(figsize=(4, 3)).subplots()
    points = [point(least, 0.9), point(most, 0.99)]
    pictures.plot_points(axes, points, pictures.time_of)
    axes.figure.draw_without_rendering()
    start, end = axes.get_xlim()
    labels = [tick.label1.get_text() for tick in axes.xaxis.get_major_ticks() if start <= tick.get_loc() <= end]
    assert len(set(labels)) == len(labels) >= 3


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
def test_labels_cover_neither_each_other_nor_leave_the_picture(places):
    figure = Figure(figsize=(4, 3))
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    write_beside(axes, [(x, y, f"label {i}", "black") for i, (x, y) in enumerate(places)])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    frame = axes.get_window_extent()
    for i, box in enumerate(boxes):
        assert frame.x0 - 3 <= box.x0
        assert box.x1 <= frame.x1 + 3
        assert not any(overlap(box, other) for other in boxes[:i])


def overlap(one, other):
    """Whether two boxes share more than an edge's width."""
    return min(one.x1, other.x1) - max(one.x0, other.x0) > 2 and min(one.y1, other.y1) - max(one.y0, other.y0) > 2
