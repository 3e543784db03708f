"""`unisono chaos`: whole jobs in a simulated world where a seed decides what goes wrong."""

import os
import time
from dataclasses import asdict
from functools import partial
from itertools import count
from typing import Annotated

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from unisono.cli.chaos_workers import MOST_STORIES, Found, Kind, play_all, play_seed
from unisono.cli.output import Json, print_table, print_text, progress_console, put_json
from unisono.errors import MisuseError


def _parse_seeds(text: str) -> tuple[int, int | None]:
    begin, dots, end = text.partition("..")
    if not begin.isdecimal() or (end and not end.isdecimal()):
        raise MisuseError(f"--seeds {text}: write A..B, as 1..1000, or A.. with --hours")
    first = int(begin)
    if not dots:
        return first, first
    if not end:
        return first, None
    if int(end) < first:
        raise MisuseError(f"--seeds {text}: the last seed, {end}, is below the first, {begin}")
    return first, int(end)


def _print(found: Found, seconds: float) -> None:
    for seed in sorted(found.stories)[:MOST_STORIES]:
        print_text(f"seed {seed}: {found.wrong[seed][0]}")
        print_text(found.stories[seed])
    columns = ["seeds", "went wrong", "calls", "failed calls", "places", "virtual s", "seeds/s"]
    row = [f"{found.seeds:,}", len(found.wrong), f"{found.calls:,}", f"{found.failures:,}",
           len(found.places), f"{found.virtual_seconds:,.0f}",
           f"{found.seeds / max(seconds, 1e-9):.1f}"]  # fmt: skip
    print_table(columns, [row], right=columns, keys=0)


def chaos(
    seeds: Annotated[str, typer.Option(help="The seeds: A..B, one, or A.. with --hours.")] = (
        "1..100"
    ),
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, help="Of a job. By default by turns 4 on 2 nodes, 8 on 2 and 8 on 3."
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="That the ranks are on; 2 where --ranks is given."),
    ] = None,
    operations: Annotated[
        int, typer.Option(min=0, max=1000, help="Calls, messages, splits ... of a job.")
    ] = 20,
    strikes: Annotated[
        int, typer.Option(min=0, max=16, help="Deaths, cuts, stops ... in a job.")
    ] = 1,
    hours: Annotated[float, typer.Option(min=0, help="Begin no more after so long.")] = 0,
    jobs: Annotated[int, typer.Option(min=0, help="Processes. 0: one a processor.")] = 0,
    json: Json = None,
) -> None:
    """Run whole jobs in a simulated world where a seed decides what goes wrong.

    Each seed is a job of its own: a network, collectives, messages, groups and aborts, and what
    strikes a rank where. The library's own code runs them. What must hold: results are right, no
    call outlasts its deadline, errors blame who was struck, the others go on, nothing is left over,
    and a seed is the same run each time. The shortest story of what went wrong is printed.
    """
    first, last = _parse_seeds(seeds)
    if last is None and hours == 0:
        raise MisuseError(f"--seeds {seeds} has no end: write A..B, or say --hours")
    kind = Kind(ranks, nodes, operations, strikes)
    fewest = kind.fewest_ranks()
    if nodes is not None and nodes > fewest:
        raise MisuseError(f"--nodes {nodes}: {fewest} ranks can be on at most {fewest} nodes")
    begun = time.monotonic()
    until = begun + hours * 3600 if hours > 0 else float("inf")
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=progress_console(), transient=True) as progress:
        task = progress.add_task("seeds", total=None)

        def tell(found: Found) -> None:
            so_far = f"{found.seeds:,} seeds, {len(found.wrong)} went wrong"
            progress.update(task, description=so_far)

        numbers = iter(range(first, last + 1)) if last is not None else count(first)
        workers = jobs or os.cpu_count() or 1
        found = play_all(numbers, partial(play_seed, kind=kind), workers, until, tell)
    seconds = time.monotonic() - begun
    values = {**asdict(found), "places": sorted(found.places), "seconds": seconds}
    if not put_json(json, values, "chaos"):
        _print(found, seconds)
    if found.wrong:
        raise typer.Exit(1)
