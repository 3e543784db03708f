"""Rows as tables for the terminal."""

from collections.abc import Sequence

from rich.text import Text

from unisono import _unisono as native
from unisono.bench.ratios import Point, geometric_mean, peers_in, points_of, summarise
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
            number("spread\n(%)"),
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
            three_digits(row.time_us),
            three_digits(row.algbw_gb_s),
            three_digits(row.busbw_gb_s),
            "-" if row.spread is None else f"{100 * row.spread:.0f}",
            wrong_text(row.wrong),
        )
    return table


def three_digits(value: float) -> str:
    """A number with three significant digits; with all that are before its point."""
    if value == 0:
        return "0"
    if abs(value) >= 999.5:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".")


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
            three_digits(min((row.bytes, row.time_us) for row in group)[1]),
            three_digits(max(row.busbw_gb_s for row in group)),
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


def speed_in_words(rows: Sequence[Row]) -> list[str]:
    """How many times as fast ours is, a sentence for each library and one for the fastest."""
    points = points_of(rows)
    said = []
    for name in [*peers_in(points), "best"]:
        ratios = [(point.ratio(name), point) for point in points
                  if name == "best" or name in point.peers]  # fmt: skip
        mean = geometric_mean([ratio for ratio, _ in ratios])
        least, at = min(ratios, key=lambda one: one[0])
        whom = "the fastest other library at each point" if name == "best" else name
        said.append(
            f"unisono is {_times(mean)} {whom}, as the geometric mean of {len(ratios)} points; at "
            f"the worst, {at.ours.collective} of {native.format_bytes(at.ours.bytes)}, it is "
            f"{_times(least)} it."
        )
    return said if len(said) > 2 else said[:1]


def _times(ratio: float) -> str:
    """A ratio of times in words."""
    if 0.995 <= ratio < 1.005:
        return "as fast as"
    return f"{three_digits(ratio)} times as fast as"


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
        three_digits(ours.time_us),
        *("" if row is None else three_digits(row.time_us) for row in found),
        *("" if row is None else ratio_text(row.time_us / ours.time_us) for row in found),
        ratio_text(point.ratio("best")),
        f"{best.implementation}, {best.algorithm}" if best.algorithm else best.implementation,
        wrong_text(wrong),
    ]
