"""Fills the page: results as tables and plots, drawings of plans, training curves, the machine."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from unisono import _unisono as native
from unisono.bench.machine import describe_machine
from unisono.bench.peers import OURS
from unisono.bench.ratios import points_of
from unisono.bench.rows import Row
from unisono.draw.numbers import gb_s
from unisono.files import write_whole
from unisono.report.comparison import compare
from unisono.report.parts import Cell, Column, Table, empty, environment, number, size, text
from unisono.report.plots import bandwidth_plot, training_plots


@dataclass(frozen=True)
class Drawing:
    """A plan's drawing, made with `standalone=False`, and a sentence about it."""

    name: str
    svg: str
    about: str


@dataclass(frozen=True)
class Training:
    """What `examples/digits_numpy.py --json` wrote."""

    ranks: int
    nodes: int
    steps: int
    batch: int
    bound: float
    difference: dict[str, float]
    same_on_all_ranks: bool
    ok: bool
    curves: dict[str, dict[str, list[float]]]


@dataclass
class _Section:
    """A collective's results: sizes as columns, algorithm and protocol as lines."""

    collective: str
    table: Table
    plot: str
    wrong: int = 0


@dataclass
class _Headline:
    """The figures at the top."""

    results: int = 0
    wrong: int = 0
    collectives: int = 0
    algorithms: int = 0
    ranks: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)


def write_report(
    path: Path,
    rows: Sequence[Row],
    *,
    title: str = "Unisono report",
    drawings: Sequence[Drawing] = (),
    training: Training | None = None,
) -> None:
    """Writes the page.

    Raises:
        MachineError: jinja2 is not installed, or the page cannot be written.
    """
    text = render_report(rows, title=title, drawings=drawings, training=training)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)


def render_report(
    rows: Sequence[Row],
    *,
    title: str,
    drawings: Sequence[Drawing] = (),
    training: Training | None = None,
) -> str:
    """The page as text."""
    template = environment().get_template("page.html.jinja")
    points = points_of(rows)
    rows = [row for row in rows if row.implementation == OURS]
    collectives = list(dict.fromkeys(row.collective for row in rows))
    headline = _headline(rows)
    page: str = template.render(
        title=title,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=describe_machine(),
        warning=_warning(headline.ranks, os.cpu_count() or 1),
        headline=headline,
        glance=_glance(collectives, rows),
        sections=[_section(collective, rows) for collective in collectives],
        comparison=compare(points) if points else None,
        drawings=drawings,
        training=training,
        training_plots=training_plots(training.curves) if training else [],
        training_table=_training(training) if training else None,
    )
    return page


def _warning(ranks: Sequence[int], cores: int) -> str:
    if max(ranks, default=0) <= cores:
        return ""
    return (
        f"{max(ranks)} ranks shared {cores} core{'s' if cores > 1 else ''} and took turns: the "
        "times say little about the algorithms, and nothing about a network."
    )


def _headline(rows: Sequence[Row]) -> _Headline:
    return _Headline(
        results=len(rows),
        wrong=sum(row.wrong > 0 for row in rows),
        collectives=len({row.collective for row in rows}),
        algorithms=len({(row.collective, row.algorithm) for row in rows}),
        ranks=sorted({row.ranks for row in rows}),
        nodes=sorted({row.nodes for row in rows}),
    )


def _glance(collectives: Sequence[str], rows: Sequence[Row]) -> Table | None:
    """The fastest algorithm of each collective, for its smallest and its largest size."""
    found: list[list[Cell]] = []
    for collective in collectives:
        own = [row for row in rows if row.collective == collective and not row.wrong]
        sizes = sorted({row.bytes for row in own})
        for at in dict.fromkeys([*sizes[:1], *sizes[-1:]]):
            best = min((row for row in own if row.bytes == at), key=lambda row: row.time_us)
            no_data = empty(f"{collective} moves no data")
            found.append([
                text(collective),
                size(at),
                text(best.algorithm),
                text(best.protocol),
                number(best.time_us, ",.1f"),
                Cell(gb_s(best.busbw_gb_s), best.busbw_gb_s) if at else no_data,
            ])  # fmt: skip
    columns = (
        Column("collective", is_text=True), Column("size"), Column("algorithm", is_text=True),
        Column("protocol", is_text=True), Column("time", "µs"), Column("bus bandwidth"),
    )  # fmt: skip
    return Table(columns, found) if found else None


def _section(collective: str, rows: Sequence[Row]) -> _Section:
    own = [row for row in rows if row.collective == collective]
    sizes = sorted({row.bytes for row in own})
    by_line: dict[tuple[str, str], dict[int, Row]] = {}
    for row in own:
        by_line.setdefault((row.algorithm, row.protocol), {})[row.bytes] = row
    lines = []
    for (algorithm, protocol), found in by_line.items():
        cells = [
            _cell(found[at]) if at in found else empty(_why_empty(algorithm, protocol, at, own))
            for at in sizes
        ]
        lines.append([text(algorithm), text(protocol), *cells])
    columns = [Column("algorithm", is_text=True), Column("protocol", is_text=True)]
    columns += [
        Column(native.format_bytes(at), "µs · GB/s" if at else "µs", best="least") for at in sizes
    ]
    wrong = sum(row.wrong > 0 for row in own)
    return _Section(collective, Table(columns, lines), bandwidth_plot(collective, rows), wrong)


def _cell(row: Row) -> Cell:
    if row.wrong:
        return Cell(f"✗ {row.wrong}", str(row.wrong), f"{row.wrong} wrong elements", is_bad=True)
    shown = f"{row.busbw_gb_s:.3f}" if row.busbw_gb_s >= 0.001 else "< 0.001"
    busbw = f" · {shown}" if row.bytes else ""
    about = f"{row.type}, {row.bytes} bytes, algbw {row.algbw_gb_s:.3f} GB/s"
    return Cell(f"{row.time_us:.1f}{busbw} ✓", row.time_us, about)


def _why_empty(algorithm: str, protocol: str, size_bytes: int, rows: Sequence[Row]) -> str:
    others = [row.protocol for row in rows if (row.algorithm, row.bytes) == (algorithm, size_bytes)]
    at = native.format_bytes(size_bytes)
    if others and protocol != "simple":
        return f"{protocol} is for small messages: at {at} only {', '.join(others)} ran"
    if others:
        return f"{protocol} did not run at {at}; {', '.join(others)} did"
    return f"{algorithm} did not run at {at}"


def _training(training: Training) -> Table:
    rows = []
    for name, curve in training.curves.items():
        difference = training.difference.get(name)
        accuracy = number(100 * curve["accuracy"][-1], ".1f")
        if difference is None:
            rows.append([text(name), accuracy, empty("the others are compared with it")])
            continue
        good = difference <= training.bound
        shown = Cell(f"{difference:.1e} {'✓' if good else '✗'}", difference)
        rows.append([text(name), accuracy, replace(shown, is_good=good, is_bad=not good)])
    columns = (Column("training", is_text=True), Column("test accuracy", "%"),
               Column("weights differ by"))  # fmt: skip
    return Table(columns, rows)
