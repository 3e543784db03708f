"""The options of `unisono bench`."""

from typing import Annotated

import typer

from unisono.bench.peers import PEERS
from unisono.cli.output import (
    RANK_OPTIONS,
)

Collectives = Annotated[list[str] | None, typer.Argument(help="Default: all.")]
Ranks = Annotated[int, typer.Option(*RANK_OPTIONS, min=1, help="Number of ranks, as mpirun's -n.")]
Gpus = Annotated[
    int,
    typer.Option(
        "--gpus", "-g", min=0, help="As nccl-tests' -g: ranks, one a GPU. Replaces --ranks."
    ),
]
Smallest = Annotated[str, typer.Option("--min", "-b", "--minbytes", help="Smallest size.")]
Largest = Annotated[str, typer.Option("--max", "-e", "--maxbytes", help="Largest size.")]
Factor = Annotated[
    int, typer.Option("--factor", "-f", "--stepfactor", help="From one size to the next.")
]
Algorithm = Annotated[
    list[str] | None,
    typer.Option(help="Names, all, or auto: the selection table's."),
]
Protocol = Annotated[
    list[str] | None,
    typer.Option(help="simple, ll, ll128, all, or auto."),
]
Type = Annotated[
    str, typer.Option("--type", "-d", "--datatype", help="Element type; NCCL's names work.")
]
Operation = Annotated[
    str, typer.Option("--operation", "-o", "--op", help="Reduction; NCCL's names work.")
]
Root = Annotated[int, typer.Option("--root", "-r", help="Of broadcast, reduce, gather, scatter.")]
InPlace = Annotated[
    bool,
    typer.Option(
        "--in-place", help="Input and output alias; with --device cuda, rows of both kinds."
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations",
        "--iters",
        min=0,
        help="Calls timed, in up to nine repeats of equally many; 0: as time allows.",
    ),
]
Seconds = Annotated[float, typer.Option(min=0, help="For each case, roughly.")]
Netbed = Annotated[
    str,
    typer.Option(
        metavar="NODESxRANKS",
        help="Network namespaces as nodes, as 4x2; needs root. Replaces --ranks and --nodes.",
    ),
]
Rate = Annotated[
    str,
    typer.Option(help="Of each link of the netbed, as 200mbit; or one for each rail, with commas."),
]
Rails = Annotated[int, typer.Option(min=1, help="Links of each node of the netbed.")]
Cut = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RAIL@SECONDS",
        help="Cut this rail of the netbed so long after the timed calls begin; 1@5-8: it is back "
        "after 8 s; 1@5:silent: its packets vanish.",
    ),
]
Delay = Annotated[str, typer.Option(help="Of each message between nodes, as 1ms.")]
Against = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Compare with other libraries: {', '.join(PEERS)}.",
    ),
]
StopAfter = Annotated[
    float, typer.Option(min=0, help="With --against: begin nothing after so many seconds.")
]
Device = Annotated[
    str,
    typer.Option(help="cpu, or cuda: ranks on as many CUDA devices; --against nccl or symm_mem."),
]
Devices = Annotated[
    str,
    typer.Option(help="With --device cuda: numbers of devices, as 2,4; replaces --ranks."),
]
Mode = Annotated[
    list[str] | None, typer.Option(help="With --device cuda: eager, graph; default both.")
]
Channels = Annotated[int, typer.Option(min=0, help="With --device cuda: channels; 0: the table's.")]
Policy = Annotated[
    str, typer.Option(help="With --device cuda: zero_sm, or fastest; empty: the settings'.")
]
MaxSms = Annotated[
    int, typer.Option(min=0, help="With --device cuda: the most SMs of a call; 0: no limit.")
]
Memory = Annotated[
    str,
    typer.Option(
        help="With --device cuda: the buffers', cuda, or nccl: by ncclMemAlloc, which NCCL "
        "registers with its peers."
    ),
]
