"""`unisono bench`: times collectives on ranks of this machine, and checks every result."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

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
from unisono.bench.machine import machine_facts
from unisono.bench.peers import OURS
from unisono.bench.rows import Row, to_document, write_document
from unisono.bench.tables import (
    comparison_summary,
    comparison_table,
    speed_in_words,
    table_of,
    three_digits,
)
from unisono.bench.words import average_bandwidth, disturbed, doubt_of, head_of
from unisono.cli import bench_options as options
from unisono.cli.bench_device import COLLECTIVES, MODES, bench_device
from unisono.cli.bench_device import against as against_on_device
from unisono.cli.output import (
    DEFAULT_RANKS,
    STANDARD_OUTPUT,
    Html,
    Json,
    Nodes,
    complain,
    console,
    parse_delay,
    parse_rank_list,
    parse_size,
    placement_of,
    print_json,
    print_text,
    progress_console,
    show,
    split_names,
    warn,
)
from unisono.errors import MisuseError
from unisono.names import check_names, operation_named, type_named
from unisono.netbed import parse_cut, parse_rates, parse_shape
from unisono.report import write_report
from unisono.tables import Table

_SHOWN_ROWS = 12


def bench(
    collectives: options.Collectives = None,
    ranks: options.Ranks = DEFAULT_RANKS,
    gpus: options.Gpus = 0,
    nodes: Nodes = 1,
    smallest: options.Smallest = "8",
    largest: options.Largest = "4MiB",
    factor: options.Factor = 8,
    algorithm: options.Algorithm = None,
    protocol: options.Protocol = None,
    type_: options.Type = "float32",
    operation: options.Operation = "sum",
    root: options.Root = 0,
    in_place: options.InPlace = False,
    iterations: options.Iterations = 0,
    seconds: options.Seconds = 0.1,
    netbed: options.Netbed = "",
    rate: options.Rate = "",
    rails: options.Rails = 1,
    cut: options.Cut = None,
    delay: options.Delay = "",
    against: options.Against = None,
    stop_after: options.StopAfter = 0,
    device: options.Device = "cpu",
    devices: options.Devices = "",
    mode: options.Mode = None,
    channels: options.Channels = 0,
    policy: options.Policy = "",
    max_sms: options.MaxSms = 0,
    memory: options.Memory = "cuda",
    json: Json = None,
    html: Html = None,
) -> None:
    """Time collectives and check every result.

    Columns and options are those of nccl-tests. Its -n (calls timed) is --iters here: -n is the
    number of ranks, as in all commands.

    With --against, other libraries make the same calls in turn, size by size, and the table has
    their times and how many times as fast ours is.

    NCCL's names of types and reductions work, too: float, half, bf16, prod, avg.

    Exit status 1 if any element of any result is wrong.
    """
    ranks = _ranks(ranks, gpus)
    type_, operation = type_named(type_), operation_named(operation)
    sizes = sizes_between(parse_size(smallest, "--min"), parse_size(largest, "--max"), factor)
    if device != "cpu":
        check_names("device", [device], ["cpu", "cuda"])
        given = {
            "algorithm": (algorithm or [""])[0],
            "protocol": (protocol or [""])[0],
            "channels": channels,
            "policy": policy,
            "max_sms": max_sms,
        }
        on_device = DeviceRequest(
            split_names(collectives or []) or list(COLLECTIVES),
            sizes,
            [type_named(one) for one in split_names([type_])],
            split_names(mode or []) or list(MODES),
            [False, True] if in_place else [False],
            options={name: value for name, value in given.items() if value},
            memory=memory,
        )
        on_device = against_on_device(on_device, split_names(against or []))
        numbers = parse_rank_list(devices) if devices else [ranks]
        raise typer.Exit(bench_device(on_device, numbers, json, html))
    ranks, nodes = _ranks_and_nodes(ranks, nodes, netbed, rate, rails)
    cuts = split_names(cut or [])
    _check_cuts(cuts, netbed, rails, against)
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
        cuts,
    )
    raise typer.Exit(_bench_host(request, split_names(against or []), stop_after, json, html))


def _ranks(ranks: int, gpus: int) -> int:
    """The number of ranks; nccl-tests' -g is one, where a process has all GPUs."""
    if gpus == 1:
        raise MisuseError(
            "-g 1 is one rank, which has no peer. nccl-tests' -g is the GPUs of a process, and "
            "here each rank is a process with one GPU: write -n 8 for 8 ranks"
        )
    return gpus or ranks


