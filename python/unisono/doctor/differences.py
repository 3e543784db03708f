"""Where ranks made calls that differ, from each other's or from their own earlier ones."""

from collections import Counter
from itertools import pairwise
from typing import Any

from unisono.doctor.diagnosis import Cause, Verdict
from unisono.doctor.job import ranks_text
from unisono.doctor.match import SHIFT
from unisono.doctor.pattern import Change, Departure, departure
from unisono.doctor.waits import Node, Waits

__all__ = ["departed", "differed_before", "other_call", "unusual"]

# Columns that all ranks of a collective share, and what people call them.
_SHARED = (
    ("kind", "collective"), ("size", "size"), ("type", "type"), ("root", "root"),
    ("output", "size"),
)  # fmt: skip
# So many times another call must have followed the one before it.
_LEAST_FOLLOWED = 2
# Calls before the one that is stuck in which ranks may have differed.
_EARLIER_CALLS = 32
# Collectives in which each rank has a size of its own.
_UNEVEN = ("gather", "scatter", "all_to_all_v")


def _values(waits: Waits, node: Node) -> dict[int, dict[str, Any]]:
    job = waits.job
    found = {}
    for process, row in node.rows.items():
        one: dict[str, Any] = {name: int(job.calls[name][row]) for name, _ in _SHARED}
        one["kind"], one["type"] = job.kinds[one["kind"]], job.types[one["type"]]
        if one["kind"] in _UNEVEN:
            one["size"] = -1
        found[process] = one
    return found


def other_call(waits: Waits, node: Node) -> Cause | None:
    """Ranks whose call is not the others'."""
    job, values = waits.job, _values(waits, node)
    names = _SHARED if node.slot >= 0 else _SHARED[1:3]
    for name, shown in names:
        said = {one: value[name] for one, value in values.items() if value[name] not in (-1, "")}
        counts = Counter(said.values()).most_common()
        if len(counts) < 2:
            continue
        others = [one for one in sorted(said) if said[one] != counts[0][0]]
        if counts[0][1] <= len(others):
            others = _unlike_before(waits, node)
        unit = {"size": " bytes" if job.has_dumps else " elements",
                "output": " bytes of output"}.get(name, "")  # fmt: skip
        told = "; ".join(
            f"{ranks_text([job.label(one) for one in sorted(said) if said[one] == value])}: "
            f"{value}{unit}"
            for value, _ in counts
        )
        if not others:
            return Cause(
                Verdict.other_call, sorted(said), 0.5, 5, [f"{told}."], shown,
                ["The program says which is right: as many ranks make one call as the other."],
            )  # fmt: skip
        moved = _moved(waits, node, others[0])
        if moved is None:
            return Cause(Verdict.other_call, others, 0.95, 5, [f"{told}."], shown)
        verdict, text = moved
        difference = "order" if verdict is Verdict.other_call else ""
        return Cause(verdict, others, 0.9, 5, [f"{told}.", text], difference)
    return None


def differed_before(waits: Waits, group: int, slot: int) -> Cause | None:
    """A call before this one of the group that ended although ranks meant different ones."""
    calls, rows = waits.job.calls, waits.earlier(group, slot, _EARLIER_CALLS)
    slots = waits.slots[rows]
    for number in sorted(set(slots.tolist())):
        same = rows[slots == number]
        if all((calls[name][same] == calls[name][same[0]]).all() for name, _ in _SHARED):
            continue
        earlier = Node(group, number,
                       {int(calls["process"][row]): int(row) for row in same})  # fmt: skip
        cause = other_call(waits, earlier)
        if cause is not None:
            cause.evidence.insert(
                0, f"The ranks differed in call {earlier.number} of the group, which ended."
            )
            return cause
    return None


def departed(waits: Waits, processes: list[int]) -> Cause | None:
    """The one of some ranks whose calls differ from its own earlier rounds."""
    job = waits.job
    found = [(one, where) for one in processes if (where := departure(waits, one)) is not None]
    if len(found) != 1:
        return None
    (process, where), label = found[0], job.label(found[0][0])
    made, usual = _names(waits, where)
    if where.change is Change.swapped:
        evidence = [f"{label} made {made} and {usual} in the other order than before."]
        return Cause(Verdict.deadlock, [process], 0.9, 3, evidence, "order")
    evidence = [f"{label} made {made} without the {usual} that came before it in its earlier "
                "rounds."]  # fmt: skip
    if where.is_last:
        evidence.append("It may have meant to make that later.")
        return Cause(Verdict.deadlock, [process], 0.9, 3, evidence, "order")
    return Cause(Verdict.never_joined, [process], 0.85, 3, evidence)


