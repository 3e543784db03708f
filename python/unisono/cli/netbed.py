"""`unisono netbed`: runs a program on ranks of namespaces joined by shaped links."""

from typing import Annotated

import typer

from unisono.cli.deferred import Commands
from unisono.cli.headline import RecordsOfJob
from unisono.cli.output import Verbose, parse_delay, print_text, progress_console
from unisono.cli.run import report_end
from unisono.launcher import launch
from unisono.netbed import Netbed, parse_shape, remove_stale

# Everything from the command's name on belongs to the command.
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": False}

app = Commands(
    help="Network namespaces as nodes, joined by shaped links.",
    no_args_is_help=True,
    add_completion=False,
)


def run(
    shape: Annotated[str, typer.Argument(metavar="NODESxRANKS", help="As 4x2.")],
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND [ARGS]...", help="A Python script, -m module, or a program."
        ),
    ],
    rate: Annotated[
        str,
        typer.Option(
            help="Of each link, as 200mbit; or one for each rail, with commas; empty: no limit."
        ),
    ] = "",
    rails: Annotated[int, typer.Option(min=1, help="Links of each node.")] = 1,
    delay: Annotated[str, typer.Option(help="Of each message between nodes, as 1ms.")] = "",
    label: Annotated[bool, typer.Option(help="Write each line of output with its rank.")] = False,
    verbose: Verbose = False,
) -> None:
    """Run a program on several ranks of several nodes; when one fails, end all and say which.

    Example: unisono netbed run --rate 200mbit 4x2 train.py --epochs 3
    """
    wanted = parse_shape(shape, rate, rails)
    if delay:
        parse_delay(delay)
    records = RecordsOfJob()
    with Netbed(wanted) as bed:
        progress_console().print(wanted.describe(), highlight=False)
        outcome = launch(
            command,
            wanted.ranks,
            nodes=wanted.nodes,
            environment={"UNISONO_DELAY": delay} if delay else {},
            prefix_output=label,
            fold_errors=not verbose,
            places=bed,
        )
    report_end(outcome, records)
    raise typer.Exit(outcome.exit_code)


def clean() -> None:
    """Remove what netbeds that were killed have left; the next netbed does so too."""
    removed = remove_stale()
    print_text("\n".join(removed) if removed else "nothing is left")


app.command("run", context_settings=CONTEXT, no_args_is_help=True)(run)
app.command("clean")(clean)
