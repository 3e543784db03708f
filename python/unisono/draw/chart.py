"""Line charts: several series over a common, possibly logarithmic, x axis."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unisono.draw.svg import PALETTE, Svg

_WIDTH, _PLOT_HEIGHT = 760, 300
_LEFT, _TOP, _RIGHT, _BELOW = 66, 40, 18, 46
_LEGEND_LINE, _LEGEND_ITEM = 18, 225
_DASHES = ("none", "6 3", "2 3")


@dataclass(frozen=True)
class Series:
    """A named line.

    Attributes:
        points: (x, y), in the order of x; y above 0 where the axis is logarithmic.
        colour: Index into the palette; None takes the next one.
        dash: Index of the line's kind.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int | None = None
    dash: int = 0


@dataclass(frozen=True)
class Axis:
    """An axis: its label, whether it is logarithmic, and how its values are written."""

    label: str
    logarithmic: bool = False
    write: Callable[[float], str] = "{:g}".format
    base: int = 10


def draw_chart(
    title: str, x_axis: Axis, y_axis: Axis, series: Sequence[Series], *, standalone: bool = True
) -> str:
    """The chart, as SVG."""
    columns = (_WIDTH - _LEFT) // _LEGEND_ITEM
    legend_top = _TOP + _PLOT_HEIGHT + _BELOW
    height = legend_top + _LEGEND_LINE * -(-len(series) // columns) + 6
    svg = Svg(_WIDTH, height, title)
    svg.label(_LEFT, 20, title, class_="title")
    xs = _Scale(x_axis, [x for one in series for x, _ in one.points])
    ys = _Scale(y_axis, [y for one in series for _, y in one.points])
    plot_width = _WIDTH - _LEFT - _RIGHT

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + xs.share(x) * plot_width, _TOP + (1 - ys.share(y)) * _PLOT_HEIGHT

    for tick in xs.ticks():
        x, _ = place(tick, ys.low)
        svg.line(x, _TOP, x, _TOP + _PLOT_HEIGHT, class_="grid")
        svg.label(x, _TOP + _PLOT_HEIGHT + 15, x_axis.write(tick), anchor="middle")
    for tick in ys.ticks():
        _, y = place(xs.low, tick)
        svg.line(_LEFT, y, _LEFT + plot_width, y, class_="grid")
        svg.label(_LEFT - 6, y + 4, y_axis.write(tick), anchor="end")
    svg.label(_LEFT + plot_width / 2, _TOP + _PLOT_HEIGHT + 32, x_axis.label, anchor="middle")
    svg.label(_LEFT, _TOP - 6, y_axis.label)
    for index, one in enumerate(series):
        colour = PALETTE[(index if one.colour is None else one.colour) % len(PALETTE)]
        dash = _DASHES[one.dash % len(_DASHES)]
        _draw_series(svg, one, place, colour, dash, x_axis, y_axis)
        x, y = _LEFT + index % columns * _LEGEND_ITEM, legend_top + index // columns * _LEGEND_LINE
        svg.line(x, y, x + 18, y, stroke=colour, stroke_width=2, stroke_dasharray=dash)
        svg.label(x + 24, y + 4, one.name)
    return svg.text(standalone)


def _draw_series(
    svg: Svg,
    one: Series,
    place: Callable[[float, float], tuple[float, float]],
    colour: str,
    dash: str,
    x_axis: Axis,
    y_axis: Axis,
) -> None:
    points = [place(x, y) for x, y in one.points]
    svg.polyline(points, one.name, class_="line", stroke=colour, stroke_dasharray=dash)
    if len(points) > 40:
        return
    for (x, y), (value_x, value_y) in zip(points, one.points, strict=True):
        hover = f"{one.name}: {y_axis.write(value_y)} at {x_axis.write(value_x)}"
        svg.element("circle", hover, cx=x, cy=y, r=2.6, fill=colour)


class _Scale:
    """Where values are along an axis, and which of them are marked."""

    def __init__(self, axis: Axis, values: Sequence[float]) -> None:
        self._axis = axis
        low, high = (min(values), max(values)) if values else (1.0, 1.0)
        if axis.logarithmic:
            self.low = float(axis.base) ** math.floor(self._log(low) + 1e-9)
            self.high = float(axis.base) ** math.ceil(self._log(high) - 1e-9)
            if self.high <= self.low:
                self.high = self.low * axis.base
        else:
            self.low, self.high = min(0.0, low), high if high > min(0.0, low) else low + 1.0

    def _log(self, value: float) -> float:
        return math.log(value) / math.log(self._axis.base)

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self._axis.logarithmic:
            low = self._log(self.low)
            return (self._log(value) - low) / (self._log(self.high) - low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """At most ten or so values."""
        if self._axis.logarithmic:
            first, last = round(self._log(self.low)), round(self._log(self.high))
            every = max(1, -(-(last - first) // 10))
            return [float(self._axis.base) ** power for power in range(first, last + 1, every)]
        rough = (self.high - self.low) / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
        first = math.ceil(self.low / step)
        return [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
