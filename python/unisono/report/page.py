"""Fills the page: results as tables and plots, drawings of plans, training curves, the machine."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unisono import _unisono as native
from unisono.bench.machine import describe_machine
from unisono.bench.peers import OURS
from unisono.bench.ratios import Point, Summary, peers_in, points_of, summarise
from unisono.bench.rows import Row
from unisono.draw.svg import STYLE
from unisono.errors import MachineError
from unisono.report.plots import bandwidth_plot, ratio_plots, training_plots


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
    sizes: list[int]
    lines: list[tuple[str, str, list[Row | None]]]
    plot: str
    wrong: int = 0


@dataclass
class _Comparison:
    """Rows of several implementations, point by point, and what they come to."""

    peers: list[str]
    points: list[Point]
    summaries: list[Summary]
    plots: list[str]


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
        MachineError: jinja2 is not installed.
    """
    text = render_report(rows, title=title, drawings=drawings, training=training)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


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
    page: str = template.render(
        title=title,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=describe_machine(),
        headline=_headline(rows),
        sections=[_section(collective, rows) for collective in collectives],
        comparison=_compare(points) if points else None,
        drawings=drawings,
        training=training,
        training_plots=training_plots(training.curves) if training else [],
        svg_style=STYLE,
    )
    return page


def environment() -> Any:
    """Where templates are found, with their filters.

    Raises:
        MachineError: jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise MachineError(
            "writing HTML needs jinja2, which is not installed: pip install 'unisono[report]'"
        ) from None
    found = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader(__package__, ""),
    )
    found.filters["size"] = native.format_bytes
    return found


def _headline(rows: Sequence[Row]) -> _Headline:
    return _Headline(
        results=len(rows),
        wrong=sum(row.wrong > 0 for row in rows),
        collectives=len({row.collective for row in rows}),
        algorithms=len({(row.collective, row.algorithm) for row in rows}),
        ranks=sorted({row.ranks for row in rows}),
        nodes=sorted({row.nodes for row in rows}),
    )


def _compare(points: Sequence[Point]) -> _Comparison:
    return _Comparison(peers_in(points), list(points), summarise(points), ratio_plots(points))


def _section(collective: str, rows: Sequence[Row]) -> _Section:
    own = [row for row in rows if row.collective == collective]
    sizes = sorted({row.bytes for row in own})
    by_line: dict[tuple[str, str], dict[int, Row]] = {}
    for row in own:
        by_line.setdefault((row.algorithm, row.protocol), {})[row.bytes] = row
    lines = [
        (algorithm, protocol, [found.get(size) for size in sizes])
        for (algorithm, protocol), found in by_line.items()
    ]
    wrong = sum(row.wrong > 0 for row in own)
    return _Section(collective, sizes, lines, bandwidth_plot(collective, rows), wrong)
