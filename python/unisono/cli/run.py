"""`unisono run`: starts a program on several ranks of this machine."""

from typing import Annotated

import typer

from unisono import levels
from unisono.cli.headline import RecordsOfJob
from unisono.cli.output import (
    CLUSTER_LEVELS,
    DEFAULT_RANKS,
    Nodes,
    Ranks,
    Verbose,
    complain,
    placement_of,
    warn,
)
from unisono.launcher import Outcome, launch


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND [ARGS]...", help="A Python script, -m module, or a program."
        ),
    ],
    ranks: Ranks = DEFAULT_RANKS,
    nodes: Nodes = 1,
    cluster: Annotated[str, CLUSTER_LEVELS] = "",
    label: Annotated[bool, typer.Option(help="Write each line of output with its rank.")] = False,
    verbose: Verbose = False,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="When a rank fails, leave the others alone."),
    ] = False,
    preload_nccl: Annotated[
        bool,
        typer.Option(
            "--preload-nccl",
            help="Preload Unisono as a drop-in NCCL replacement, for programs written for NCCL.",
        ),
    ] = False,
) -> None:
    """Run a program on several ranks; when one fails, end all and say which.

    What the ranks have started and left running is ended with them. With --keep-going the others
    go on, and the exit status is 0 if one of them ends well. With --cluster, the nodes are the
    first ones of that cluster, and plans are chosen by how far messages would go there.

    Example: unisono run -n 8 --nodes 2 train.py --epochs 3

    Example: unisono run -n 4 --preload-nccl train.py
    """
    placement_of(ranks, nodes)
    records = RecordsOfJob()
    outcome = launch(
        command,
        ranks,
        nodes=nodes,
        locations=levels.locations_in_cluster(cluster, range(nodes)) if cluster else None,
        prefix_output=label,
        fold_errors=not verbose,
        preload_nccl=preload_nccl,
        keep_going=keep_going,
    )
    report_end(outcome, records)
    raise typer.Exit(outcome.exit_code)


def report_end(outcome: Outcome, records: RecordsOfJob) -> None:
    """Says what went wrong, with what the doctor says of the records that the ranks have written.

    The last line names the rank that failed first.
    """
    if outcome.left_running:
        some = "a process" if outcome.left_running == 1 else f"{outcome.left_running} processes"
        warn(f"the ranks left {some} running; ended")
    if outcome.message:
        records.tell()
        complain(outcome.message)
