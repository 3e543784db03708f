"""The calls of all ranks, in one table and on one clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.errors import MisuseError
from unisono.profile.connections import Connection, connections_of
from unisono.records.clocks import align

__all__ = ["Calls", "Collective", "Message"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Collective:
    """A collective that every rank of its group has ended and recorded; times in ns.

    Attributes:
        ranks: In the job, by place in the group; the arrays have their order.
        number: In the group, from 0.
        bytes: The larger of input and output, of the rank that has most.
        root: Place in the group.
        connecting: In which connections that the call needed were being made; 0 if none was.
        reducing: In which data were combined; 0 if that was not measured.
    """

    group: str
    number: int
    kind: str
    bytes: int
    root: int
    ranks: tuple[int, ...]
    scheduled: Array
    started: Array
    ended: Array
    connecting: Array
    reducing: Array

    def last_needed(self) -> Array:
        """For each rank, when the last rank whose data it needs had started."""
        if self.kind in ("broadcast", "scatter"):
            since_root: Array = np.maximum(self.started, self.started[self.root])
            return since_root
        if self.kind in ("reduce", "gather"):
            needed: Array = self.started.copy()
            needed[self.root] = self.started.max()
            return needed
        return np.full_like(self.started, self.started.max())

    def waited(self) -> Array:
        """How long each rank waited for others to start."""
        found: Array = np.clip(self.last_needed() - self.started, 0, self.ended - self.started)
        return found

    def connected(self) -> Array:
        """How long each rank made connections after all that it needs had begun.

        A connection is complete when its peer has begun, too: that part of the time is waiting.
        """
        found: Array = np.clip(self.connecting - self.waited(), 0, self.active())
        return found

    def reduced(self) -> Array:
        """How long each rank combined data, without what it did so while it waited."""
        found: Array = np.clip(self.reducing, 0, self.active() - self.connected())
        return found

    def active(self) -> Array:
        """The rest of each rank's time in the call: connections made, data moved and reduced."""
        return self.ended - self.started - self.waited()


@dataclass(frozen=True)
class Message:
    """The messages of one call, in one direction; times in ns."""

    group: str
    rank: int
    peer: int
    is_send: bool
    messages: int
    bytes: int
    started: int
    ended: int


class Calls:
    """What records hold, of all ranks that left one.

    Attributes:
        collectives: Of those that can be profiled, by group and number.
        messages: Those that have ended, by start.
        connections: What each has carried, by rank; older records do not say it.
        clock_error_ns: How far clocks of different hosts may be apart; -1 where nothing bounds it.
        left_out: Why collectives were left out, and how many.
    """

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        """From records of version 2 with `world_ranks`.

        Raises:
            MisuseError: There are none.
        """
        if not records:
            raise MisuseError("there is no record to profile")
        ahead = align(records)
        errors = [one.error_ns for one in ahead.values()]
        self.clock_error_ns = -1 if min(errors) < 0 else max(errors)
        self.left_out: dict[str, int] = {}
        self.messages: list[Message] = []
        self.connections: list[Connection] = []
        # By communicator, epoch and number: each place's entry, and how far its clock is ahead.
        calls: dict[tuple[str, int, int], dict[int, tuple[dict[str, Any], int]]] = {}
        groups: dict[tuple[str, int], dict[str, Any]] = {}
        for record in records:
            rank = record["world_ranks"][record["rank"]]
            owner = (record["communicator"], record["epoch"])
            groups[owner] = record
            for entry in record["collectives"]:
                key = (*owner, entry["sequence"])
                calls.setdefault(key, {})[record["rank"]] = (entry, ahead[rank].ns)
            self._add_messages(record, rank, ahead[rank].ns)
            self.connections += connections_of(record)
        self.messages.sort(key=lambda one: one.started)
        self.connections.sort(key=lambda one: (one.rank, one.group, one.peer, one.channel))
        self.collectives = [
            one for key in sorted(calls)
            if (one := self._collective(groups[key[:2]], key[2], calls[key])) is not None
        ]  # fmt: skip

    def _leave_out(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1

    def _collective(
        self, group: dict[str, Any], number: int, made: dict[int, tuple[dict[str, Any], int]]
    ) -> Collective | None:
        if len(made) < group["ranks"]:
            self._leave_out("not all ranks have recorded them, or their records are missing")
            return None
        entries = [made[place][0] for place in range(group["ranks"])]
        if any(entry["state"] != "ended" for entry in entries):
            self._leave_out("they have not ended")
            return None
        if any("started_ns" not in entry for entry in entries):
            self._leave_out("they are of streams, and were not seen to start")
            return None
        if len({entry["collective"] for entry in entries}) > 1:
            self._leave_out("their ranks made different calls")
            return None
        ahead = np.array([made[place][1] for place in range(group["ranks"])], np.int64)

        def times(name: str) -> Array:
            return np.array([entry[name] for entry in entries], np.int64) - ahead

        def spent(name: str) -> Array:
            return np.array([entry.get(name, 0) for entry in entries], np.int64)

        return Collective(
            group["group"], number, entries[0]["collective"],
            max(entry["bytes"] for entry in entries), entries[0]["root"],
            tuple(group["world_ranks"]), times("scheduled_ns"), times("started_ns"),
            times("ended_ns"), spent("connecting_ns"), spent("reducing_ns"),
        )  # fmt: skip

    def _add_messages(self, record: dict[str, Any], rank: int, ahead: int) -> None:
        for entry in record["messages"]:
            if entry["state"] == "ended" and "started_ns" in entry and entry["peer"] >= 0:
                peer = record["world_ranks"][entry["peer"]]
                self.messages.append(
                    Message(record["group"], rank, peer, entry["direction"] == "send",
                            entry["messages"], entry["bytes"], entry["started_ns"] - ahead,
                            entry["ended_ns"] - ahead)
                )  # fmt: skip