def _names(waits: Waits, where: Departure) -> list[str]:
    """What the call that was made and the one that was due are called, told apart."""
    job, rows = waits.job, (where.row, where.usual)
    kinds = [job.kinds[job.calls["kind"][row]] for row in rows]
    if kinds[0] != kinds[1]:
        return kinds
    groups = [job.groups[job.calls["group"][row]].name for row in rows]
    if groups[0] != groups[1]:
        return [f"{kind} of group {group}" for kind, group in zip(kinds, groups, strict=True)]
    sizes = [int(job.calls["size"][row]) for row in rows]
    return [f"{kind} of {size} bytes" for kind, size in zip(kinds, sizes, strict=True)]


def _signatures(waits: Waits, process: int, group: int) -> dict[int, tuple[int, ...]]:
    """What a rank's calls of a group are, by slot."""
    calls = waits.job.calls
    rows = waits.rows(process, group)
    return {int(waits.slots[row]): tuple(int(calls[name][row]) for name, _ in _SHARED)
            for row in rows}  # fmt: skip


def _follower(made: dict[int, tuple[int, ...]], slot: int) -> tuple[int, ...] | None:
    """What has always followed a call like that of a slot, before it."""
    before = [made[one] for one in sorted(made) if one <= slot]
    if slot not in made:
        return None
    after = {b for a, b in pairwise(before) if a == made[slot]}
    times = sum(one == made[slot] for one in before[:-1])
    return after.pop() if len(after) == 1 and times >= _LEAST_FOLLOWED else None


def _unlike_before(waits: Waits, node: Node) -> list[int]:
    """Ranks whose call is not what has always followed the one before, where others' is."""
    made = {one: _signatures(waits, one, node.group) for one in node.rows}
    before = node.slot - (1 << SHIFT)
    usual = {_follower(one, before) for one in made.values()}
    if node.slot < 0 or len(usual) != 1 or None in usual:
        return []
    wrong = [one for one in sorted(made) if made[one].get(node.slot) not in usual]
    return wrong if len(wrong) < len(made) else []


def _moved(waits: Waits, node: Node, process: int) -> tuple[Verdict, str] | None:
    """Whether a rank's differing call is one that the others make later, or have made before."""
    if node.slot < 0:
        return None
    step = 1 << SHIFT
    label, number = waits.job.label(process), node.number
    mine = _signatures(waits, process, node.group)
    call, following = mine.get(node.slot), mine.get(node.slot + step)
    for other in sorted({*node.rows} - {process}):
        theirs = _signatures(waits, other, node.group)
        usual = theirs.get(node.slot)
        if usual == call:
            continue
        is_next = call is not None and call == theirs.get(node.slot + step)
        if following is not None and following == usual:
            text = f"{label} makes calls {number} and {number + 1} in the other order."
            more = f"{label} makes a call more than the others, as call {number}."
            return Verdict.other_call, text if is_next else more
        if is_next or (call is not None and call == _follower(theirs, node.slot)):
            return Verdict.never_joined, (
                f"{label}'s call {number} is what follows the call that the others make: it has "
                "skipped one.")  # fmt: skip
        break
    return None


def unusual(waits: Waits, process: int) -> Cause | None:
    """The last call of a rank that makes no more, where it is not what earlier rounds have there.

    For groups of which no other rank left a dump that could show the difference.
    """
    job, where = waits.job, departure(waits, process)
    if where is None or where.change is not Change.other or not where.is_last:
        return None
    shown = [
        what for name, what in _SHARED if job.calls[name][where.row] != job.calls[name][where.usual]
    ]
    if not shown or "collective" in shown:
        return None
    kind = job.kinds[job.calls["kind"][where.row]]
    evidence = [f"{job.label(process)}'s last call, {kind}, differs in its {shown[0]} from what it "
                "made there in earlier rounds."]  # fmt: skip
    return Cause(Verdict.other_call, [process], 0.7, 4, evidence, shown[0])
