"""`unisono run`: starts a program on several ranks of this machine."""

from typing import Annotated

import typer

from unisono.cli.output import DEFAULT_RANKS, Nodes, Ranks, complain, placement_of
from unisono.launcher import launch


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND [ARGS]...", help="A Python script, -m module, or a program."
        ),
    ],
    ranks: Ranks = DEFAULT_RANKS,
    nodes: Nodes = 1,
    label: Annotated[bool, typer.Option(help="Write each line of output with its rank.")] = False,
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

    With --keep-going the others go on, and the exit status is 0 if one of them ends well.

    Example: unisono run -n 8 --nodes 2 train.py --epochs 3

    Example: unisono run -n 4 --preload-nccl train.py
    """
    placement_of(ranks, nodes)
    outcome = launch(
        command,
        ranks,
        nodes=nodes,
        prefix_output=label,
        preload_nccl=preload_nccl,
        keep_going=keep_going,
    )
    if outcome.message:
        complain(outcome.message)
    raise typer.Exit(outcome.exit_code)
