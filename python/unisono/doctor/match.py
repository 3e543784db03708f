"""Which calls of different ranks are one call of their group."""

from itertools import pairwise
from typing import Any

import numpy as np

from unisono.doctor.job import Job

__all__ = ["SHIFT", "Lanes"]

Array = np.ndarray[Any, Any]
# A slot is a number and, below it, which of the calls with that number: those of a batch share one.
SHIFT = 12
_MOST_ALIGNED = 4096


class Lanes:
    """The collectives of each process in each group, in their order.

    Attributes:
        slots: For each call its place in the order of its group's collectives; -1 for messages.
        last: By process and group, the last slot that the process has made.
    """

    def __init__(self, job: Job) -> None:
        self.last: dict[tuple[int, int], int] = {}
        numbers, groups = _numbers(job), job.calls["group"]
        self.slots = np.full(len(numbers), -1, np.int64)
        # Rows of the table, by process and then by group, and where each of these has its rows.
        self._rows = np.empty(len(numbers), np.int64)
        self._place: dict[tuple[int, int], slice] = {}
        self._of_group: dict[int, list[slice]] = {}
        self._by_group: dict[int, Array] = {}
        end = 0
        for process, rows in job.rows.items():
            of, mine = groups[rows.start : rows.stop], numbers[rows.start : rows.stop]
            slots = self.slots[rows.start : rows.stop]
            order = of.argsort(kind="stable")
            if mine.min() < 0:
                order = order[mine[order] >= 0]
            _number(slots, mine, of, order)
            if len(order) and slots[order].min() < 0:  # a number that a slot cannot hold
                order = order[slots[order] >= 0]
            begin, end = end, end + len(order)
            self._rows[begin:end] = order + rows.start
            changes = np.flatnonzero(np.diff(of[order])) + 1
            for first, past in pairwise([0, *changes.tolist(), len(order)]):
                if first < past:
                    group = int(of[order[first]])
                    place = slice(begin + first, begin + past)
                    self._place[process, group] = place
                    self._of_group.setdefault(group, []).append(place)
                    self.last[process, group] = int(slots[order[first:past]].max())

    def rows(self, process: int, group: int) -> Array:
        """The collectives of a process in a group."""
        return self._rows[self._place.get((process, group), slice(0))]

    def of_group(self, group: int) -> Array:
        """The collectives of all processes of a group."""
        if group not in self._by_group:
            parts = [self._rows[one] for one in self._of_group.get(group, [slice(0)])]
            self._by_group[group] = np.concatenate(parts)
        return self._by_group[group]


def _numbers(job: Job) -> Array:
    """The number of each call; negative for messages.

    Calls have the numbers that their library gave. A group where ranks lack these is aligned: the
    kinds, types and sizes of a rank's calls are shifted along those of the rank with the most.
    """
    calls = job.calls
    numbers = calls["number"]
    lacking = np.flatnonzero(numbers < 0)
    lacking = lacking[calls["peer"][lacking] < 0]
    if len(lacking):
        lacking = lacking[~_is_named(job, lacking, ("coalesced", "point_to_point"))]
    if not len(lacking):
        return numbers
    numbers, groups = numbers.copy(), calls["group"][lacking]
    for group in np.unique(groups):
        _align(job, numbers, lacking[groups == group])
    return numbers


def _number(slots: Array, numbers: Array, groups: Array, order: Array) -> None:
    """Fills in the slots of a process's collectives, whose order is by group."""
    of, mine = groups[order], numbers[order]
    slots[order] = mine << SHIFT
    if ((mine[1:] > mine[:-1]) | (of[1:] != of[:-1])).all():
        return
    # Some have the same number: these are told apart by their order.
    order = order[np.lexsort((mine, of))]
    of, mine = groups[order], numbers[order]
    same = np.concatenate(([False], (mine[1:] == mine[:-1]) & (of[1:] == of[:-1])))
    place = np.arange(len(order))
    run = np.maximum.accumulate(np.where(same, 0, place))
    slots[order] += np.minimum(place - run, (1 << SHIFT) - 1)


def _is_named(job: Job, rows: Array, names: tuple[str, ...]) -> Array:
    codes = [i for i, kind in enumerate(job.kinds) if kind in names]
    return np.isin(job.calls["kind"][rows], codes)


def _align(job: Job, numbers: Array, calls: Array) -> None:
    """Numbers the calls of a group by their likeness to those of the rank that has the most."""
    table = job.calls
    of = table["process"][calls]
    processes, counts = np.unique(of, return_counts=True)
    signatures = np.stack(
        [table[name][calls].astype(np.int64) for name in ("kind", "type", "size")]
    )
    _, signs = np.unique(signatures, axis=1, return_inverse=True)
    longest = processes[int(counts.argmax())]
    model = signs[of == longest][-_MOST_ALIGNED:]
    aligned = [calls[of == longest][-_MOST_ALIGNED:]]
    numbers[aligned[0]] = np.arange(len(model))
    for process in processes[processes != longest]:
        mine = calls[of == process][-_MOST_ALIGNED:]
        numbers[mine] = np.arange(len(mine)) + _best_shift(
            model, signs[of == process][-_MOST_ALIGNED:]
        )
        aligned.append(mine)
    every = np.concatenate(aligned)
    numbers[every] -= min(int(numbers[every].min()), 0)


def _best_shift(model: Array, other: Array) -> int:
    """Where the other's calls agree best with the model's; of equals, the one nearest to 0."""
    best, found = (-np.inf, 0), 0
    for shift in range(len(model) - 1, -len(other), -1):
        begin, end = max(shift, 0), min(shift + len(other), len(model))
        same = int((model[begin:end] == other[begin - shift : end - shift]).sum())
        # A call that differs weighs more than one that nothing is known to match.
        score = (same - 2.0 * (end - begin - same), -abs(shift))
        if score > best:
            best, found = score, shift
    return found
