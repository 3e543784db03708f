"""`unisono tune`: the plans that the simulator chooses, as a file that the library reads."""

import json as encoder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unisono import _unisono as native
from unisono.cli import simulate_options as options
from unisono.cli.output import (
    Json,
    check_output,
    parse_rank_list,
    parse_size,
    print_table,
    print_text,
    put_json,
    split_names,
    write_file,
)
from unisono.cli.simulation import load_simulator
from unisono.cli.watch import Counted
from unisono.errors import MisuseError
from unisono.names import check_names

if TYPE_CHECKING:
    from unisono.simulate import Cluster, Row

_ENGINES = {"cpu": "host", "cuda": "gpu"}


def tune(
    cluster: options.Cluster,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", callback=check_output, help="The file to write."
        ),
    ],
    ranks: options.Ranks = "8",
    nodes: options.Nodes = 0,
    collective: Annotated[
        list[str] | None, typer.Option(help="Default: all that have a size to choose by.")
    ] = None,
    protocol: options.Protocol = None,
    channels: options.Channels = 0,
    device: Annotated[str, typer.Option(help="For calls on cpu or cuda memory.")] = "cpu",
    sms: Annotated[int, typer.Option(min=1, help="With --device cuda: SMs of each GPU.")] = 132,
    min_size: Annotated[str, typer.Option("--min", help="The smallest size to simulate.")] = "256",
    max_size: Annotated[
        str, typer.Option("--max", help="The largest; larger calls take its plan.")
    ] = "1GiB",
    json: Json = None,
) -> None:
    """Write the plans that the simulator chooses for a cluster into a selection file.

    UNISONO_SELECTION_FILE=FILE has the library take them, on all ranks.
    """
    simulator = load_simulator()
    check_names("device", [device], list(_ENGINES))
    chosen: Cluster = simulator.load_cluster(cluster)
    counts = parse_rank_list(ranks)
    protocols = split_names(protocol or ["all"])
    protocols = native.protocols() if protocols == ["all"] else protocols
    check_names("protocol", protocols, native.protocols())
    collectives = split_names(collective or []) or list(simulator.TUNED_COLLECTIVES)
    check_names("collective", collectives, simulator.TUNED_COLLECTIVES)
    _check_places(chosen, counts, nodes, device)
    with Counted("choosing plans", len(counts) * len(collectives)) as counted:
        rows: list[Row] = simulator.tune(
            chosen, counts, nodes=nodes, collectives=collectives, protocols=protocols,
            channels=channels, engine=_ENGINES[device], sms=sms, sizes=_sizes(min_size, max_size),
            done=counted.advance,
        )  # fmt: skip
    document = simulator.selection_file(rows, f"unisono tune --cluster {cluster}")
    write_file(output, encoder.dumps(document, indent=1) + "\n")
    if not put_json(json, document, "tune"):
        _show(rows)
        print_text(f"\n{len(rows)} rows in {output}; UNISONO_SELECTION_FILE={output} takes them")


def _check_places(cluster: "Cluster", counts: list[int], nodes: int, device: str) -> None:
    """Before the work."""
    machine = cluster.machine
    if max(counts) > machine.max_ranks:
        raise MisuseError(
            f"--ranks is {max(counts)}; {cluster.name} has {machine.max_ranks} places "
            f"({machine.nodes} x {machine.ranks_per_node})"
        )
    if device == "cuda" and (nodes > 1 or max(counts) > machine.ranks_per_node):
        raise MisuseError(
            f"--device cuda is for the GPUs of one node, of which {cluster.name} has "
            f"{machine.ranks_per_node}; calls on GPUs of several nodes are staged through host "
            "memory and take the rows of --device cpu"
        )


def _sizes(smallest: str, largest: str) -> list[int]:
    """Powers of four between them, and both."""
    first, last = parse_size(smallest, "--min"), parse_size(largest, "--max")
    if not 0 < first <= last:
        raise MisuseError(f"--min is {smallest} and --max is {largest}; write 1 <= min <= max")
    sizes = [first]
    while sizes[-1] * 4 < last:
        sizes.append(sizes[-1] * 4)
    return [*sizes, last]


def _show(rows: "list[Row]") -> None:
    def size(row: "Row") -> str:
        first = native.format_bytes(row.min_bytes)
        return (
            f"{first} .."
            if row.max_bytes is None
            else f"{first} .. {native.format_bytes(row.max_bytes)}"
        )

    columns: tuple[Any, ...] = (
        "collective",
        "ranks",
        "nodes",
        "size",
        "algorithm",
        "protocol",
        "why",
    )
    print_table(
        columns,
        [
            (row.collective, row.ranks, row.nodes, size(row), row.algorithm, row.protocol, row.why)
            for row in rows
        ],
        right=("ranks", "nodes"),
        prose=("why",),
        folds=("collective", "ranks", "nodes"),
    )  # fmt: skip
