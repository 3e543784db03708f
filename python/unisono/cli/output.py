"""What all commands share: consoles, tables, JSON, and values of options."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from unisono import _unisono as native
from unisono import plans
from unisono.bench.cases import collectives
from unisono.errors import MachineError, MisuseError

# Tables that go to a file or a pipe are not cut to a terminal's width.
_WIDE = 220
console = Console(width=None if sys.stdout.isatty() else _WIDE)
progress_console = Console(stderr=True)


def complete_plan(incomplete: str) -> list[str]:
    """Names of plans, for shell completion."""
    names = [entry.plan_name for entry in plans.algorithms()]
    return [name for name in names if name.startswith(incomplete)]


def complete_collective(incomplete: str) -> list[str]:
    """Names of collectives, for shell completion."""
    return [name for name in collectives() if name.startswith(incomplete)]


def complete_algorithm(incomplete: str) -> list[str]:
    """Names of algorithms, for shell completion."""
    names = dict.fromkeys(["all", "auto", *(entry.name for entry in plans.algorithms())])
    return [name for name in names if name.startswith(incomplete)]


def complete_protocol(incomplete: str) -> list[str]:
    """Names of protocols, for shell completion."""
    return [name for name in native.protocols() if name.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]
Ranks = Annotated[int, typer.Option("--ranks", "-n", min=1, help="Number of ranks.")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Nodes that the ranks are spread over.")]


def complain(text: str) -> None:
    """Writes an error for a person."""
    progress_console.print(f"[bold red]error:[/] {_plain(text)}", highlight=False, soft_wrap=True)


def print_json(values: Any) -> None:
    """Writes JSON to standard output."""
    sys.stdout.write(json.dumps(values, indent=2) + "\n")


def print_text(text: str) -> None:
    """Writes text to standard output as it is, neither wrapped nor coloured."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    title: str | None = None,
) -> None:
    """Writes a table; the columns in `right` are aligned there."""
    table = Table(title=title, header_style="bold", box=None, pad_edge=False, title_justify="left")
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name == columns[0] or name in right,
        )
    for row in rows:
        table.add_row(*(_plain(str(cell)) for cell in row))
    console.print(table)


def write_file(path: Path, text: str) -> None:
    """Writes a file, and says so."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from None
    progress_console.print(f"wrote {path}", highlight=False)


def placement_of(ranks: int, nodes: int) -> plans.Placement:
    """The ranks spread evenly over the nodes."""
    if nodes > ranks:
        raise MisuseError(f"{nodes} nodes for {ranks} ranks; every node has at least one rank")
    return plans.Placement(ranks, nodes)


def parse_size(text: str, what: str) -> int:
    """Bytes of "64MiB" and the like."""
    try:
        return native.parse_bytes(text)
    except MisuseError as error:
        raise MisuseError(f"{what}: {error}") from None


def parse_delay(text: str) -> float:
    """Seconds of "1ms" and the like."""
    try:
        return native.parse_seconds(text)
    except MisuseError as error:
        raise MisuseError(f"--delay: {error}") from None


def split_names(values: Sequence[str]) -> list[str]:
    """Names that may be given several times or with commas between them; some, if any is given."""
    names = [name for value in values for name in value.split(",") if name]
    if values and not names:
        raise MisuseError(f"'{','.join(values)}' names nothing")
    return names


def parse_rank_list(text: str) -> list[int]:
    """Numbers of ranks: "8", "2..64" (both ends included), "2..8,16,255"."""
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        try:
            low, high = int(first), int(last if dots else first)
        except ValueError:
            raise MisuseError(
                f"cannot read '{part}' as numbers of ranks; write 8, 2..64 or 2..8,16"
            ) from None
        if not 1 <= low <= high:
            raise MisuseError(f"'{part}' holds no numbers of ranks; write them as 2..64, from 1 on")
        found.extend(range(low, high + 1))
    return list(dict.fromkeys(found))


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
