"""Whether calls under way are stuck, or merely under way when the dump was made."""

from typing import Any

import numpy as np

from unisono.doctor.parts import State
from unisono.doctor.waits import Waits

__all__ = ["How", "how_stuck"]

# A call under way for so many times the longest one before it is stuck.
_LONGEST = 20
# It is after fewer, where no rank has begun or ended any call for that long.
_LONGEST_STILL = 5
_LEAST_NS = 10**9
# So many calls of a process are not what is usual: they connect, compile and load. As many more say
# what is.
_WARM_UP = 8
# Of a call's own timeout.
_NEAR_TIMEOUT = 0.9
# Fewer calls say little of how long they usually take.
_LEAST_CALLS = 3


class How:
    """What is known.

    Attributes:
        is_stuck: True, False, or None where the dumps do not say.
        why: A sentence.
    """

    def __init__(self, is_stuck: bool | None, why: str) -> None:
        self.is_stuck, self.why = is_stuck, why


def how_stuck(waits: Waits) -> How:
    """How long the calls under way have lasted when the dumps were made, against earlier ones.

    Ages are by the clock of each process, so that clocks of different hosts are never compared.
    When a dump was made, Unisono's record says; of others, their files.
    """
    job, calls = waits.job, waits.job.calls
    for process, mine in waits.open.items():
        for row, _ in mine:
            if waits.state(row) is State.failed:
                return How(True, f"A call of {job.label(process)} has failed.")
    ages: list[tuple[int, int]] = []
    for process, mine in waits.open.items():
        created, written = int(calls["created"][mine[0][0]]), job.processes[process].written_ns
        # The steady clock of Unisono's record begins when the host does.
        if created and 0 < created < written and job.processes[process].key[0] == "world" and (
            written - created < created):  # fmt: skip
            ages.append((written - created, process))
    if not ages:
        return How(None, "The dumps do not say for how long the calls have been under way.")
    age, process = max(ages)
    row = waits.open[process][0][0]
    timeout = 10**6 * int(calls["timeout_ms"][row])
    # What happened on any rank shortly before its dump shows that the job still moves.
    usual, is_regular = _usual(waits.job.calls)
    longest = _longest(waits.job.calls, usual)
    shown = (
        f"{job.label(process)}'s call had been under way for {age / 1e9:.1f} s when it was dumped"
    )
    if timeout and age >= _NEAR_TIMEOUT * timeout:
        return How(True, f"{shown}, as long as its timeout of {timeout / 1e9:.0f} s.")
    if longest is None:
        return How(None, f"{shown}; too few calls came before it to say whether that is long.")
    known = f"the longest before it took {longest / 1e9:.2f} s"
    still = _still_ns(waits)
    if is_regular and still > max(_LONGEST_STILL * longest, _LEAST_NS):
        return How(True, f"{shown}; {known}, and no rank began or ended one in the last "
                         f"{still / 1e9:.1f} s.")  # fmt: skip
    return How(age > max(_LONGEST * longest, _LEAST_NS), f"{shown}; {known}.")


def _usual(calls: dict[str, Any]) -> tuple[Any, bool]:
    """Which calls say how long one takes, and whether each rank has made many of these.

    The first calls of a process do not: at most half of those that it has made.
    """
    process = calls["process"]
    begins = np.flatnonzero(np.diff(process, prepend=-1))
    lengths = np.diff(begins, append=len(process))
    place = np.arange(len(process)) - np.repeat(begins, lengths)
    first = np.minimum(lengths // 2, _WARM_UP)
    return place >= np.repeat(first, lengths), bool(np.all(lengths - first >= _WARM_UP))


def _longest(calls: dict[str, Any], usual: Any) -> float | None:
    """The longest that a call took, or that a rank waited until its next call, in nanoseconds."""
    ended = (calls["ended"] > 0) & (calls["created"] > 0) & usual
    spans = (calls["ended"] - calls["created"])[ended]
    same = np.diff(calls["process"]) == 0
    made = (calls["created"][1:] > 0) & (calls["created"][:-1] > 0) & usual[:-1]
    gaps = np.diff(calls["created"])[same & made]
    if len(spans) + len(gaps) < _LEAST_CALLS:
        return None
    return float(max(spans.max(initial=0), gaps.max(initial=0)))


def _still_ns(waits: Waits) -> int:
    """For how long, at least, each rank had begun and ended no call when its dump was made.

    0 where a dump does not say.
    """
    calls = waits.job.calls
    last = np.zeros(len(waits.job.processes), np.int64)
    for times in (calls["created"], calls["ended"]):
        np.maximum.at(last, calls["process"], times)
    written = np.array([one.written_ns for one in waits.job.processes], np.int64)
    still = (written - last)[last > 0]
    return max(int(still.min()), 0) if len(still) else 0
