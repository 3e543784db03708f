"""The calls that PyTorch's watchdogs name in logs, as parts of dumps have them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from unisono.doctor.log_ranks import LogRanks
from unisono.records.logs.events import Event, What
from unisono.records.logs.read import FORMAT
from unisono.records.parts import Claim, Columns, Part, State

__all__ = ["calls_of_logs"]

_WORLD_GROUP = "default_pg"
# Their inputs are of one size on all ranks.
_EVEN = ("allreduce", "broadcast", "reduce", "_allgather_base", "_reduce_scatter_base", "barrier")
# Where no line says how many ranks the job has, so many of those below the highest may be silent.
_MOST_SILENT = 0.25


@dataclass
class _InGroup:
    """What a rank's lines say of its calls in one group."""

    place: int = -1
    stuck: Event | None = None
    enqueued: int = -1


@dataclass
class _OfRank:
    file: str
    groups: dict[str, _InGroup] = field(default_factory=dict)


def calls_of_logs(logs: Sequence[Part], ranks: LogRanks) -> list[Part]:
    """A part for each rank whose watchdog names a call: that call, which timed out, and the last.

    The numbers are those of PyTorch's process groups.
    """
    found: dict[int, _OfRank] = {}
    for part in logs:
        # A rank's next line about a call that timed out names the call's group.
        groups = {(event.rank, event.number): event.group for event in part.events
                  if event.what is What.progress and event.group}  # fmt: skip
        for event in part.events:
            if event.what in (What.timed_out, What.progress) and event.rank >= 0:
                mine = found.setdefault(event.rank, _OfRank(part.file))
                group = event.group or groups.get((event.rank, event.number), _WORLD_GROUP)
                _take(mine, event, group)
    size = ranks.size or _likely_size(set(found))
    # All parts share the list of ranks: of 20,000 ranks, each with its own, it takes 15 GB.
    everyone = tuple(range(size))
    return [_part(rank, mine, everyone) for rank, mine in sorted(found.items()) if mine.groups]


def _take(mine: _OfRank, event: Event, group: str) -> None:
    of = mine.groups.setdefault(group, _InGroup())
    of.place = max(of.place, event.place)
    of.enqueued = max(of.enqueued, event.enqueued)
    is_call = event.what is What.timed_out and event.number >= 0
    # A watchdog may name later calls, too, which wait for the first.
    if is_call and (of.stuck is None or event.number < of.stuck.number):
        of.stuck = event


def _likely_size(ranks: set[int]) -> int:
    """How many ranks the job has, if a few below the highest are silent; else 0, for unknown."""
    size = max(ranks, default=-1) + 1
    silent = size - len(ranks)
    return size if 0 < silent <= max(1, _MOST_SILENT * size) else 0


def _part(rank: int, mine: _OfRank, everyone: tuple[int, ...]) -> Part:
    size = len(everyone)
    columns, claims, enqueued = Columns(), [], {}
    if rank < size:  # a rank whose lines are about other groups is in the group of all, too
        mine.groups.setdefault(_WORLD_GROUP, _InGroup())
    for index, (name, of) in enumerate(mine.groups.items()):
        if name == _WORLD_GROUP and rank < size:
            claims.append(Claim(name, f"{FORMAT}\0{name}", size, rank, everyone))
        else:
            claims.append(Claim(name, f"{FORMAT}\0{name}", 0, -1))
        if of.enqueued >= 0:
            enqueued[index] = of.enqueued
        if (call := of.stuck) is not None:
            columns.add(
                index, call.call, number=call.number,
                size=call.elements if call.call in _EVEN else -1, state=State.failed,
                timeout_ms=call.timeout_ms,
            )  # fmt: skip
    return Part(
        mine.file, FORMAT, "", ("world", rank), claims, columns.arrays(), list(columns.kinds),
        list(columns.types), world_size=size, last_enqueued=enqueued,
    )  # fmt: skip
