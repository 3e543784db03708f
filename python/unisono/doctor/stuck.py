"""Whether calls under way are stuck, or merely under way when the dump was made."""

from typing import Any

import numpy as np

from unisono.doctor.parts import State
from unisono.doctor.waits import Waits

__all__ = ["How", "how_stuck"]

# A call under way for so many times the longest one before it is stuck.
_LONGEST = 20
_LEAST_NS = 10**9
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

    A dump does not say when it was made: the time at which its file was written does, by the clock
    of the process, so that clocks of different hosts are never compared.
    """
    job, calls = waits.job, waits.job.calls
    for process, mine in waits.open.items():
        for row, _ in mine:
            if waits.state(row) is State.failed:
                return How(True, f"A call of {job.label(process)} has failed.")
    ages: list[tuple[int, int]] = []
    for process, mine in waits.open.items():
        created, written = int(calls["created"][mine[0][0]]), job.processes[process].modified_ns
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
    longest = _longest(waits)
    shown = (
        f"{job.label(process)}'s call had been under way for {age / 1e9:.1f} s when it was dumped"
    )
    if timeout and age >= _NEAR_TIMEOUT * timeout:
        return How(True, f"{shown}, as long as its timeout of {timeout / 1e9:.0f} s.")
    if longest is None:
        return How(None, f"{shown}; too few calls came before it to say whether that is long.")
    known = f"the longest before it took {longest / 1e9:.2f} s"
    return How(age > max(_LONGEST * longest, _LEAST_NS), f"{shown}; {known}.")


def _longest(waits: Waits) -> float | None:
    """The longest that a call took, or that a rank waited until its next call."""
    calls: dict[str, Any] = waits.job.calls
    ended = (calls["ended"] > 0) & (calls["created"] > 0)
    spans = (calls["ended"] - calls["created"])[ended]
    same = np.diff(calls["process"]) == 0
    made = (calls["created"][1:] > 0) & (calls["created"][:-1] > 0)
    gaps = np.diff(calls["created"])[same & made]
    if len(spans) + len(gaps) < _LEAST_CALLS:
        return None
    return float(max(spans.max(initial=0), gaps.max(initial=0)))
