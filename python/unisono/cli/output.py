"""What all commands share: consoles, tables, JSON, and options."""

import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from unisono import _unisono as native
from unisono import files, plans
from unisono.errors import MachineError, MisuseError
from unisono.names import collectives
from unisono.tables import Column, Table

DEFAULT_RANKS = 8
STANDARD_OUTPUT = Path("-")
# Tables that go to a file or a pipe are not made for a terminal's width, unless COLUMNS says one.
_WIDE = 220
console = Console(width=None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDE)
progress_console = Console(stderr=True)


def check_output(path: Path | None) -> Path | None:
    """Looks, before the work, whether a file can be written where an option says.

    Raises:
        MachineError: It is a folder, or its folder cannot be written to.
    """
    if path is not None and path != STANDARD_OUTPUT:
        files.check_writable(path)
    return path


def _check_report(path: Path | None) -> Path | None:
    if path is not None and importlib.util.find_spec("jinja2") is None:
        raise MachineError("reports need jinja2; pip install 'unisono[report]' has it")
    return check_output(path)


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


Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        callback=check_output,
        help="Write what was found as JSON; - prints it in place of tables.",
    ),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", callback=_check_report, help="Write a report."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", callback=check_output, help="The file to write."
    ),
]
Goal = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=check_output,
        help="Only write the schedule as GOAL: .goal (text) or .bin.",
    ),
]
# As mpirun and torchrun call it, too.
RANK_OPTIONS = ("--ranks", "-n", "-np", "--nproc-per-node")
Ranks = Annotated[int, typer.Option(*RANK_OPTIONS, min=1, help="Number of ranks.")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Nodes that the ranks are spread over.")]

Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show every rank's errors, not only the first one's."),
]


def complain(text: str) -> None:
    """Writes an error for a person."""
    _say("bold red", "error:", text)


def warn(text: str) -> None:
    """Writes a warning for a person."""
    _say("bold yellow", "warning:", text)


def _say(style: str, kind: str, text: str) -> None:
    said = Text.assemble((kind, style), f" {text}")
    progress_console.print(said, highlight=False, soft_wrap=True)


def put_json(path: Path | None, values: Any) -> bool:
    """Writes JSON where `--json` says, if it does; whether that is standard output."""
    if path is None:
        return False
    if path != STANDARD_OUTPUT:
        write_file(path, json.dumps(values, indent=2) + "\n")
        return False
    print_json(values)
    return True


def print_json(values: Any) -> None:
    """Writes JSON to standard output."""
    sys.stdout.write(json.dumps(values, indent=2) + "\n")


def print_text(text: str) -> None:
    """Writes text to standard output as it is, neither wrapped nor coloured."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def show(*parts: RenderableType) -> None:
    """Writes tables and lines to standard output, one below the other; nothing is cut."""
    for part in parts:
        console.print(part, highlight=False, crop=False)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    prose: Sequence[str] = (),
    folds: Sequence[str] = (),
    title: str | None = None,
    keys: int = 1,
) -> None:
    """Writes a table.

    Args:
        columns: The headings.
        rows: A cell for each column.
        right: Columns of numbers, which are aligned there.
        prose: Columns of sentences, which may be broken into lines.
        folds: Columns that go into the heading where all rows have one value.
        title: A line above the table.
        keys: So many columns name a row.
    """
    table = Table(
        [Column(name, name in right, name in prose, name in folds) for name in columns],
        title=title,
        keys=keys,
    )
    for row in rows:
        table.add_row(*map(str, row))
    show(table)


def print_entries(entries: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Writes names, each with sentences below it."""
    for name, sentences in entries:
        show(Text(name, "bold"))
        for sentence in filter(None, sentences):
            show(Padding(Text(sentence), (0, 0, 0, 4)))


def write_file(path: Path, contents: str | bytes) -> None:
    """Writes a file, and says so."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from None
    files.write_whole(path, contents)
    progress_console.print(f"wrote {path}", highlight=False)


def placement_of(ranks: int, nodes: int) -> plans.Placement:
    """The ranks spread evenly over the nodes."""
    if nodes > ranks:
        raise MisuseError(f"{nodes} nodes for {ranks} ranks; every node has at least one rank")
    return plans.Placement(ranks, nodes)


def parse_size(text: str, what: str) -> int:
    """Bytes of a size such as "64MiB"."""
    try:
        return native.parse_bytes(text)
    except MisuseError as error:
        raise MisuseError(f"{what}: {error}") from None


def parse_delay(text: str) -> float:
    """Seconds of a time such as "1ms"."""
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
