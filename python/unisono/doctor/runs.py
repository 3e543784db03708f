"""Which dumps are of one run: by the ids of communicators, else by calls that cannot be one call.

Clocks of different hosts are never compared as such. Where a format has no ids, a collective in
which all ranks depend on all bounds how far two clocks are apart. One run has one such distance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from unisono.records.parts import ENDED, Key, Part

__all__ = ["Runs", "is_synchronising", "sort_runs"]

Array = np.ndarray[Any, Any]
# A clock that is set while the job runs moves by less.
_MOST_STEP_NS = 200 * 10**6
# Dumps whose calls are so far from those of the others may be of another run.
_FAR_NS = 60 * 10**9
# So many calls show that two clocks differ by one distance, if it is known to this part of the time
# that the calls span.
_LEAST_CALLS = 8
_MOST_WIDTH = 0.05
_SYNCHRONISING = (
    "all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "reducescatter",
    "barrier",
)  # fmt: skip


@dataclass
class Runs:
    """The dumps of one run.

    Attributes:
        kept: Its dumps.
        problems: A sentence for each dump of another run.
        doubts: A sentence for each dump that may be of another run.
    """

    kept: list[Part]
    problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def sort_runs(parts: Sequence[Part]) -> Runs:
    """The dumps of the run that most ranks left dumps of; of equals, the one with later times."""
    found = Runs([])
    known = _by_ids([part for part in parts if part.ids], found)
    others = _by_calls([part for part in parts if not part.ids], found)
    kept = {id(part) for part in (*known, *others)}
    found.kept = [part for part in parts if id(part) in kept]
    return found


def _most(runs: Sequence[list[Part]]) -> list[Part]:
    return max(runs, key=lambda one: (len({part.key for part in one}), max(map(_last, one))))


def _by_ids(parts: list[Part], found: Runs) -> list[Part]:
    """Dumps are linked by what they share: a communicator or a process."""
    if not parts:
        return []
    parent: dict[str, str] = {}

    def root(one: str) -> str:
        while parent.setdefault(one, one) != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    for part in parts:
        for one in part.ids[1:]:
            parent[root(one)] = root(part.ids[0])
    runs: dict[str, list[Part]] = {}
    for part in parts:
        runs.setdefault(root(part.ids[0]), []).append(part)
    main = _most(list(runs.values()))
    keys, groups = _keys(main), _groups(main)
    kept = []
    for run in runs.values():
        # Ranks that share no communicator with the others are another part of the job.
        if run is main or not (keys & _keys(run) or groups & _groups(run)):
            kept += run
            continue
        found.problems += [
            f"{part.file}: it is of another run of the job: most dumps, such as {main[0].file}, "
            "are of other communicators" for part in run
        ]  # fmt: skip
    return kept


def _keys(parts: list[Part]) -> set[Key]:
    return {part.key for part in parts}


def _groups(parts: list[Part]) -> set[tuple[str, tuple[int, ...]]]:
    return {(claim.name, claim.members) for part in parts for claim in part.claims if claim.members}


def _by_calls(parts: list[Part], found: Runs) -> list[Part]:
    """Dumps without ids."""
    runs: list[list[Part]] = []
    spans: list[_Calls] = []  # of each run's first dump
    for part in parts:
        mine = _calls(part)
        for run, first in zip(runs, spans, strict=True):
            if not _distance(first, mine).is_contradicted:
                run.append(part)
                break
        else:
            runs.append([part])
            spans.append(mine)
    if not runs:
        return []
    main = _most(runs)
    for run in runs:
        if run is not main:
            found.problems += [
                f"{part.file}: it is of another run of the job: a collective of all ranks ended in "
                f"it before a rank had made it, by the times of {main[0].file}" for part in run
            ]  # fmt: skip
    _find_doubts(main, found)
    return main


def _find_doubts(parts: list[Part], found: Runs) -> None:
    """Dumps whose calls are all long before or after those of the others."""
    timed = [part for part in parts if _first(part) > 0]
    if len(timed) < 2:
        return
    firsts, lasts = (float(np.median([time(part) for part in timed])) for time in (_first, _last))
    far = [part for part in timed
           if _last(part) < firsts - _FAR_NS or _first(part) > lasts + _FAR_NS]  # fmt: skip
    near = [part for part in timed if part not in far]
    for part in far:
        mine = _calls(part)
        if not any(_distance(_calls(one), mine).is_proved for one in near[:4]):
            found.doubts.append(
                f"{part.file} may be of another run: its calls are "
                f"{abs(_last(part) - lasts) / 1e9:.0f} s from those of the other dumps, and too "
                "few of them tell whether its host has another clock."
            )


def _first(part: Part) -> int:
    created = part.calls["created"]
    return int(created[0]) if len(created) else 0


def _last(part: Part) -> int:
    return max((int(part.calls[name].max(initial=0)) for name in ("created", "started", "ended")),
               default=0)  # fmt: skip


def is_synchronising(kind: str) -> bool:
    """Whether no rank ends a collective of this kind before all ranks have made it."""
    return kind.strip("_").lower().startswith(_SYNCHRONISING)


# By group, the numbers of its calls, and when the process made and ended them.
_Calls = dict[str, tuple[Array, Array, Array]]


def _calls(part: Part) -> _Calls:
    """The collectives that no rank ends before all have made them, if they ended."""
    of = part.calls
    kinds = [i for i, one in enumerate(part.kinds) if is_synchronising(one)]
    known = np.isin(of["kind"], kinds) & (of["state"] == ENDED) & (of["number"] >= 0) & (
        of["created"] > 0) & (of["ended"] > 0)  # fmt: skip
    found: _Calls = {}
    for group in np.unique(of["group"][known]):
        rows = np.flatnonzero(known & (of["group"] == group))
        numbers, first = np.unique(of["number"][rows], return_index=True)
        rows = rows[first]
        found[part.claims[group].ident] = (numbers, of["created"][rows], of["ended"][rows])
    return found


class _Distance(NamedTuple):
    """How far one clock is ahead of another, by the calls that both have.

    Attributes:
        is_contradicted: No one distance fits all calls.
        is_proved: So many calls fit one distance that they are of one run.
    """

    is_contradicted: bool
    is_proved: bool


def _distance(one: _Calls, other: _Calls) -> _Distance:
    low, high, count, begin, end = -(1 << 62), 1 << 62, 0, 1 << 62, 0
    for ident in one.keys() & other.keys():
        (a, made_a, ended_a), (b, made_b, ended_b) = one[ident], other[ident]
        _, of_a, of_b = np.intersect1d(a, b, assume_unique=True, return_indices=True)
        if not len(of_a):
            continue
        low = max(low, int((made_b[of_b] - ended_a[of_a]).max()))
        high = min(high, int((ended_b[of_b] - made_a[of_a]).min()))
        count += len(of_a)
        begin, end = min(begin, int(made_a[of_a].min())), max(end, int(ended_a[of_a].max()))
    is_contradicted = low > high + _MOST_STEP_NS
    is_narrow = high - low <= _MOST_WIDTH * (end - begin)
    return _Distance(is_contradicted, not is_contradicted and count >= _LEAST_CALLS and is_narrow)
