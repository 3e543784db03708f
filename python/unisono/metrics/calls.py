"""Calls that have ended since the record was read before."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from unisono.doctor import diagnose
from unisono.inspection import Inspection
from unisono.live.parts import Heard, hear
from unisono.live.sockets import PATIENCE_S, ask

__all__ = ["Calls", "Finished", "Look", "Source", "of_communicators", "of_host"]

# As many as a process tells.
_ALL = 16_384
_OVER = ("ended", "failed", "aborted")
# A job is judged where a call has been under way for so long, has failed, or a rank says nothing.
_JUDGED_NS = 2 * 10**9


@dataclass(frozen=True)
class Look:
    """What a source gives.

    Attributes:
        records: Of version 2: `docs/reference/record.md`.
        silent: How many ranks gave none.
        suspects: By job and rank in it, how sure the doctor is that the rank holds the job up.
    """

    records: Sequence[dict[str, Any]]
    silent: int = 0
    suspects: dict[tuple[str, str], float] = field(default_factory=dict)


Source = Callable[[], Look]


@dataclass(frozen=True)
class Finished:
    """A call that is over, or the messages of one.

    Attributes:
        record: The head of its record.
        entry: As the record has it.
        seconds: From its start, or else from when it was made, to its end.
        begin_ns: Of the wall clock; end_ns, too.
    """

    record: dict[str, Any]
    entry: dict[str, Any]
    seconds: float
    begin_ns: int
    end_ns: int

    @property
    def collective(self) -> str:
        """Its name; "send" and "receive" for messages."""
        return str(self.entry.get("direction") or self.entry["collective"])

    @property
    def is_message(self) -> bool:
        """Whether it stands for messages."""
        return "direction" in self.entry


def of_communicators(*communicators: Inspection) -> Source:
    """The records of communicators of this process."""
    return lambda: Look([one.record() for one in communicators])


def of_host(job: str | None = None, patience_s: float = PATIENCE_S) -> Source:
    """The records of this user's jobs, or of one job, on this host, asked over their sockets."""

    def look() -> Look:
        records: list[dict[str, Any]] = []
        silent = 0
        suspects: dict[tuple[str, str], float] = {}
        for heard in hear(ask(job, newest=_ALL, patience_s=patience_s)):
            records += heard.records
            silent += len(heard.silent)
            if _may_hang(heard):
                suspects |= _suspects(heard)
        return Look(records, silent, suspects)

    return look


def _may_hang(heard: Heard) -> bool:
    """Whether a job may hang, so that it is worth the time of the doctor."""
    if heard.silent:
        return True
    for record in heard.records:
        late = record["clock"]["monotonic_ns"] - _JUDGED_NS
        if record.get("failure") or any(
            entry["state"] in ("scheduled", "started") and entry["scheduled_ns"] < late
            for entry in [*record["collectives"], *record["messages"]]
        ):
            return True
    return False


def _suspects(heard: Heard) -> dict[tuple[str, str], float]:
    found = diagnose(heard.job)
    if not found.verdict.blames:
        return {}
    sure = [(label, one.confidence) for one in found.others for label in one.ranks]
    sure += [(label, found.confidence) for label in found.ranks]
    return {(heard.identifier, label.removeprefix("rank ")): one for label, one in sure}


@dataclass
class _Sequence:
    """Calls that are numbered one after another.

    Attributes:
        end: The number after the last one that was in the record.
        told: Those in the record that are over and have been told.
    """

    end: int = 0
    told: set[int] = field(default_factory=set)


class Calls:
    """Tells each call that is over once.

    Attributes:
        unseen: By communicator, epoch and rank: how many collectives and how many messages the
            record had no more when it was read, because it holds the newest calls alone.
    """

    def __init__(self) -> None:
        self.unseen: dict[tuple[str, int, int], list[int]] = {}
        self._sequences: dict[tuple[Any, ...], _Sequence] = {}

    def new(self, records: Iterable[dict[str, Any]]) -> list[Finished]:
        """The calls of these records that are over and were not told before."""
        found: list[Finished] = []
        for record in records:
            owner = (record["communicator"], record["epoch"], record["rank"])
            unseen = self.unseen.setdefault(owner, [0, 0])
            by_sequence: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
            for entry in [*record["collectives"], *record["messages"]]:
                # A receive from any source has no number before its message has arrived.
                if "sequence" in entry and not entry.get("captured"):
                    by_sequence.setdefault((owner, *_kind(entry)), []).append(entry)
            for key, entries in by_sequence.items():
                known = self._sequences.setdefault(key, _Sequence())
                first = min(entry["sequence"] for entry in entries)
                unseen[_is_message(entries[0])] += max(first - known.end, 0)
                known.end = max(
                    known.end, *(entry["sequence"] + entry.get("messages", 1) for entry in entries)
                )
                over = {one["sequence"]: one for one in entries if one["state"] in _OVER}
                found += [_finished(record, over[one]) for one in sorted(over.keys() - known.told)]
                known.told = set(over)
        return found

    def forget(self, communicator: str) -> None:
        """What was known of a communicator that is gone."""
        self.unseen = {key: of for key, of in self.unseen.items() if key[0] != communicator}
        self._sequences = {
            key: of for key, of in self._sequences.items() if key[0][0] != communicator
        }


def _is_message(entry: dict[str, Any]) -> bool:
    return "direction" in entry


def _kind(entry: dict[str, Any]) -> tuple[Any, ...]:
    """What its numbers count; messages in host memory and on streams count apart."""
    if not _is_message(entry):
        return ("collectives",)
    return (entry["direction"], entry["peer"], entry["message_tag"], entry["path"] == "host")


def _finished(record: dict[str, Any], entry: dict[str, Any]) -> Finished:
    end = entry.get("ended_ns", 0)
    begin = entry.get("started_ns") or entry.get("scheduled_ns") or end
    ahead = record["clock"]["wall_ns"] - record["clock"]["monotonic_ns"]
    return Finished(record, entry, max(end - begin, 0) / 1e9, begin + ahead, end + ahead)
