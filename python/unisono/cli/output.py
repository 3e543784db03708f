"""What all commands share: consoles, tables, JSON, and options."""

import functools
import json
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unisono import _unisono as native
from unisono import files, plans
from unisono.errors import MachineError, MisuseError
from unisono.extras import check_extra

# Help and completion need no rich, which takes longer to import than all else.
if TYPE_CHECKING:
    from rich.console import Console, RenderableType

DEFAULT_RANKS = 8
STANDARD_OUTPUT = Path("-")


@functools.cache
def console() -> "Console":
    """Standard output: as wide as the terminal or COLUMNS says, and 80 columns where neither does.

    NO_COLOR turns colours off.
    """
    from rich.console import Console

    return Console()


@functools.cache
def progress_console() -> "Console":
    """Standard error, for progress and errors."""
    from rich.console import Console

    return Console(stderr=True)


def replace_what_cannot_be_shown() -> None:
    """Has a terminal that is not UTF-8 show a question mark where it lacks a character."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def check_output(path: Path | None) -> Path | None:
    """Looks, before the work, whether a file can be written where an option says.

    Raises:
        MachineError: It is a folder, or its folder cannot be written to.
    """
    if path is not None and path != STANDARD_OUTPUT:
        files.check_writable(path)
    return path


def _check_report(path: Path | None) -> Path | None:
    if path is not None:
        check_extra("--html", "jinja2", "report")
    return check_output(path)


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
CLUSTER_LEVELS = typer.Option(
    "--cluster", help="A built-in cluster's name, or a YAML file: where nodes are. Empty: anywhere."
)
Ranks = Annotated[int, typer.Option(*RANK_OPTIONS, min=1, help="Number of ranks.")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Nodes that the ranks are spread over.")]

All = Annotated[bool, typer.Option("--all", "-v", help="Show all rows, not only the first ones.")]
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


def remark(text: str) -> None:
    """Writes a note for a person."""
    _say("bold cyan", "note:", text)


def show_source(lines: str) -> None:
    """Writes lines of a program under an error."""
    progress_console().print(lines, highlight=False, markup=False, soft_wrap=True)


def _say(style: str, kind: str, text: str) -> None:
    from rich.text import Text

    said = Text.assemble((kind, style), f" {text}")
    progress_console().print(said, highlight=False, soft_wrap=True)


def put_json(
    path: Path | None, values: Mapping[str, Any], form: str = "", version: int = 1
) -> bool:
    """Writes JSON where `--json` says, if it does; whether that is standard output.

    Args:
        path: What the option says.
        values: What was found.
        form: What kind of document it is, which becomes its member `format`; empty where `values`
            say it, with their version.
        version: The member `version`, raised where readers must change.
    """
    if path is None:
        return False
    document = {"format": f"unisono-{form}", "version": version, **values} if form else values
    if path != STANDARD_OUTPUT:
        write_file(path, json.dumps(document, indent=2) + "\n")
        return False
    print_json(document)
    return True


def print_json(values: Any) -> None:
    """Writes JSON to standard output."""
    sys.stdout.write(json.dumps(values, indent=2) + "\n")


def print_raw(text: str) -> None:
    """Writes a plan, a program or a difference to standard output as it is."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def print_text(text: str) -> None:
    """Writes sentences to standard output, each line broken between words where a terminal ends.

    A file or a pipe has no width of its own, unless COLUMNS says one: lines stay whole for grep.
    """
    if console().is_terminal or os.environ.get("COLUMNS"):
        text = "\n".join(wrapped(line) for line in text.split("\n"))
    print_raw(text)


def wrapped(line: str, indent: str = "") -> str:
    """A line, broken between words where the console ends; what follows is indented as it is."""
    width = console().width
    if not indent and len(line) <= width:
        return line
    indent += line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.strip(), width, initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def show(*parts: "RenderableType") -> None:
    """Writes tables and lines to standard output, one below the other; nothing is cut."""
    for part in parts:
        console().print(part, highlight=False, crop=False)


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
    from unisono.tables import Column, Table

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
    from rich.text import Text

    for name, sentences in entries:
        show(Text(name, "bold"))
        for sentence in filter(None, sentences):
            print_raw(wrapped(sentence, " " * 4))


def write_file(path: Path, contents: str | bytes) -> None:
    """Writes a file, and says so."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from None
    files.write_whole(path, contents)
    progress_console().print(f"wrote {path}", highlight=False)


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
