"""The Pareto front: points than which none is both cheaper and more precise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shortlist_exporter.records.report import Point


def find_front(points: Sequence[Point], x: Callable[[Point], float]) -> list[Point]:
    """The front by cost `x` and P@1, cheapest first."""
    best: list[Point] = []
    for point in sorted(points, key=lambda point: (x(point), -point.precision[1])):
        if not best or point.precision[1] > best[-1].precision[1]:
            best.append(point)
    return best
