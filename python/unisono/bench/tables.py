"""Rows as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from unisono import _unisono as native
from unisono.bench.ratios import Point, peers_in, points_of, summarise
from unisono.bench.rows import Row

# The goals beside the fastest peer: on the average, and at every point.
_GOOD_RATIO, _LEAST_RATIO = 1.5, 0.9


def table_of(rows: Sequence[Row], title: str | None = None) -> Table:
    """All columns that nccl-tests has, a line for each row."""
    table = Table(title=title, header_style="bold", pad_edge=False, box=None)
    for name in ("collective", "algorithm", "protocol", "type"):
        table.add_column(name)
    for name in ("size", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "wrong"):
        table.add_column(name, justify="right")
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
            "0" if row.wrong == 0 else f"[bold red]{row.wrong}[/]",
        )
    return table


def summary_of(rows: Sequence[Row], title: str | None = None) -> Table:
    """A line for each algorithm: how many results, whether all are right, the best bandwidth."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.collective, row.algorithm), []).append(row)
    table = Table(title=title, header_style="bold", pad_edge=False, box=None)
    for name in ("collective", "algorithm", "protocols"):
        table.add_column(name)
    for name in ("results", "wrong", "smallest (us)", "best busbw (GB/s)"):
        table.add_column(name, justify="right")
    previous = ""
    for (collective, algorithm), group in groups.items():
        wrong = sum(row.wrong > 0 for row in group)
        table.add_row(
            collective if collective != previous else "",
            algorithm,
            " ".join(dict.fromkeys(row.protocol for row in group)),
            str(len(group)),
            "[green]0[/]" if wrong == 0 else f"[bold red]{wrong}[/]",
            f"{min((row.bytes, row.time_us) for row in group)[1]:.1f}",
            f"{max(row.busbw_gb_s for row in group):.3f}",
        )
        previous = collective
    return table


def comparison_table(rows: Sequence[Row], title: str | None = None) -> Table:
    """Times of all implementations, and how many times as fast ours is as each and the fastest."""
    points = points_of(rows)
    peers = peers_in(points)
    table = Table(title=title, header_style="bold", pad_edge=False, box=None)
    table.add_column("collective")
    for name in ("size", "ours (us)", *(f"{peer} (us)" for peer in peers)):
        table.add_column(name, justify="right")
    for name in (*(f"{peer} / ours" for peer in peers), "best / ours"):
        table.add_column(name, justify="right")
    table.add_column("best peer")
    table.add_column("wrong", justify="right")
    for point in points:
        table.add_row(*_comparison_cells(point, peers))
    return table


def comparison_summary(rows: Sequence[Row], title: str | None = None) -> Table:
    """Geometric means of the ratios and the worst point, by collective and of all."""
    points = points_of(rows)
    names = [*peers_in(points), "best"]
    table = Table(title=title, header_style="bold", pad_edge=False, box=None)
    table.add_column("geometric mean")
    for name in names:
        table.add_column(f"{name} / ours", justify="right")
    table.add_column("worst", justify="right")
    table.add_column("at")
    for summary in summarise(points):
        worst = summary.worst
        table.add_row(
            summary.name,
            *(ratio_text(summary.means[name]) for name in names),
            ratio_text(worst.ratio("best")),
            f"{worst.ours.collective} {native.format_bytes(worst.ours.bytes)}",
        )
    return table


def ratio_text(ratio: float) -> str:
    """A ratio, green where it meets the goal and red where it is less than it may be anywhere."""
    text = f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"
    if ratio >= _GOOD_RATIO:
        return f"[green]{text}[/]"
    return f"[bold red]{text}[/]" if ratio < _LEAST_RATIO else text


def _comparison_cells(point: Point, peers: Sequence[str]) -> list[str]:
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
        "0" if wrong == 0 else f"[bold red]{wrong}[/]",
    ]


def _time_text(time_us: float) -> str:
    return f"{time_us:.2f}" if time_us < 100 else f"{time_us:.0f}"
