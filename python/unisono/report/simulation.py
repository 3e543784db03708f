"""The simulator's report: one HTML file with plots of times and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unisono.draw.chart import Axis, Series, draw_chart
from unisono.draw.svg import STYLE
from unisono.report.page import environment
from unisono.report.plots import SIZE_AXIS

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


@dataclass
class Curve:
    """Times in microseconds by bytes; measured ones are dashed."""

    name: str
    is_measured: bool = False
    points: list[tuple[int, float]] = field(default_factory=list)


def render_simulation(
    title: str, about: str, plots: Mapping[str, Sequence[Curve]], tables: Mapping[str, Table]
) -> str:
    """The page as text.

    Args:
        title: Of the page.
        about: What the cluster is.
        plots: Curves by the plot's title.
        tables: Columns and rows by heading.

    Raises:
        MachineError: jinja2 is not installed.
    """
    page: str = (
        environment()
        .get_template("simulation.html.jinja")
        .render(
            title=title,
            about=about,
            plots=[_plot(name, curves) for name, curves in plots.items()],
            tables=tables,
            svg_style=STYLE,
        )
    )
    return page


def _plot(title: str, curves: Sequence[Curve]) -> str:
    names = list(dict.fromkeys(curve.name.rpartition(",")[0] or curve.name for curve in curves))
    series = [
        Series(
            curve.name,
            [(float(size), time_us) for size, time_us in curve.points],
            colour=names.index(curve.name.rpartition(",")[0] or curve.name),
            dash=1 if curve.is_measured else 0,
        )
        for curve in curves
    ]
    return draw_chart(title, SIZE_AXIS, Axis("time (us)", True), series, standalone=False)
