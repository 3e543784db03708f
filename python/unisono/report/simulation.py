"""The simulator's reports: one HTML file with plots of times, tables and the critical path."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unisono.draw.chart import Axis, Bar, Series, draw_bars, draw_chart
from unisono.draw.numbers import time_us
from unisono.report.parts import (
    Cell,
    Column,
    Table,
    empty,
    environment,
    number,
    responsive,
    size,
    text,
)
from unisono.report.plots import SIZE_AXIS

if TYPE_CHECKING:
    from unisono.simulate import Simulated, SimulatedWorkload

_MOST_HOPS = 200


@dataclass
class Curve:
    """Times in microseconds by bytes.

    Attributes:
        of: The algorithm, whose colour and mark it has.
        dash: Index of the line's kind: the protocol's.
        band: Intervals (bytes, low, high) of the times, in microseconds.
    """

    name: str
    of: str = ""
    dash: int = 0
    is_measured: bool = False
    points: list[tuple[int, float]] = field(default_factory=list)
    band: list[tuple[int, float, float]] = field(default_factory=list)


def render_simulation(
    title: str, about: str, plots: Mapping[str, Sequence[Curve]], tables: Mapping[str, Table]
) -> str:
    """The page of curves as text.

    Args:
        title: The title of the page.
        about: What the cluster is.
        plots: Curves by the plot's title; where there is one size only, they are bars.
        tables: By heading.

    Raises:
        MachineError: jinja2 is not installed.
    """
    return render_page(title, about, [_plot(*plot) for plot in plots.items()], tables)


def render_page(title: str, about: str, plots: Sequence[str], tables: Mapping[str, Table]) -> str:
    """The page as text, of plots that are drawn."""
    template = environment().get_template("simulation.html.jinja")
    page: str = template.render(title=title, about=about, plots=plots, tables=tables)
    return page


def _plot(title: str, curves: Sequence[Curve]) -> str:
    sizes = {bytes for curve in curves for bytes, _ in curve.points}  # noqa: A001
    if len(sizes) == 1:
        bars = [Bar(curve.name, curve.points[0][1], curve.of) for curve in curves]
        for curve in curves:
            for _, *ends in curve.band[:1]:
                names = (f"{curve.name}, from", f"{curve.name}, to")
                bars += [Bar(name, us, curve.of) for name, us in zip(names, ends, strict=True)]
        bars.sort(key=lambda bar: bar.value)
        heading = f"{title}, {SIZE_AXIS.write(sizes.pop())}"
        axis = Axis("time", write=time_us)
        return responsive(
            lambda width: draw_bars(heading, axis, bars, width=width, standalone=False)
        )
    series = [
        Series(
            curve.name, [(float(bytes), us) for bytes, us in curve.points],  # noqa: A001
            of=curve.of, dash=curve.dash, is_measured=curve.is_measured, band=curve.band,
        )
        for curve in curves
    ]  # fmt: skip
    axis = Axis("time", True, time_us)
    return responsive(
        lambda width: draw_chart(title, SIZE_AXIS, axis, series, width=width, standalone=False)
    )


def path_tables(one: "Simulated | SimulatedWorkload", of: str = "") -> dict[str, Table]:
    """The critical path, if it was asked for: what takes its time, and its messages."""
    if not one.shares:
        return {}
    shares = [
        (text(name), number(us), part(us, one.time_us))
        for name, us in sorted(one.shares.items(), key=lambda share: -share[1])
        if us > 0
    ]
    columns = (
        Column("from rank"), Column("to rank"), Column("size"), Column("sent", "µs"),
        Column("arrived", "µs"), Column("under way", "µs"),
    )  # fmt: skip
    hops = [
        (number(hop.sender, "d"), number(hop.receiver, "d"), size(hop.bytes), number(hop.sent_us),
         number(hop.arrived_us), number(hop.arrived_us - hop.sent_us))
        for hop in one.hops[-_MOST_HOPS:]
    ]  # fmt: skip
    notes = []
    if len(one.hops) > _MOST_HOPS:
        notes.append(f"{len(one.hops) - _MOST_HOPS:,} messages came before these.")
    if one.simulated_ranks < one.ranks:
        notes.append(
            f"{one.simulated_ranks} of {one.ranks} ranks were simulated: each represents all that "
            "do the same at the same times, and a message to one of these is shown as one to it."
        )
    heads = (Column("share", is_text=True), Column("time", "µs"), Column("of the time", "%"))
    many = (
        ""
        if hops or not one.path_messages
        else (f"{one.path_messages:,} messages are on it; a run of so many keeps no list of them.")
    )
    tables = {f"Critical path{of}": Table(heads, shares, note=many)}
    if hops:
        tables["Messages of the critical path"] = Table(columns, hops, note=" ".join(notes))
    return tables


def part(value: float, total: float) -> Cell:
    """A part of a whole, in percent."""
    return number(100 * value / total, ".1f") if total > 0 else empty("nothing took time")