def _ranks_and_nodes(ranks: int, nodes: int, netbed: str, rate: str, rails: int) -> tuple[int, int]:
    """A netbed's shape replaces the numbers of ranks and nodes."""
    if netbed:
        shape = parse_shape(netbed, rate, rails)
        return shape.ranks, shape.nodes
    if rate or rails > 1:
        raise MisuseError("--rate and --rails are a netbed's; give its shape, as --netbed 4x2")
    return ranks, nodes


def _check_cuts(
    cuts: Sequence[str], netbed: str, rails: int, against: Sequence[str] | None
) -> None:
    if cuts and not netbed:
        raise MisuseError("--cut cuts a netbed's rail; give its shape, as --netbed 2x1 --rails 4")
    if cuts and against:
        raise MisuseError("--cut is for Unisono's own calls; leave --against out")
    for text in cuts:
        parse_cut(text, rails)


def _bench_host(
    request: Request, peers: Sequence[str], stop_after: float, json: Path | None, html: Path | None
) -> int:
    """Measures on processors, prints and writes; the exit status."""
    facts = machine_facts()
    done = None
    if peers:
        done = compare_with_progress(request, peers, comparison_cases(request), stop_after)
    rows = done.rows if done else run_with_progress(request, list_cases(request))
    if json == STANDARD_OUTPUT:
        print_json(to_document(request, rows))
    else:
        show(*head_of(request, facts), "")
        if done:
            print_comparison(request, done)
        else:
            show(table_of(rows))
        if request.rate:
            rate = sum(parse_rates(request.rate, request.rails))
            show("", shares_table(rows, rate, "share of the links' rate"))
        if json:
            write_document(json, request, rows)
    if html:
        write_report(
            html, rows, title=f"Unisono bench: {request.ranks} ranks, {request.nodes} nodes"
        )
    status = conclude(rows)
    for doubt in filter(None, (disturbed(rows), doubt_of(request.ranks, facts))):
        warn(doubt)
    if json != STANDARD_OUTPUT:
        print_text(average_bandwidth([row for row in rows if row.implementation == OURS]))
    return status


def run_with_progress(request: Request, cases: Sequence[Case]) -> list[Row]:
    """Runs the bench; a terminal shows a progress bar and the last rows."""
    with _Shown(len(cases), table_of) as shown:
        return driver.run(request, cases, shown.start, lambda row: shown.add([row]))


def compare_with_progress(
    request: Request, against: Sequence[str], cases: Sequence[Case], stop_after: float
) -> Comparison:
    """Runs the comparison."""
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
    """Prints what was measured, all points, and what they come to."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    print_text(
        "Times are of a call, of the slowest rank, calls back to back, the median over repeats; a "
        "send_recv is half a round trip. Ratios are their time / ours. See "
        f"docs/how-to/benchmark.md. {date}."
    )
    for name, library in done.libraries.items():
        print_text(f"{name}: {library}")
    if done.left_out:
        console().print(f"[bold]Time was up: {len(done.left_out)} cases were left out.[/]")
    show("", comparison_table(done.rows), "", comparison_summary(done.rows))
    copies = copies_table(done.rows, done.copy_gb_s)
    if copies.row_count and not request.netbed:
        show(f"\nA core copies {three_digits(done.copy_gb_s)} GB/s while all do.", copies)
    print_text("")
    for sentence in speed_in_words(done.rows):
        print_text(sentence)


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
            console=progress_console(),
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
        results = "1 result" if len(rows) == 1 else f"{len(rows)} results"
        progress_console().print(f"{results}, [green]all right[/]")
        return 0
    progress_console().print(f"[bold red]{len(wrong)} of {len(rows)} results are wrong[/]")
    return 1
