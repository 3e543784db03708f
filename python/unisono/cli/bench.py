"""`unisono bench`: times collectives on ranks of this machine, and checks every result."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from unisono.bench import driver
from unisono.bench.cases import Case, Request, list_cases, sizes_between
from unisono.bench.links import shares_table
from unisono.bench.rows import Row, to_document, write_document
from unisono.bench.tables import table_of
from unisono.cli.output import (
    complete_algorithm,
    complete_collective,
    complete_protocol,
    console,
    parse_delay,
    parse_size,
    placement_of,
    print_json,
    progress_console,
    split_names,
)
from unisono.errors import MachineError, MisuseError
from unisono.netbed import parse_shape
from unisono.report import write_report

_STANDARD_OUTPUT = Path("-")
_SHOWN_ROWS = 12


def bench(
    collectives: Annotated[
        list[str] | None, typer.Argument(help="Default: all.", autocompletion=complete_collective)
    ] = None,
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=1, help="Number of ranks.")] = 8,
    nodes: Annotated[int, typer.Option(min=1, help="Virtual nodes.")] = 1,
    smallest: Annotated[str, typer.Option("--min", help="Smallest size.")] = "8",
    largest: Annotated[str, typer.Option("--max", help="Largest size.")] = "4MiB",
    factor: Annotated[int, typer.Option(help="From one size to the next.")] = 8,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            help="Names, all, or auto: the selection table's.", autocompletion=complete_algorithm
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="simple, ll, ll128, all, or auto.", autocompletion=complete_protocol),
    ] = None,
    type_: Annotated[str, typer.Option("--type", help="Element type.")] = "float32",
    operation: Annotated[str, typer.Option(help="Reduction.")] = "sum",
    root: Annotated[int, typer.Option(help="Of broadcast, reduce, gather, scatter.")] = 0,
    in_place: Annotated[bool, typer.Option("--in-place", help="Input and output alias.")] = False,
    iterations: Annotated[int, typer.Option(min=0, help="Calls timed; 0: as time allows.")] = 0,
    seconds: Annotated[float, typer.Option(min=0, help="For each case, roughly.")] = 0.1,
    netbed: Annotated[
        str,
        typer.Option(
            metavar="NODESxRANKS",
            help="Network namespaces as nodes, as 4x2; needs root. Replaces --ranks and --nodes.",
        ),
    ] = "",
    rate: Annotated[str, typer.Option(help="Of each link of the netbed, as 200mbit.")] = "",
    rails: Annotated[int, typer.Option(min=1, help="Links of each node of the netbed.")] = 1,
    delay: Annotated[str, typer.Option(help="Of each message between nodes, as 1ms.")] = "",
    json: Annotated[Path | None, typer.Option(help="Write rows as JSON; - prints them.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report.")] = None,
) -> None:
    """Time collectives and check every result; the columns are those of nccl-tests.

    Exit status 1 if any element of any result is wrong.
    """
    if netbed:
        shape = parse_shape(netbed, rate, rails)
        ranks, nodes = shape.ranks, shape.nodes
    elif rate or rails > 1:
        raise MisuseError("--rate and --rails are a netbed's; give its shape, as --netbed 4x2")
    if delay:
        parse_delay(delay)
    placement_of(ranks, nodes)
    request = Request(
        split_names(collectives or []),
        ranks,
        nodes,
        sizes_between(parse_size(smallest, "--min"), parse_size(largest, "--max"), factor),
        split_names(algorithm or []) or ["auto"],
        split_names(protocol or []) or ["auto"],
        type_,
        operation,
        root,
        in_place,
        iterations,
        seconds,
        bool(netbed),
        rate,
        rails,
        delay,
    )
    cases = list_cases(request)
    rows = run_with_progress(request, cases)
    if json == _STANDARD_OUTPUT:
        print_json(to_document(request, rows))
    else:
        console.print(table_of(rows))
        if rate:
            console.print(shares_table(rows, shape.rate * rails, "\nshare of the links' rate"))
    try:
        if json and json != _STANDARD_OUTPUT:
            write_document(json, request, rows)
        if html:
            write_report(html, rows, title=f"Unisono bench: {ranks} ranks, {nodes} nodes")
    except OSError as error:
        if isinstance(error, MachineError):
            raise
        raise MachineError(f"cannot write {error.filename}: {error.strerror}") from None
    raise typer.Exit(conclude(rows))


def run_with_progress(request: Request, cases: Sequence[Case]) -> list[Row]:
    """Runs the bench; a terminal shows a progress bar and the last rows."""
    progress = Progress(
        TextColumn("{task.description:<44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    task = progress.add_task("starting ranks", total=len(cases))
    rows: list[Row] = []

    def on_start(case: Case) -> None:
        name = f"{case.collective} {case.algorithm or 'auto'} {case.protocol}"
        progress.update(task, description=name)

    def on_row(row: Row) -> None:
        rows.append(row)
        progress.advance(task)

    def picture() -> Group:
        return Group(table_of(rows[-_SHOWN_ROWS:]), progress)

    with Live(
        get_renderable=picture, console=progress_console, refresh_per_second=4, transient=True
    ):
        return driver.run(request, cases, on_start, on_row)


def conclude(rows: Sequence[Row]) -> int:
    """Says whether all results are right; the exit status."""
    wrong = [row for row in rows if row.wrong]
    if not wrong:
        progress_console.print(f"{len(rows)} results, [green]all right[/]")
        return 0
    progress_console.print(f"[bold red]{len(wrong)} of {len(rows)} results are wrong[/]")
    return 1
