"""What recorded calls have in common: turning when they ran into what waits for what."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unisono.errors import MisuseError
from unisono.simulate.workload import Task, TaskList


@dataclass(frozen=True)
class Recorded:
    """A call of one rank, and when it ran there."""

    start_ns: float
    end_ns: float
    task: Task


def replay(rank: int, calls: Sequence[Recorded]) -> TaskList:
    """A rank's tasks: its calls, and compute that fills the time between them.

    A call waits for the compute before it. That begins when the call before was begun, or once the
    last call that had ended by then has ended: what overlapped may overlap again, and what came
    after something still does. The durations of the calls themselves are not used.
    """
    tasks = TaskList([rank])
    ends: list[tuple[float, int]] = []  # of calls so far, with their tasks, by time
    last_start = None
    for one in sorted(calls, key=lambda call: (call.start_ns, call.end_ns)):
        if one.end_ns < one.start_ns:
            raise MisuseError(f"rank {rank}: {one.task.name} ends before it starts")
        before = bisect_right(ends, (one.start_ns, len(tasks.tasks)))
        ended_ns, ended = ends[before - 1] if before else (None, -1)
        known = [time for time in (ended_ns, last_start) if time is not None]
        gap = one.start_ns - max(known) if known else 0.0
        after = (ended,) if ended >= 0 else ()
        compute = tasks.compute(f"before {one.task.name}", gap, after=after)
        added = tasks.add(replace(one.task, after=(compute,)))
        ends.insert(bisect_right(ends, (one.end_ns, added)), (one.end_ns, added))
        last_start = one.start_ns
    return tasks
