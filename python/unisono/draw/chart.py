"""Charts: lines over a common, possibly logarithmic, x axis; and bars."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unisono.draw.look import DASHES, look_of
from unisono.draw.scale import Axis, Scale
from unisono.draw.svg import Svg

__all__ = ["NARROW", "WIDE", "Axis", "Bar", "Series", "draw_bars", "draw_chart"]

# Widths in pixels: of a page, and of a telephone.
WIDE, NARROW = 760, 340
_PLOT_HEIGHT = 300
_LEFT, _TOP, _RIGHT, _BELOW = 74, 44, 26, 46
_LEGEND_LINE, _LEGEND_ITEM = 18, 225
# Names at the ends of lines, where there is room: so far apart.
_NAME_LINE, _NAME_GAP, _LETTER = 12.5, 22, 6.1
_TITLE_SIZE, _TITLE_LETTER = 15, 0.6
_MOST_MARKED_POINTS = 40
_BAR_LINE = 20

Place = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Series:
    """A named line.

    Attributes:
        points: (x, y), in the order of x; y above 0 where the axis is logarithmic.
        of: What it has colour and mark of; "": its name.
        dash: Index of the line's kind.
        is_measured: Hollow marks without a line between them.
        band: Intervals (x, low, high) around the points, which are filled.
    """

    name: str
    points: Sequence[tuple[float, float]]
    of: str = ""
    dash: int = 0
    is_measured: bool = False
    band: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class Bar:
    """A named bar; it has the colour of `of`, or else of its name."""

    name: str
    value: float
    of: str = ""


def draw_chart(
    title: str,
    x_axis: Axis,
    y_axis: Axis,
    series: Sequence[Series],
    *,
    width: int = WIDE,
    standalone: bool = True,
) -> str:
    """The chart, as SVG: names stand at the lines where there is room, or below."""
    at_lines = width >= WIDE and len(series) * _NAME_LINE <= _PLOT_HEIGHT
    columns = max(1, (width - 20) // _LEGEND_ITEM)
    legend_lines = 0 if at_lines else -(-len(series) // columns)
    legend_top = _TOP + _PLOT_HEIGHT + _BELOW
    svg = Svg(width, legend_top + _LEGEND_LINE * legend_lines + 6, title)
    _draw_title(svg, title, width)
    right = _RIGHT
    if at_lines:
        right += round(_NAME_GAP + _LETTER * max((len(one.name) for one in series), default=0))
    xs = Scale(x_axis, [x for one in series for x, _ in one.points])
    ends = [y for one in series for _, *interval in one.band for y in interval]
    ys = Scale(y_axis, [*(y for one in series for _, y in one.points), *ends])
    plot_width = width - _LEFT - right

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + xs.share(x) * plot_width, _TOP + (1 - ys.share(y)) * _PLOT_HEIGHT

    _draw_axes(svg, x_axis, y_axis, xs, ys, place, plot_width)
    for one in series:
        _draw_band(svg, one, place)
    for one in series:
        _draw_series(svg, one, place, x_axis, y_axis)
    if at_lines:
        _name_lines(svg, series, place, _LEFT + plot_width)
    else:
        for index, one in enumerate(series):
            x = 12 + index % columns * _LEGEND_ITEM
            _draw_key(svg, one, x, legend_top + index // columns * _LEGEND_LINE)
    return svg.text(standalone)


def draw_bars(
    title: str,
    axis: Axis,
    bars: Sequence[Bar],
    *,
    width: int = WIDE,
    standalone: bool = True,
) -> str:
    """A bar for each value, labelled with the value, in the order given."""
    svg = Svg(width, _TOP + _BAR_LINE * len(bars) + 10, title)
    _draw_title(svg, title, width)
    svg.label(12, _TOP - 8, axis.label)
    left = 16 + _LETTER * max((len(bar.name) for bar in bars), default=0)
    room = width - left - 84
    most = max((bar.value for bar in bars), default=0.0)
    for index, bar in enumerate(bars):
        y = _TOP + index * _BAR_LINE
        svg.label(left - 6, y + 13, bar.name, anchor="end", class_="chart-name")
        length = room * bar.value / most if most > 0 else 0.0
        text = axis.write(bar.value)
        colour = look_of(bar.of or bar.name).colour
        svg.rect(left, y + 2, max(length, 1.0), _BAR_LINE - 5, f"{bar.name}: {text}", class_="bar",
                 fill=colour)  # fmt: skip
        svg.label(left + length + 6, y + 13, text)
    return svg.text(standalone)


def _draw_title(svg: Svg, title: str, width: int) -> None:
    """Smaller where it would be cut."""
    size = min(_TITLE_SIZE, (width - 20) / max(1, len(title)) / _TITLE_LETTER)
    svg.label(12, 18, title, class_="title", style=f"font-size: {size:.1f}px")


def _draw_axes(
    svg: Svg, x_axis: Axis, y_axis: Axis, xs: Scale, ys: Scale, place: Place, width: float
) -> None:
    bottom = _TOP + _PLOT_HEIGHT
    for tick in xs.ticks(most=max(2, round(width / 56))):
        x, _ = place(tick, ys.low)
        svg.line(x, _TOP, x, bottom, class_="grid")
        label = x_axis.write(tick)
        # The last one may be longer than the margin.
        x = min(x, svg.width - _LETTER / 2 * len(label) - 2)
        svg.label(x, bottom + 15, label, anchor="middle")
    for tick in ys.ticks():
        _, y = place(xs.low, tick)
        svg.line(_LEFT, y, _LEFT + width, y, class_="grid")
        svg.label(_LEFT - 6, y + 4, y_axis.write(tick), anchor="end")
    svg.label(_LEFT + width / 2, bottom + 32, x_axis.label, anchor="middle")
    svg.label(12, _TOP - 10, y_axis.label)


def _draw_band(svg: Svg, one: Series, place: Place) -> None:
    if not one.band:
        return
    highs = [place(x, high) for x, _, high in one.band]
    lows = [place(x, low) for x, low, _ in reversed(one.band)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*highs, *lows])
    colour = look_of(one.of or one.name).colour
    svg.element("polygon", f"{one.name}: interval", points=points, fill=colour, opacity=0.18)


def _draw_series(svg: Svg, one: Series, place: Place, x_axis: Axis, y_axis: Axis) -> None:
    look = look_of(one.of or one.name)
    points = [place(x, y) for x, y in one.points]
    if not one.is_measured:
        svg.polyline(points, one.name, class_="line", stroke=look.colour,
                     stroke_dasharray=DASHES[one.dash % len(DASHES)])  # fmt: skip
        if len(points) > _MOST_MARKED_POINTS:
            return
    for (x, y), (value_x, value_y) in zip(points, one.points, strict=True):
        hover = f"{one.name}: {y_axis.write(value_y)} at {x_axis.write(value_x)}"
        _draw_mark(svg, look.mark, x, y, look.colour, one.is_measured, hover)


def _draw_mark(
    svg: Svg, mark: str, x: float, y: float, colour: str, is_hollow: bool, hover: str = ""
) -> None:
    r = 3.4
    corners = {
        "square": ((-r, -r), (r, -r), (r, r), (-r, r)),
        "triangle": ((0, -r - 1), (r + 0.6, r), (-r - 0.6, r)),
        "down": ((0, r + 1), (r + 0.6, -r), (-r - 0.6, -r)),
        "diamond": ((0, -r - 1), (r + 1, 0), (0, r + 1), (-r - 1, 0)),
        "plus": ((-1, -r), (1, -r), (1, -1), (r, -1), (r, 1), (1, 1), (1, r), (-1, r), (-1, 1),
                 (-r, 1), (-r, -1), (-1, -1)),
        "cross": ((-r, -2), (-2, -r), (0, -1.4), (2, -r), (r, -2), (1.4, 0), (r, 2), (2, r),
                  (0, 1.4), (-2, r), (-r, 2), (-1.4, 0)),
    }  # fmt: skip
    fill = "none" if is_hollow else colour
    if mark == "circle":
        svg.element("circle", hover, cx=x, cy=y, r=r - 0.4, fill=fill, stroke=colour)
        return
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners[mark])
    svg.element("polygon", hover, points=points, fill=fill, stroke=colour)


def _draw_key(svg: Svg, one: Series, x: float, y: float) -> None:
    look = look_of(one.of or one.name)
    if not one.is_measured:
        svg.line(x, y, x + 22, y, stroke=look.colour, stroke_width=2,
                 stroke_dasharray=DASHES[one.dash % len(DASHES)])  # fmt: skip
    _draw_mark(svg, look.mark, x + 11, y, look.colour, one.is_measured)
    svg.label(x + 28, y + 4, one.name, class_="chart-name")


def _name_lines(svg: Svg, series: Sequence[Series], place: Place, right: float) -> None:
    """Each name at the height of its last point, or as near as the others let it be."""
    ends = [(place(*one.points[-1]), one) for one in series if one.points]
    ends.sort(key=lambda end: end[0][1])
    places = spread([y for (_, y), _ in ends], _NAME_LINE, _TOP, _TOP + _PLOT_HEIGHT)
    for ((x, y), one), at in zip(ends, places, strict=True):
        look = look_of(one.of or one.name)
        svg.line(x + 5, y, right + 9, at, stroke=look.colour, stroke_width=0.8, stroke_opacity=0.6)
        _draw_mark(svg, look.mark, right + 14, at, look.colour, one.is_measured)
        svg.label(right + _NAME_GAP, at + 4, one.name, class_="chart-name")


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in order, at least `gap` apart and near to what was wanted, which is in order."""
    placed: list[float] = []
    for value in wanted:
        placed.append(max(value, placed[-1] + gap if placed else low))
    limit = max(high, low + gap * (len(placed) - 1))
    for i in range(len(placed) - 1, -1, -1):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - gap
    return placed
