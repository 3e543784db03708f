"""The report of a gate: what is slower, with its spread, and how fast NCCL is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import turns
from parts import Part
from store import AFTER, BEFORE, Run, Store, missing

PASSED, SLOWER, WRONG, UNFINISHED = 0, 1, 2, 3
# The order of the builds in even and odd turns.
ORDER = [turns.in_turn(turn, BEFORE, AFTER) for turn in (0, 1)]


def changes_of(part: Part, store: Store) -> list[turns.Change]:
    """All cases of a part, from the turns that both builds have run."""
    before, after = store.pairs(part.name)
    return turns.changes([run.values for run in before], [run.values for run in after])


def wanted_turns(part: Part, store: Store) -> int:
    """How many turns a part has: twice as many where a case is slower or may be."""
    if part.is_test or len(store.pairs(part.name)[0]) < part.pairs:
        return part.pairs
    doubtful = any(one.is_slower or one.may_be_slower for one in changes_of(part, store))
    return 2 * part.pairs if doubtful else part.pairs


def to_run(part: Part, store: Store) -> list[tuple[int, str]]:
    """The turns and builds that a part still needs."""
    order = [(AFTER,)] if part.is_test else ORDER
    return missing(store, part.name, wanted_turns(part, store), order)


def against_nccl(after: Sequence[Run]) -> list[str]:
    """How many times as fast as NCCL the second build is, by mean and where it is slower."""
    ratios = {}
    for case in after[0].nccl if after else {}:
        if all(run.nccl.get(case) and run.values.get(case) for run in after):
            ratios[case] = statistics.median(run.nccl[case] / run.values[case] for run in after)
    if not ratios:
        return []
    mean, least = turns.geometric_mean(list(ratios.values())), min(ratios.values())
    head = f"  NCCL's time / ours: geometric mean {mean:.3f}, least {least:.3f}"
    return [head, *(f"  {case:44} {one:.3f} of NCCL" for case, one in ratios.items() if one < 1)]


def test_lines(part: Part, store: Store) -> list[str]:
    if store.done(part.name, AFTER):
        return [f"{part.name}: passed"]
    return [f"{part.name}: {'FAILED' if store.failures(part.name) else 'not run'}"]


def compared_lines(part: Part, store: Store, *, every_case: bool) -> tuple[list[str], int]:
    """The lines of a part that compares, and its exit status."""
    before, after = store.pairs(part.name)
    if len(before) < part.pairs:
        return [f"{part.name}: {len(before)} of {part.pairs} pairs, not finished"], PASSED
    found = changes_of(part, store)
    slower = [one for one in found if one.is_slower]
    unsure = [one for one in found if one.may_be_slower]
    mean = turns.geometric_mean([one.ratio for one in found]) if found else 1.0
    lines = [
        f"{part.name}: {len(before)} pairs, {len(found)} cases, geometric mean {mean:.3f},"
        f" {len(slower)} slower, {len(unsure)} may be"
    ]
    shown = found if every_case else slower + unsure
    lines += [f"  {turns.HEAD}"] if shown else []
    for one in shown:
        mark = " SLOWER" if one.is_slower else " may be slower" if one.may_be_slower else ""
        lines.append(f"  {one}{mark}")
    return lines + against_nccl(after), SLOWER if slower else PASSED


def report(
    parts: Sequence[Part],
    store: Store,
    left_out: Mapping[str, str],
    *,
    every_case: bool = False,
) -> tuple[list[str], int]:
    """The report's lines and the exit status.

    Args:
        left_out: Why a part cannot run here, by its name.
        every_case: Whether cases that are not slower have lines, too.
    """
    lines: list[str] = []
    status = PASSED
    for part in parts:
        failures = store.failures(part.name)
        if part.is_test:
            own, found = test_lines(part, store), PASSED
        else:
            own, found = compared_lines(part, store, every_case=every_case)
        if why := left_out.get(part.name):
            own = [f"{part.name}: left out, {why}"]
        lines += own
        lines += [f"  {run.build} failed in turn {run.turn + 1}: {run.failed}" for run in failures]
        status = max(status, found, SLOWER if failures else PASSED)
    return lines, status
