"""Ranks that have not ended a call which all of their partners are past."""

import numpy as np

from unisono.doctor.diagnosis import Cause, Verdict
from unisono.doctor.job import number_of, ranks_text
from unisono.doctor.runs import is_synchronising
from unisono.doctor.waits import Node, Waits
from unisono.records.parts import ENDED, State

__all__ = ["left_behind"]

# Clocks of hosts are further apart only where nobody sets them.
_MOST_AHEAD_NS = 60 * 10**9


def left_behind(waits: Waits, node: Node) -> Cause | None:
    """The ranks that are still in a call, where all others have ended it or made later ones.

    Dumps may hold only calls under way: a rank that has made a later call of the group is past this
    one. A dump that was written before the others went on shows nothing.
    """
    job = waits.job
    late = [one for one, row in node.rows.items() if waits.state(row) is not State.ended]
    past = [one for one in job.groups[node.group].members if one not in late]
    if node.slot < 0 or node.absent or node.unknown or not late or len(late) > len(past):
        return None
    went_on = {one: _went_on(waits, node, one) for one in past}
    if not all(went_on.values()) or not job.groups[node.group].has_size:
        return None
    label, others = (
        ranks_text([job.label(one) for one in sorted(ranks)]) for ranks in (late, past)
    )
    evidence = [
        f"{label} {number_of(late, 'has', 'have')} not ended call {node.number} of group "
        f"{job.groups[node.group].name}, and all others are past it: {others}."
    ]
    early = [one for one in late if waits.state(node.rows[one]) is not State.failed
             and not all(_is_later(waits, node, one, other, time)
                         for other, time in went_on.items())]  # fmt: skip
    if early:
        label = ranks_text([job.label(one) for one in early])
        return Cause(
            Verdict.undecided, [], 0.0, 1,
            [*evidence, f"The {number_of(early, 'dump', 'dumps')} of {label} may have been written "
                        "before the others went on."],
            would_help=[f"A later dump of {label}."],
        )  # fmt: skip
    return Cause(
        Verdict.network, sorted(late), 0.7, 4, evidence,
        would_help=[f"The kernels that run on the GPU of {label} (cuda-gdb), a stack (py-spy "
                    "dump), and counters of the network card."],
    )  # fmt: skip


def _went_on(waits: Waits, node: Node, process: int) -> int:
    """When a process was past a call, by its own clock; 0 if it is not."""
    calls = waits.job.calls
    mine = waits.rows(process, node.group)
    made = calls["created"][mine[waits.slots[mine] > node.slot]]
    row = node.rows.get(process)
    ended = int(calls["ended"][row]) if row is not None else 0
    times = [int(one) for one in (*made, ended) if one > 0]
    return min(times) if times else 0


def _is_later(waits: Waits, node: Node, process: int, other: int, time: int) -> bool:
    """Whether a process's dump was written after a time of another one's clock."""
    job, calls = waits.job, waits.job.calls
    written = job.processes[process].written_ns
    if not written:
        return False
    if job.processes[process].host and job.processes[process].host == job.processes[other].host:
        return written > time
    ahead = _MOST_AHEAD_NS
    # No rank ends such a call before all have made it.
    mine, theirs = waits.rows(process, node.group), waits.rows(other, node.group)
    _, a, b = np.intersect1d(waits.slots[mine], waits.slots[theirs], return_indices=True)
    mine, theirs = mine[a], theirs[b]
    kinds = [i for i, kind in enumerate(job.kinds) if is_synchronising(kind)]
    known = np.isin(calls["kind"][mine], kinds) & (calls["state"][mine] == ENDED) & (
        calls["ended"][mine] > 0) & (calls["created"][theirs] > 0)  # fmt: skip
    if known.any():
        ahead = int((calls["ended"][mine] - calls["created"][theirs])[known].min())
    return written > time + ahead
