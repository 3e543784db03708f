"""Which calls of different ranks are one call of their group."""

from typing import Any

import numpy as np

from unisono.doctor.job import Job

__all__ = ["SHIFT", "slots_of"]

Array = np.ndarray[Any, Any]
# A slot is a number and, below it, which of the calls with that number: those of a batch share one.
SHIFT = 12
_MOST_ALIGNED = 4096


def slots_of(job: Job) -> Array:
    """For each call its place in the order of its group's collectives; -1 for messages.

    Calls have the numbers that their library gave. A group where ranks lack these is aligned: the
    kinds, types and sizes of a rank's calls are shifted along those of the rank with the most.
    """
    calls = job.calls
    numbers = calls["number"].copy()
    lacking = (numbers < 0) & (calls["peer"] < 0) & ~_is_named(job, ("coalesced", "point_to_point"))
    for group in np.unique(calls["group"][lacking]):
        _align(job, numbers, np.flatnonzero(lacking & (calls["group"] == group)))
    found = np.full(len(numbers), -1, np.int64)
    kept = np.flatnonzero(numbers >= 0)
    if not len(kept):
        return found
    keys = (numbers[kept], calls["group"][kept], calls["process"][kept])
    order = np.lexsort(keys)
    same = np.ones(len(order), bool)
    same[0] = False
    for key in keys:
        sorted_key = key[order]
        same[1:] &= sorted_key[1:] == sorted_key[:-1]
    kept = kept[order]
    found[kept] = numbers[kept] << SHIFT
    if same.any():
        place = np.arange(len(order))
        run = np.maximum.accumulate(np.where(same, 0, place))
        found[kept] += np.minimum(place - run, (1 << SHIFT) - 1)
    return found


def _is_named(job: Job, names: tuple[str, ...]) -> Array:
    codes = [i for i, kind in enumerate(job.kinds) if kind in names]
    return np.isin(job.calls["kind"], codes)


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
