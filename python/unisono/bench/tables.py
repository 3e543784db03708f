"""Rows as a table for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from unisono import _unisono as native
from unisono.bench.rows import Row


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
