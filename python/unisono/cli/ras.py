"""`unisono ras`: where the ranks of running jobs are, and who waits for whom."""

import json as json_module
import sys
import time
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unisono.cli.output import (
    STANDARD_OUTPUT,
    Json,
    console,
    print_table,
    print_text,
    put_json,
    split_names,
    warn,
)
from unisono.errors import MachineError

if TYPE_CHECKING:
    from unisono.live import Answer, Overview
    from unisono.live.overview import JobView

_MOST_LINES = 40
_SHELL = "ssh -o BatchMode=yes"


def ras(
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Of this job only: its world's comm.id.")
    ] = None,
    json: Json = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            help="Ask the ranks on these hosts by a remote shell: for jobs without a rank here. "
            "Commas between.",
            metavar="HOSTS",
        ),
    ] = None,
    shell: Annotated[
        str,
        typer.Option(
            help="What runs `unisono ras` on a host: COMMAND HOST 'unisono ras ...'.",
            metavar="COMMAND",
        ),
    ] = _SHELL,
    answers: Annotated[
        bool,
        typer.Option("--answers", help="Print the ranks' answers, for another host's --hosts."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks of --watch.")
    ] = 2.0,
) -> None:
    """Show where the ranks of running jobs are, and who waits for whom.

    A rank on this host asks those on other hosts. Every process answers from a thread of its own,
    also while its calls hang. A rank that is stopped or dead is named. The exit status is 1 where
    a rank is to blame.
    """
    # `--help` does not wait for NumPy.
    from unisono.live import Overview, ask
    from unisono.live.hosts import to_json

    if answers:
        sys.stdout.write(json_module.dumps(to_json(ask(job))) + "\n")
        return
    names = split_names(hosts or [])
    while True:
        overview = Overview(_ask(job, names, shell))
        if not overview.jobs and not watch:
            which = f"no process of job {job}" if job else "no process of this user"
            where = "these hosts" if names else "this host; --hosts asks others"
            raise MachineError(f"{which} answers on {where}")
        if watch and console().is_terminal:
            console().clear()
        _show(overview, json)
        if not watch:
            break
        time.sleep(interval)
    if any(one.diagnosis.verdict.blames for one in overview.jobs):
        raise typer.Exit(1)


def _ask(job: str | None, hosts: list[str], shell: str) -> "list[Answer]":
    from unisono.live.hosts import ask_everywhere, ask_hosts

    if not hosts:
        return ask_everywhere(job)
    found, problems = ask_hosts(hosts, job, shell)
    for problem in problems:
        warn(problem)
    return found


def _show(overview: "Overview", json: Path | None) -> None:
    if put_json(json, overview.document()):
        return
    if json is not None and json != STANDARD_OUTPUT:
        return
    for job in overview.jobs:
        _show_job(job)


def _show_job(job: "JobView") -> None:
    print_text(
        f"Job {job.identifier}: {job.answered} of {job.size or '?'} ranks have answered.\n"
        f"{job.diagnosis.verdict.capitalize()}. {job.paragraph()}\n"
    )
    rows = [(one.name, *astuple(line)) for one in job.communicators for line in one.lines()]
    print_table(
        ("communicator", "ranks", "enqueued", "started", "completed", "under way", "waits for"),
        rows[:_MOST_LINES],
        right=("enqueued", "started", "completed"),
        prose=("ranks", "under way", "waits for"),
        title=f"Communicators ({len(job.communicators)})",
        keys=2,
    )
    if len(rows) > _MOST_LINES:
        print_text(f"{len(rows) - _MOST_LINES} more lines: --json - has all of them")
