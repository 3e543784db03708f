"""`unisono profile`: where the time of calls went, and which ranks are slow."""

from pathlib import Path
from typing import Annotated

import typer

from unisono.cli.output import Html, Json


def profile(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR",
            help="Records of the job's ranks, or folders of them.",
            exists=True,
            show_default=False,
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Ask the ranks of this running job on this host instead."),
    ] = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Say where the time of calls went, which ranks are slow, and what connections carried.

    Reads the records of all ranks: files that UNISONO_DUMP_DIRECTORY names, or, with --job, what
    the ranks of a running job answer.
    """
    # Imported here, because it takes longer than --help may.
    from unisono.cli.profile_tables import profile_job

    profile_job(files, job, json, html)
