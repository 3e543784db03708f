"""`unisono plan verify`: verifies plans, or says what is wrong with them."""

import functools
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from unisono import _unisono as native
from unisono import plans
from unisono.cli.output import (
    RANK_OPTIONS,
    Json,
    parse_rank_list,
    placement_of,
    print_table,
    print_text,
    progress_console,
    put_json,
)
from unisono.errors import MisuseError
from unisono.exchange import holds_xml, read_plans

_ROOTED = ("broadcast", "reduce", "gather", "scatter")
# Plans that know nodes are also verified on nodes of four.
_RANKS_ON_A_NODE = 4
# Built-in plans run in every engine, whose connections have so many slots at least.
_FEWEST_SLOTS = 2
# On so many ranks of one node the plans that zero-copy makes are verified, too.
_ONE_SIDED_RANKS = (2, 3, 4, 5, 8)
_SHOWN_FAILURES = 3
# More plans are a summary, unless -v asks for a line each.
_SHOWN_PLANS = 12


@dataclass(frozen=True)
class _Variant:
    """One plan to verify."""

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
    """What was found for one entry, or one plan of a file.

    Attributes:
        name: The entry's, or the plan's with its position.
        verified: Plans that are right.
        one_sided: Plans that are right among those that zero-copy makes of them.
        wrong: Plans that are not.
        skipped: Variants that the entry cannot serve.
        slots: That a connection needs for these plans; 0 where none is right.
        steps: Executed.
        seconds: The proofs took.
        notes: What a proof leaves open.
        failures: In words, several of a plan at most.
    """

    name: str
    verified: int = 0
    one_sided: int = 0
    wrong: int = 0
    skipped: int = 0
    slots: int = 0
    steps: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def judge(self, report: plans.Report, failures: list[str]) -> None:
        """Counts a plan."""
        self.slots = max(self.slots, report.slots)
        self.steps += report.steps
        self.failures += failures
        if failures:
            self.wrong += 1
        else:
            self.verified += 1


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Plans, or files with plans.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All built-in plans.")] = False,
    ranks: Annotated[
        str, typer.Option(*RANK_OPTIONS, help="For example 8, 2..64 or 2..9,16.")
    ] = "2..16",
    nodes: Annotated[
        int, typer.Option(min=0, help="Nodes; 0: one node, and where it is even, nodes of four.")
    ] = 0,
    allow_different_orders: Annotated[
        bool,
        typer.Option(
            "--allow-different-orders",
            help="Take plans of files whose ranks add in different orders, and mark them: their "
            "results differ in the last bits from rank to rank.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show a line for each plan, however many.")
    ] = False,
    json: Json = None,
) -> None:
    """Verify plans: every result, no race, no deadlock; in place and out of place.

    Of more than 12 plans, those that are wrong are listed; -v lists all.

    The column "one-sided" counts the plans of puts that zero-copy on GPUs runs instead: for 2, 3,
    4, 5 and 8 ranks, where all outputs, none, or all but one rank's are mapped by the peers.
    The column "slots" says how many messages a connection must hold (UNISONO_SLOTS). For a custom
    plan everything but its results is verified: only its program says what they should be.

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
    outcomes = [one for path in files for one in _prove_file(path, allow_different_orders)]
    outcomes += _prove_all(variants)
    seconds = time.monotonic() - started
    failed = sum(one.wrong for one in outcomes)
    document = {
        "ranks": ranks,
        "seconds": round(seconds, 3),
        "failed": failed,
        "plans": [vars(one) for one in outcomes],
    }
    if not put_json(json, document, "plan-verify"):
        _print_outcomes(outcomes, seconds, verbose)
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
    report = plan.verify(_FEWEST_SLOTS)
    outcome.judge(
        report, [f"{variant.describe()}: {one.describe()}" for one in report.failures[:1]]
    )
    if variant.nodes == 1 and variant.ranks in _ONE_SIDED_RANKS:
        _prove_one_sided(variant, plan, outcome)
    outcome.seconds = time.monotonic() - started
    return outcome


def _prove_one_sided(variant: _Variant, plan: plans.Plan, outcome: _Outcome) -> None:
    """What zero-copy makes of a plan, for every set of mapped outputs that lacks 0, 1 or all."""
    everyone = range(variant.ranks)
    sets = [[*everyone], []] + [[one for one in everyone if one != hidden] for hidden in everyone]
    for mapped in sets:
        report = plan.one_sided(mapped).verify(_FEWEST_SLOTS)
        outcome.steps += report.steps
        outcome.slots = max(outcome.slots, report.slots)
        if report.ok:
            outcome.one_sided += 1
            continue
        outcome.wrong += 1
        outcome.failures.append(
            f"{variant.describe()}, one-sided, outputs of ranks {mapped} mapped: "
            f"{report.failures[0].describe()}"
        )


def _prove_file(path: Path, allow_different_orders: bool) -> list[_Outcome]:
    """What a file holds: of XML for both places, the plan of each."""
    found = read_plans(path)
    # MSCCL's executors copy every message into a slot; ours may read it where it lies.
    copies = holds_xml(path)
    outcomes = []
    for plan in found:
        place = ", in place" if plan.in_place and len(found) > 1 else ""
        outcome = _Outcome(f"{plan.name}{place} ({path})")
        started = time.monotonic()
        verify_form = functools.partial(
            plan.verify, native.usable_slots(), allow_different_orders=allow_different_orders
        )
        report = verify_form()
        if copies and not report.ok and (again := verify_form(zero_copy=False)).ok:
            report = again
            outcome.notes.append(
                "verified for runtimes whose slots hold messages, as MSCCL's do: a chunk is "
                "overwritten after it was sent, so that without the copy (UNISONO_ZERO_COPY=1) "
                "ranks would wait for each other"
            )
        outcome.judge(report, _failures(report))
        outcome.seconds = time.monotonic() - started
        if report.ok and not report.results_verified:
            outcome.notes.append(
                "a custom plan: only its program says what its results should be; all else is "
                "verified"
            )
        if report.orders_differ:
            outcome.notes.append(
                "ranks add in different orders: their results differ in the last bits"
            )
        outcomes.append(outcome)
    return outcomes


def _failures(report: plans.Report) -> list[str]:
    """What is wrong."""
    failures = [failure.describe() for failure in report.failures]
    if failures and report.slots:
        failures[-1] += (
            f"\n  It needs {report.slots} slots in a connection. As UNISONO_SLOTS is set, "
            f"{native.usable_slots()} are free in every transport; raise it."
        )
    return failures


def _prove_all(variants: list[_Variant]) -> list[_Outcome]:
    """All variants, on all cores: the native core lets go of the GIL. An outcome for each entry."""
    outcomes: dict[str, _Outcome] = {}
    progress = Progress(
        TextColumn("{task.description:<44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=progress_console(),
        transient=True,
    )
    with progress, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        task = progress.add_task("verifying", total=len(variants))
        for one in pool.map(_prove, variants):
            total = outcomes.setdefault(one.name, _Outcome(one.name))
            total.verified += one.verified
            total.one_sided += one.one_sided
            total.wrong += one.wrong
            total.slots = max(total.slots, one.slots)
            total.skipped += one.skipped
            total.steps += one.steps
            total.seconds += one.seconds
            total.failures += one.failures
            progress.update(task, advance=1, description=one.name)
    return list(outcomes.values())


def _print_outcomes(outcomes: list[_Outcome], seconds: float, verbose: bool) -> None:
    listed = outcomes
    if len(outcomes) > _SHOWN_PLANS and not verbose:
        listed = [one for one in outcomes if one.wrong]
    if listed:
        _print_table(listed)
    for one in outcomes:
        for note in one.notes:
            print_text(f"\n{one.name}: {note}")
        for failure in one.failures[:_SHOWN_FAILURES]:
            print_text(f"\n{failure}")
        if len(one.failures) > _SHOWN_FAILURES:
            print_text(f"and {len(one.failures) - _SHOWN_FAILURES} more failures of {one.name}")
    verified, wrong = sum(one.verified for one in outcomes), sum(one.wrong for one in outcomes)
    noted = any(one.notes for one in outcomes)
    verdict = (
        f"{wrong} WRONG" if wrong else "all right, but for the notes" if noted else "all right"
    )
    one_sided = sum(one.one_sided for one in outcomes)
    plural = "" if verified == 1 else "s"
    forms = f" and {one_sided} one-sided forms" if one_sided else ""
    hint = "" if listed is outcomes else f"; -v lists all {len(outcomes)}"
    said = f"{verified} plan{plural}{forms} verified in {seconds:.1f} s: {verdict}{hint}"
    print_text(f"\n{said}" if listed else said)


def _print_table(outcomes: list[_Outcome]) -> None:
    print_table(
        ("plan", "verified", "one-sided", "cannot serve", "slots", "steps", "seconds", "wrong"),
        [
            (one.name, one.verified, one.one_sided or "-", one.skipped, one.slots or "-",
             f"{one.steps:,}", f"{one.seconds:.2f}", one.wrong)
            for one in outcomes
        ],
        right=("verified", "one-sided", "cannot serve", "slots", "steps", "seconds", "wrong"),
    )  # fmt: skip
