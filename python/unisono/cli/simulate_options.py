"""The options of `unisono simulate`."""

from pathlib import Path
from typing import Annotated

import typer

from unisono.cli.output import (
    RANK_OPTIONS,
    check_output,
)

Collective = Annotated[str, typer.Argument(help="A collective.")]
Cluster = Annotated[str, typer.Option(help="A built-in cluster's name, or a YAML file.")]
Ranks = Annotated[str, typer.Option(*RANK_OPTIONS, help="As 8, 2..64 or 8,16,2048.")]
Nodes = Annotated[int, typer.Option(min=0, help="Nodes; 0: as few as hold the ranks.")]
Size = Annotated[
    list[str] | None, typer.Option(help="Sizes, with a unit: 64MB, 1MiB. Default 1MiB.")
]
Algorithm = Annotated[
    list[str] | None,
    typer.Option(help="Names, or all (the default). With NCCL's model NCCL chooses by default."),
]
Protocol = Annotated[
    list[str] | None,
    typer.Option(help="simple, ll, ll128 or all."),
]
Channels = Annotated[int, typer.Option(min=0, help="0: as the cluster's file says.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="loggops (the default): ports take turns. flows: links are shared, max-min fairly. "
        "alpha_beta: nothing is shared."
    ),
]
Noise = Annotated[float, typer.Option(min=0, help="Latencies grow by up to this part.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the noise.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show the fastest's critical path.")]
Against = Annotated[
    list[Path] | None,
    typer.Option(help="Simulate what a bench measured, and show the errors. Repeatable."),
]
Implementation = Annotated[
    str,
    typer.Option(
        help="Whose measurements: unisono, nccl, openmpi ... nccl without --against: what "
        "NCCL chooses and takes on a machine (dgx_h100, ..., or a file of format 2)."
    ),
]
Skip = Annotated[
    list[str] | None,
    typer.Option(help="With --against: algorithms to leave out, as one_shot."),
]
Use = Annotated[
    bool, typer.Option("--use", help="Show what the fastest sends over each port and link.")
]
Timeline = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=check_output,
        help="Write a time-line for Perfetto; with one algorithm, size and number.",
    ),
]
Workload = Annotated[
    Path | None,
    typer.Option(
        help="Instead of a collective: a workload's YAML, a GOAL file (.goal, .bin), or a "
        "folder of Chakra traces, Flight Recorder dumps or our records, one file a rank."
    ),
]
Loggops = Annotated[
    str,
    typer.Option(help="A GOAL file's costs: L=3.7us,o=200ns,g=5ns,G=0.04ns/B,O=0ns/B,S=64KiB."),
]
Clusters = Annotated[bool, typer.Option("--clusters", help="List the built-in clusters.")]
Sources = Annotated[
    bool, typer.Option("--sources", help="List the cluster's numbers and their sources.")
]
