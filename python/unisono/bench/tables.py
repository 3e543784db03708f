"""Rows as tables for the terminal."""

from collections.abc import Sequence

from rich.text import Text

from unisono import _unisono as native
from unisono.bench.ratios import Point, peers_in, points_of, summarise
from unisono.bench.rows import Row
from unisono.tables import Table, label, number

# The goals compared with the fastest peer: on the average, and at every point.
_GOOD_RATIO, _LEAST_RATIO = 1.5, 0.9


def table_of(rows: Sequence[Row]) -> Table:
    """All columns that nccl-tests has, a line for each row."""
    table = Table(
        [
            label("collective", folds=True),
            label("algorithm", folds=True),
            label("protocol", folds=True),
            label("type", folds=True),
            number("size"),
            number("time\n(us)"),
            number("algbw\n(GB/s)"),
            number("busbw\n(GB/s)"),
            number("wrong"),
        ],
        keys=5,
    )
    for row in rows:
        table.add_row(
            row.collective,
            row.algorithm,
            row.protocol,
            row.type,
            native.format_bytes(row.bytes),
            f"{row.time_us:.1f}",
            f"{row.algbw_gb_s:.3f}",
            f"{row.busbw_gb_s:.3f}",
            wrong_text(row.wrong),
        )
    return table


def summary_of(rows: Sequence[Row]) -> Table:
    """A line for each algorithm: how many results, whether all are right, the best bandwidth."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.collective, row.algorithm), []).append(row)
    table = Table(
        [
            label("collective"),
            label("algorithm"),
            label("protocols", folds=True),
            number("results"),
            number("wrong"),
            number("smallest\n(us)"),
            number("best busbw\n(GB/s)"),
        ],
        keys=2,
    )
    previous = ""
    for (collective, algorithm), group in groups.items():
        table.add_row(
            collective if collective != previous else "",
            algorithm,
            " ".join(dict.fromkeys(row.protocol for row in group)),
            len(group),
            wrong_text(sum(row.wrong > 0 for row in group)),
            f"{min((row.bytes, row.time_us) for row in group)[1]:.1f}",
            f"{max(row.busbw_gb_s for row in group):.3f}",
        )
        previous = collective
    return table


def comparison_table(rows: Sequence[Row]) -> Table:
    """Times of all implementations, and how many times as fast ours is as each and the fastest."""
    points = points_of(rows)
    peers = peers_in(points)
    table = Table(
        [
            label("collective", folds=True),
            number("size"),
            number("ours\n(us)"),
            *(number(f"{peer}\n(us)") for peer in peers),
            *(number(f"{peer}\n/ ours") for peer in peers),
            number("best\n/ ours"),
            label("best peer"),
            number("wrong"),
        ],
        keys=2,
    )
    for point in points:
        table.add_row(*_comparison_cells(point, peers))
    return table


def comparison_summary(rows: Sequence[Row]) -> Table:
    """Geometric means of the ratios and the worst point, by collective and of all."""
    points = points_of(rows)
    names = [*peers_in(points), "best"]
    table = Table(
        [
            label("geometric\nmean"),
            *(number(f"{name}\n/ ours") for name in names),
            number("worst"),
            label("at"),
        ]
    )
    for summary in summarise(points):
        worst = summary.worst
        table.add_row(
            summary.name,
            *(ratio_text(summary.means[name]) for name in names),
            ratio_text(worst.ratio("best")),
            f"{worst.ours.collective} {native.format_bytes(worst.ours.bytes)}",
        )
    return table


def wrong_text(wrong: int) -> Text:
    """A number of wrong elements or results: red where there are any."""
    return Text(str(wrong), "bold red" if wrong else "")


def ratio_text(ratio: float) -> Text:
    """A ratio, green where it meets the goal and red where it is less than it may be anywhere."""
    style = "green" if ratio >= _GOOD_RATIO else "bold red" if ratio < _LEAST_RATIO else ""
    return Text(f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}", style)


def _comparison_cells(point: Point, peers: Sequence[str]) -> list[str | Text]:
    ours, best = point.ours, point.best
    wrong = ours.wrong + sum(row.wrong for row in point.peers.values())
    found = [point.peers.get(peer) for peer in peers]
    return [
        ours.collective,
        native.format_bytes(ours.bytes),
        _time_text(ours.time_us),
        *("" if row is None else _time_text(row.time_us) for row in found),
        *("" if row is None else ratio_text(row.time_us / ours.time_us) for row in found),
        ratio_text(point.ratio("best")),
        f"{best.implementation}, {best.algorithm}" if best.algorithm else best.implementation,
        wrong_text(wrong),
    ]


def _time_text(time_us: float) -> str:
    return f"{time_us:.2f}" if time_us < 100 else f"{time_us:.0f}"
