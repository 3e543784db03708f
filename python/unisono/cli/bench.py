"""`unisono bench`: times collectives on ranks of this machine, and checks every result."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Self

import typer
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from unisono.bench import driver
from unisono.bench.cases import Case, Request, list_cases, sizes_between
from unisono.bench.compare import Comparison, compare, comparison_cases
from unisono.bench.copies import copies_table
from unisono.bench.device_rows import DeviceRequest
from unisono.bench.links import shares_table
from unisono.bench.machine import describe_machine
from unisono.bench.peers import PEERS
from unisono.bench.rows import Row, to_document, write_document
from unisono.bench.tables import comparison_summary, comparison_table, table_of
from unisono.cli.bench_device import COLLECTIVES, MODES, bench_device
from unisono.cli.bench_device import against as against_on_device
from unisono.cli.output import (
    DEFAULT_RANKS,
    RANK_OPTIONS,
    STANDARD_OUTPUT,
    Html,
    Json,
    Nodes,
    complain,
    complete_algorithm,
    complete_collective,
    complete_protocol,
    console,
    parse_delay,
    parse_rank_list,
    parse_size,
    placement_of,
    print_json,
    progress_console,
    show,
    split_names,
)
from unisono.errors import MisuseError
from unisono.names import check_names
from unisono.netbed import parse_shape
from unisono.report import write_report
from unisono.tables import Table

_SHOWN_ROWS = 12


def bench(
    collectives: Annotated[
        list[str] | None, typer.Argument(help="Default: all.", autocompletion=complete_collective)
    ] = None,
    ranks: Annotated[
        int, typer.Option(*RANK_OPTIONS, "-g", min=1, help="Number of ranks, as mpirun's -n.")
    ] = DEFAULT_RANKS,
    nodes: Nodes = 1,
    smallest: Annotated[
        str, typer.Option("--min", "-b", "--minbytes", help="Smallest size.")
    ] = "8",
    largest: Annotated[
        str, typer.Option("--max", "-e", "--maxbytes", help="Largest size.")
    ] = "4MiB",
    factor: Annotated[
        int, typer.Option("--factor", "-f", "--stepfactor", help="From one size to the next.")
    ] = 8,
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
    type_: Annotated[
        str, typer.Option("--type", "-d", "--datatype", help="Element type.")
    ] = "float32",
    operation: Annotated[str, typer.Option("--operation", "-o", "--op", help="Reduction.")] = "sum",
    root: Annotated[
        int, typer.Option("--root", "-r", help="Of broadcast, reduce, gather, scatter.")
    ] = 0,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place", help="Input and output alias; with --device cuda, rows of both kinds."
        ),
    ] = False,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations",
            "--iters",
            min=0,
            help="Calls timed, in up to nine repeats of equally many; 0: as time allows.",
        ),
    ] = 0,
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
    against: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Compare with other libraries: {', '.join(PEERS)}.",
            autocompletion=lambda: list(PEERS),
        ),
    ] = None,
    stop_after: Annotated[
        float, typer.Option(min=0, help="With --against: begin nothing after so many seconds.")
    ] = 0,
    device: Annotated[
        str,
        typer.Option(
            help="cpu, or cuda: ranks on as many CUDA devices; --against nccl or symm_mem."
        ),
    ] = "cpu",
    devices: Annotated[
        str,
        typer.Option(help="With --device cuda: numbers of devices, as 2,4; replaces --ranks."),
    ] = "",
    mode: Annotated[
        list[str] | None, typer.Option(help="With --device cuda: eager, graph; default both.")
    ] = None,
    channels: Annotated[
        int, typer.Option(min=0, help="With --device cuda: channels; 0: the table's.")
    ] = 0,
    policy: Annotated[
        str, typer.Option(help="With --device cuda: zero_sm, or fastest; empty: the settings'.")
    ] = "",
    max_sms: Annotated[
        int, typer.Option(min=0, help="With --device cuda: the most SMs of a call; 0: no limit.")
    ] = 0,
    memory: Annotated[
        str,
        typer.Option(
            help="With --device cuda: the buffers', cuda, or nccl: by ncclMemAlloc, which NCCL "
            "registers with its peers."
        ),
    ] = "cuda",
    json: Json = None,
    html: Html = None,
) -> None:
    """Time collectives and check every result.

    Columns and options are those of nccl-tests. Its -n (calls timed) is --iters here: -n is the
    number of ranks, as in all commands.

    With --against, other libraries make the same calls in turn, size by size, and the table has
    their times and how many times as fast ours is.

    Exit status 1 if any element of any result is wrong.
    """
    sizes = sizes_between(parse_size(smallest, "--min"), parse_size(largest, "--max"), factor)
    if device != "cpu":
        check_names("device", [device], ["cpu", "cuda"])
        on_device = DeviceRequest(
            split_names(collectives or []) or list(COLLECTIVES),
            sizes,
            split_names([type_]),
            split_names(mode or []) or list(MODES),
            [False, True] if in_place else [False],
            algorithm=(algorithm or [""])[0],
            protocol=(protocol or [""])[0],
            channels=channels,
            policy=policy,
            max_sms=max_sms,
            memory=memory,
        )
        on_device = against_on_device(on_device, split_names(against or []))
        numbers = parse_rank_list(devices) if devices else [ranks]
        raise typer.Exit(bench_device(on_device, numbers, json, html))
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
        sizes,
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
    peers = split_names(against or [])
    if peers:
        done = compare_with_progress(request, peers, comparison_cases(request), stop_after)
        rows = done.rows
    else:
        rows = run_with_progress(request, list_cases(request))
    if json == STANDARD_OUTPUT:
        print_json(to_document(request, rows))
    elif peers:
        print_comparison(request, done)
    else:
        show(table_of(rows))
    if rate and json != STANDARD_OUTPUT:
        show("", shares_table(rows, shape.rate * rails, "share of the links' rate"))
    if json and json != STANDARD_OUTPUT:
        write_document(json, request, rows)
    if html:
        write_report(html, rows, title=f"Unisono bench: {ranks} ranks, {nodes} nodes")
    raise typer.Exit(conclude(rows))


def run_with_progress(request: Request, cases: Sequence[Case]) -> list[Row]:
    """Runs the bench; a terminal shows a progress bar and the last rows."""
    with _Shown(len(cases), table_of) as shown:
        return driver.run(request, cases, shown.start, lambda row: shown.add([row]))


def compare_with_progress(
    request: Request, against: Sequence[str], cases: Sequence[Case], stop_after: float
) -> Comparison:
    """Runs the comparison, likewise."""
    with _Shown(len(cases), comparison_table) as shown:
        return compare(
            request,
            against,
            cases,
            stop_after=stop_after,
            on_start=shown.start,
            on_rows=shown.add,
            complain=complain,
        )


def print_comparison(request: Request, done: Comparison) -> None:
    """Prints what was measured where, all points, and what they come to."""
    machine = describe_machine()
    processors = f"{machine['cores']} processors ({machine['processor']})"
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    console.print(
        f"{request.ranks} processes, {processors}, {date}",
        "Microseconds of a call: the slowest rank's, calls back to back, median over repeats;",
        "a send_recv is half a round trip. Ratios are their time / ours. See docs/benchmarks.md.",
        *(f"{name}: {library}" for name, library in done.libraries.items()),
        sep="\n",
        highlight=False,
    )
    if done.left_out:
        console.print(f"[bold]Time was up: {len(done.left_out)} cases were left out.[/]")
    show("", comparison_table(done.rows), "", comparison_summary(done.rows))
    copies = copies_table(done.rows, done.copy_gb_s)
    if copies.row_count and not request.netbed:
        show(f"\nA core copies {done.copy_gb_s:.1f} GB/s while all do.", copies)


class _Shown:
    """A progress bar and the last rows while the block runs, on a terminal."""

    def __init__(self, total: int, table: Callable[[Sequence[Row]], Table]) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<44}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._task = self._progress.add_task("starting ranks", total=total)
        self._rows: list[Row] = []
        self._table = table
        # A terminal would be drawn on by a processor that is being measured; once a second does.
        self._live = Live(
            get_renderable=self._picture,
            console=progress_console,
            refresh_per_second=1,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def start(self, case: Case) -> None:
        """A case begins."""
        name = f"{case.collective} {case.algorithm or 'auto'} {case.protocol}"
        self._progress.update(self._task, description=name)

    def add(self, rows: Sequence[Row]) -> None:
        """A case has been measured."""
        self._rows += rows
        self._progress.advance(self._task)

    def _picture(self) -> Group:
        return Group(self._table(self._rows[-_SHOWN_ROWS:]), self._progress)


def conclude(rows: Sequence[Row]) -> int:
    """Says whether all results are right; the exit status."""
    wrong = [row for row in rows if row.wrong]
    if not wrong:
        progress_console.print(f"{len(rows)} results, [green]all right[/]")
        return 0
    progress_console.print(f"[bold red]{len(wrong)} of {len(rows)} results are wrong[/]")
    return 1
