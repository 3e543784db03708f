"""The report's comparison with other libraries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unisono import _unisono as native
from unisono.bench.ratios import Point, peers_in, summarise
from unisono.report.parts import Cell, Column, Table, empty, number, size, text
from unisono.report.plots import ratio_plots

# Ratios of their time to ours that are marked.
_GOOD, _BAD = 1.5, 0.9


@dataclass
class Comparison:
    """Rows of several implementations, point by point, and what they come to."""

    summary: Table
    points: Table
    plots: list[str]


def compare(points: Sequence[Point]) -> Comparison:
    """The tables and plots of some points."""
    peers = peers_in(points)
    summaries = [
        [
            text(line.name),
            *(
                _ratio(line.means[peer]) if peer in line.means
                else empty(f"{peer} was not measured")
                for peer in peers
            ),
            _ratio(line.means["best"]),
            _ratio(line.worst.ratio("best")),
            text(f"{line.worst.ours.collective} {native.format_bytes(line.worst.ours.bytes)}"),
        ]
        for line in summarise(points)
    ]  # fmt: skip
    summary = Table(
        (Column("geometric mean of ratios", is_text=True), *map(Column, peers), Column("best"),
         Column("worst"), Column("worst at", is_text=True)), summaries,
    )  # fmt: skip
    columns = (
        Column("collective", is_text=True), Column("size"), Column("ours", "µs"),
        *(Column(peer, "µs") for peer in peers), *(Column(f"{peer} / ours") for peer in peers),
        Column("best / ours"),
    )  # fmt: skip
    every = Table(columns, [_row(point, peers) for point in points])
    return Comparison(summary, every, ratio_plots(points))


def _ratio(value: float) -> Cell:
    return replace(number(value), is_good=value >= _GOOD, is_bad=value < _BAD)


def _row(point: Point, peers: Sequence[str]) -> list[Cell]:
    ours = point.ours
    times, ratios = [], []
    for peer in peers:
        if peer in point.peers:
            theirs = point.peers[peer]
            times.append(replace(number(theirs.time_us), why=theirs.algorithm))
            ratios.append(_ratio(point.ratio(peer)))
            continue
        at = native.format_bytes(ours.bytes)
        times.append(empty(f"{peer} was not measured for {ours.collective} of {at}"))
        ratios.append(times[-1])
    best = _ratio(point.ratio("best"))
    return [text(ours.collective), size(ours.bytes), number(ours.time_us), *times, *ratios, best]
