"""Whether calls under way are stuck, or merely under way when the dump was made."""

import numpy as np

from unisono.doctor.job import Job
from unisono.doctor.waits import Waits
from unisono.records.parts import State

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
# A file that is later than that was copied: so many timeouts, and what it takes to write dumps. The
# timeout is an hour where the dump does not say it.
_MOST_TIMEOUTS = 1.25
_WRITING_NS = 120 * 10**9
_UNKNOWN_TIMEOUT_MS = 3600 * 1000
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
    When a dump was made, Unisono's record says; of others, their files. A file that is later than
    a call may last is a copy, and its time says nothing: the dump was made after the last thing
    that it has, which may be long enough.
    """
    job, calls = waits.job, waits.job.calls
    for process, mine in waits.open.items():
        for row, _ in mine:
            if waits.state(row) is State.failed:
                said = "has failed" if job.has_dumps else "has timed out, as the watchdog says"
                return How(True, f"A call of {job.label(process)} {said}.")
    copied = _copied(waits)
    ages: list[tuple[int, int]] = []
    for process, mine in waits.open.items():
        created, one = int(calls["created"][mine[0][0]]), job.processes[process]
        written = _last(job, process) if copied and one.has_file_time else one.written_ns
        # The steady clock of Unisono's record begins when the host does.
        if created and 0 < created < written and one.key[0] == "world" and (
            written - created < created):  # fmt: skip
            ages.append((written - created, process))
    if not ages:
        return How(
            None, copied or "The dumps do not say for how long the calls have been under way."
        )
    age, process = max(ages)
    row = waits.open[process][0][0]
    timeout = 10**6 * int(calls["timeout_ms"][row])
    # What happened on any rank shortly before its dump shows that the job still moves.
    longest, is_regular = _longest(waits.job)
    shown = (
        f"{job.label(process)}'s call had been under way for {age / 1e9:.1f} s when it was dumped"
    )
    if timeout and age >= _NEAR_TIMEOUT * timeout:
        return How(True, f"{shown}, as long as its timeout of {timeout / 1e9:.0f} s.")
    if longest is None:
        return How(None, f"{shown}; too few calls came before it to say whether that is long.")
    known = f"the longest before it took {longest / 1e9:.2f} s"
    if copied:
        return How(True, f"{shown}, at least; {known}.") if (
            age > max(_LONGEST * longest, _LEAST_NS)) else How(None, copied)  # fmt: skip
    still = _still_ns(waits)
    if is_regular and still > max(_LONGEST_STILL * longest, _LEAST_NS):
        return How(True, f"{shown}; {known}, and no rank began or ended one in the last "
                         f"{still / 1e9:.1f} s.")  # fmt: skip
    return How(age > max(_LONGEST * longest, _LEAST_NS), f"{shown}; {known}.")


def _copied(waits: Waits) -> str | None:
    """Why the files' times are not those at which the dumps were written, if one is not."""
    job, calls = waits.job, waits.job.calls
    for process, mine in waits.open.items():
        one, row = job.processes[process], mine[0][0]
        created = int(calls["created"][row])
        timeout_ns = 10**6 * (int(calls["timeout_ms"][row]) or _UNKNOWN_TIMEOUT_MS)
        later = one.written_ns - created
        if one.has_file_time and created and later > _MOST_TIMEOUTS * timeout_ns + _WRITING_NS:
            return (f"{one.files[-1]} is {later / 1e9:.0f} s later than {job.label(process)}'s "
                    f"call, which may last for {timeout_ns / 1e9:.0f} s: it is a copy, and when "
                    "it was dumped is not known.")  # fmt: skip
    return None


def _last(job: Job, process: int) -> int:
    """When a process began or ended its last call."""
    rows, calls = job.rows[process], job.calls
    return max(int(calls[name][rows.start : rows.stop].max(initial=0))
               for name in ("created", "started", "ended"))  # fmt: skip


def _longest(job: Job) -> tuple[float | None, bool]:
    """The longest that a call took, or that a rank waited until its next call, in nanoseconds.

    None where there are too few to say. The first calls of a process do not count: at most half of
    those that it has made. The other value is whether each rank has made many that do.
    """
    calls, count, longest, is_regular = job.calls, 0, 0, True
    for rows in job.rows.values():
        first = min(len(rows) // 2, _WARM_UP)
        is_regular = is_regular and len(rows) - first >= _WARM_UP
        created, ended = (calls[name][rows.start + first : rows.stop]
                          for name in ("created", "ended"))  # fmt: skip
        is_known = created > 0
        spans = (ended - created)[is_known & (ended > 0)]
        gaps = np.diff(created)[is_known[1:] & is_known[:-1]]
        count += len(spans) + len(gaps)
        longest = max(longest, int(spans.max(initial=0)), int(gaps.max(initial=0)))
    return float(longest) if count >= _LEAST_CALLS else None, is_regular


def _still_ns(waits: Waits) -> int:
    """For how long, at least, each rank had begun and ended no call when its dump was made.

    0 where a dump does not say.
    """
    job, calls = waits.job, waits.job.calls
    still = []
    for process, rows in job.rows.items():
        last = max(int(calls[name][rows.start : rows.stop].max(initial=0))
                   for name in ("created", "ended"))  # fmt: skip
        if last > 0:
            still.append(job.processes[process].written_ns - last)
    return max(min(still), 0) if still else 0
