"""The calls around a hang, for the page's time line."""

from unisono.doctor.diagnosis import Bar
from unisono.doctor.waits import Waits
from unisono.records.parts import ENDED

__all__ = ["timeline_of"]

_MOST_RANKS = 32
_CALLS_EACH = 12


def timeline_of(waits: Waits, stuck: int | None) -> list[Bar]:
    """The last calls of the ranks of the stuck call; with none, of the first ranks."""
    job, calls = waits.job, waits.job.calls
    if not len(calls["group"]):
        return []
    if stuck is not None:
        node = waits.nodes[stuck]
        # Those that did not come, or came with another call, are shown whatever their number.
        wanted = [*node.absent, *sorted(node.rows)][:_MOST_RANKS]
    else:
        wanted = sorted(job.rows)[:_MOST_RANKS]
    bars = []
    for process in sorted(wanted):
        for row in waits.all_rows(process)[-_CALLS_EACH:]:
            begin = int(calls["created"][row] or calls["started"][row])
            if not begin:
                continue
            kind, number = job.kinds[calls["kind"][row]], int(calls["number"][row])
            is_stuck = stuck is not None and waits.nodes[stuck].rows.get(process) == int(row)
            is_over = int(calls["state"][row]) == ENDED or int(calls["ended"][row]) > 0
            end = max(int(calls["ended"][row]), begin) if is_over else 0
            label = kind if number < 0 else f"{kind} {number}"
            group = job.groups[calls["group"][row]].name
            bars.append(Bar(job.label(process), group, label, begin, end, is_stuck))
    return bars
