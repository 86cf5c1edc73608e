"""Places for labels beside points such that no label covers a point or another label."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes

FONT_POINTS = 8
CHARACTER_POINTS, LINE_POINTS = 4.6, 10.0  # width and height of text at that size
REACH_POINTS, LIFT_POINTS = 7.0, 11.0  # from a point's middle to its label


@dataclass(frozen=True)
class Box:
    """A rectangle in points, from the axes' lower left corner."""

    left: float
    low: float
    right: float
    high: float

    def meets(self, other: Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.high <= other.low or other.high <= self.low)

    def inside(self, other: Box) -> bool:
        """Whether the other holds all of this one."""
        return (
            other.left <= self.left and self.right <= other.right and other.low <= self.low and self.high <= other.high
        )


def write_beside(axes: Axes, points: list[tuple[float, float, str, str]]) -> None:
    """Text of a colour beside every (x, y, text, colour), in order; one for which there is no room is left out."""
    scale = 72 / axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    axes.get_figure(root=True).draw_without_rendering()  # type: ignore[union-attr]
    frame = axes.get_window_extent()
    room = Box(0, 0, frame.width * scale, frame.height * scale)
    pixels = axes.transData.transform([(x, y) for x, y, _, _ in points]) - (frame.x0, frame.y0)
    places = [(float(x) * scale, float(y) * scale) for x, y in pixels]
    occupied = [Box(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    for (x, y, text, colour), place in zip(points, places, strict=True):
        for right, up in ((1, 0), (-1, 0), (1, -1), (1, 1), (-1, -1), (-1, 1)):
            box = place_beside(place, text, right, up)
            if box.inside(room) and not any(box.meets(other) for other in occupied):
                occupied.append(box)
                offset, side = (REACH_POINTS * right, LIFT_POINTS * up), "left" if right > 0 else "right"
                label = axes.annotate(
                    text, (x, y), offset, textcoords="offset points", fontsize=FONT_POINTS, color=colour
                )
                label.set(ha=side, va="center")
                break


def place_beside(place: tuple[float, float], text: str, right: int, up: int) -> Box:
    """The rectangle of a text to the right or left of a place, and level, above or below."""
    near, far = place[0] + REACH_POINTS * right, place[0] + (REACH_POINTS + CHARACTER_POINTS * len(text)) * right
    middle = place[1] + LIFT_POINTS * up
    return Box(min(near, far), middle - LINE_POINTS / 2, max(near, far), middle + LINE_POINTS / 2)
