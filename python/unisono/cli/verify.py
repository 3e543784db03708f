"""`unisono plan verify`: proves plans right, or says what is wrong with them."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from unisono import plans
from unisono.cli.output import (
    Json,
    complete_plan,
    parse_rank_list,
    placement_of,
    print_json,
    print_table,
    print_text,
    progress_console,
)
from unisono.errors import MisuseError
from unisono.exchange import read_plan

_ROOTED = ("broadcast", "reduce", "gather", "scatter")
# Plans that know nodes are also proved on nodes of four.
_RANKS_ON_A_NODE = 4
_SHOWN_FAILURES = 3


@dataclass(frozen=True)
class _Variant:
    """One plan to prove."""

    entry: plans.Algorithm
    ranks: int
    nodes: int
    in_place: bool

    def describe(self) -> str:
        place = ", in place" if self.in_place else ""
        nodes = f", {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.entry.plan_name} on {self.ranks} ranks{nodes}{place}"


@dataclass
class _Outcome:
    """What was found for one entry, or one file."""

    name: str
    proved: int = 0
    skipped: int = 0
    steps: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Plans, or files with plans.",
            autocompletion=complete_plan,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All built-in plans.")] = False,
    ranks: Annotated[str, typer.Option(help="For example 8, 2..64 or 2..9,16.")] = "2..16",
    nodes: Annotated[
        int, typer.Option(min=0, help="Nodes; 0: one node, and where it is even, nodes of four.")
    ] = 0,
    json: Json = False,
) -> None:
    """Prove plans right: every result, no race, no deadlock; in place and out of place.

    Exit status 1 if a plan is wrong.
    """
    files = [Path(name) for name in names or [] if Path(name).suffix or "/" in name]
    chosen = [plans.find_algorithm(name) for name in names or [] if Path(name) not in files]
    if every:
        chosen = plans.algorithms()
    if not chosen and not files:
        raise MisuseError("name plans (`unisono plan list` has them), or pass --all")
    started = time.monotonic()
    variants = [one for entry in chosen for one in _variants(entry, parse_rank_list(ranks), nodes)]
    outcomes = [_prove_file(path) for path in files] + _prove_all(variants)
    seconds = time.monotonic() - started
    failed = sum(len(one.failures) for one in outcomes)
    if json:
        print_json(
            {
                "ranks": ranks,
                "seconds": round(seconds, 3),
                "failed": failed,
                "plans": [vars(one) for one in outcomes],
            }
        )
    else:
        _print_outcomes(outcomes, seconds)
    raise typer.Exit(1 if failed else 0)


def _variants(entry: plans.Algorithm, ranks: list[int], nodes: int) -> Iterator[_Variant]:
    for count in ranks:
        node_counts = [nodes] if nodes else [1]
        if not nodes and count % _RANKS_ON_A_NODE == 0 and count > _RANKS_ON_A_NODE:
            node_counts.append(count // _RANKS_ON_A_NODE)
        for node_count in node_counts:
            for in_place in (False, True):
                yield _Variant(entry, count, node_count, in_place)


def _prove(variant: _Variant) -> _Outcome:
    """One variant; an entry that cannot serve it is skipped."""
    outcome = _Outcome(variant.entry.plan_name)
    placement = placement_of(variant.ranks, variant.nodes)
    rooted = variant.entry.collective in _ROOTED
    root = variant.ranks // 2 if rooted else 0
    started = time.monotonic()
    if variant.entry.why_not(placement, root=root, in_place=variant.in_place):
        outcome.skipped = 1
        return outcome
    plan = variant.entry.plan(placement, root=root, in_place=variant.in_place)
    report = plan.verify()
    outcome.proved, outcome.steps = 1, report.steps
    outcome.seconds = time.monotonic() - started
    if not report.ok:
        outcome.failures.append(f"{variant.describe()}: {report.failures[0].describe()}")
    return outcome


def _prove_file(path: Path) -> _Outcome:
    plan = read_plan(path)
    started = time.monotonic()
    report = plan.verify()
    outcome = _Outcome(f"{plan.name} ({path})", 1, 0, report.steps, time.monotonic() - started)
    outcome.failures = [failure.describe() for failure in report.failures]
    return outcome


def _prove_all(variants: list[_Variant]) -> list[_Outcome]:
    """All variants, on all cores: the native core lets go of the GIL. An outcome for each entry."""
    outcomes: dict[str, _Outcome] = {}
    progress = Progress(
        TextColumn("{task.description:<44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=progress_console,
        transient=True,
    )
    with progress, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        task = progress.add_task("proving", total=len(variants))
        for one in pool.map(_prove, variants):
            total = outcomes.setdefault(one.name, _Outcome(one.name))
            total.proved += one.proved
            total.skipped += one.skipped
            total.steps += one.steps
            total.seconds += one.seconds
            total.failures += one.failures
            progress.update(task, advance=1, description=one.name)
    return list(outcomes.values())


def _print_outcomes(outcomes: list[_Outcome], seconds: float) -> None:
    print_table(
        ("plan", "proved", "cannot serve", "steps", "seconds", "wrong"),
        [
            (one.name, one.proved, one.skipped, f"{one.steps:,}", f"{one.seconds:.2f}",
             len(one.failures))
            for one in outcomes
        ],
        right=("proved", "cannot serve", "steps", "seconds", "wrong"),
    )  # fmt: skip
    for one in outcomes:
        for failure in one.failures[:_SHOWN_FAILURES]:
            print_text(f"\n{failure}")
        if len(one.failures) > _SHOWN_FAILURES:
            print_text(f"and {len(one.failures) - _SHOWN_FAILURES} more failures of {one.name}")
    proved, failed = sum(one.proved for one in outcomes), sum(len(one.failures) for one in outcomes)
    verdict = "all right" if failed == 0 else f"{failed} WRONG"
    print_text(f"\n{proved} plans proved in {seconds:.1f} s: {verdict}")
