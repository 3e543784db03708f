"""`unisono chaos`: whole jobs in a simulated world where a seed decides what goes wrong."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from itertools import count, islice
from typing import Annotated

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from unisono import _unisono as native
from unisono.cli.output import Json, print_table, print_text, progress_console, put_json
from unisono.errors import MisuseError

# A worker plays so many seeds at a time, and after so many of these it makes room for another: a
# rank that was killed keeps its memory, as it stood in the middle of using it.
_SEEDS_A_TURN = 25
_TURNS_A_WORKER = 10
# Every so many seeds one is played twice, and must be the same run.
_TWICE_EVERY = 16
_MOST_STORIES = 3


@dataclass(frozen=True)
class _Kind:
    """What all seeds have in common."""

    ranks: int
    nodes: int
    operations: int
    strikes: int


@dataclass
class _Found:
    """What seeds came to, added up.

    Attributes:
        seeds: Played.
        calls: That succeeded, over all ranks.
        failures: Calls that ended in an error.
        events: Of the simulated worlds.
        virtual_seconds: That went by in them.
        repeated: Seeds that were played twice.
        places: Where a strike may come.
        wrong: By seed, what did not hold.
        stories: By seed, of the shortest failure.
    """

    seeds: int = 0
    calls: int = 0
    failures: int = 0
    events: int = 0
    virtual_seconds: float = 0.0
    repeated: int = 0
    places: set[str] = field(default_factory=set)
    wrong: dict[int, list[str]] = field(default_factory=dict)
    stories: dict[int, str] = field(default_factory=dict)

    def add(self, other: "_Found") -> None:
        self.seeds += other.seeds
        self.calls += other.calls
        self.failures += other.failures
        self.events += other.events
        self.virtual_seconds += other.virtual_seconds
        self.repeated += other.repeated
        self.places |= other.places
        self.wrong |= other.wrong
        self.stories |= other.stories


def _be_quiet() -> None:
    os.environ["UNISONO_LOG"] = "off"  # errors are what a worker provokes


def _play(seeds: list[int], kind: _Kind) -> _Found:
    found = _Found()
    for seed in seeds:
        twice = seed % _TWICE_EVERY == 0
        shrinks = len(found.stories) < _MOST_STORIES
        played = native.play_chaos(seed, **asdict(kind), twice=twice, shrinks=shrinks)
        found.seeds += 1
        found.calls += played.calls
        found.failures += played.failures
        found.events += played.events
        found.virtual_seconds += played.seconds
        found.repeated += twice
        found.places.update(played.places)
        wrong = list(played.wrong)
        if not played.is_repeatable:
            wrong.append("the seed gave another run the second time")
        if wrong:
            found.wrong[seed] = wrong
            found.stories[seed] = played.story
    return found


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


def _turns(first: int, last: int | None) -> Iterator[list[int]]:
    seeds = iter(range(first, last + 1) if last is not None else count(first))
    while turn := list(islice(seeds, _SEEDS_A_TURN)):
        yield turn


def _play_all(
    turns: Iterator[list[int]], kind: _Kind, jobs: int, until: float, progress: Progress
) -> _Found:
    found = _Found()
    task = progress.add_task("seeds", total=None)
    # Spawned, so that none has threads or locks of this process.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        jobs, context, initializer=_be_quiet, max_tasks_per_child=_TURNS_A_WORKER
    ) as pool:
        running: set[Future[_Found]] = set()
        while True:
            while len(running) < 2 * jobs and time.monotonic() < until:
                turn = next(turns, None)
                if turn is None:
                    break
                running.add(pool.submit(_play, turn, kind))
            if not running:
                return found
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                found.add(one.result())
            progress.update(
                task, description=f"{found.seeds:,} seeds, {len(found.wrong)} went wrong"
            )


def _print(found: _Found, seconds: float) -> None:
    for seed in sorted(found.stories)[:_MOST_STORIES]:
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
    ranks: Annotated[int, typer.Option(min=1, max=64)] = 4,
    nodes: Annotated[int, typer.Option(min=1, max=64, help="That the ranks are on.")] = 2,
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
    if nodes > ranks:
        raise MisuseError(f"--nodes {nodes}: {ranks} ranks can be on at most {ranks} nodes")
    kind = _Kind(ranks, nodes, operations, strikes)
    begun = time.monotonic()
    until = begun + hours * 3600 if hours > 0 else float("inf")
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=progress_console, transient=True) as progress:
        workers = jobs or os.cpu_count() or 1
        found = _play_all(_turns(first, last), kind, workers, until, progress)
    seconds = time.monotonic() - begun
    values = {**asdict(found), "places": sorted(found.places), "seconds": seconds}
    if not put_json(json, values):
        _print(found, seconds)
    if found.wrong:
        raise typer.Exit(1)
