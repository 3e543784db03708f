"""Unisono's own record (`UNISONO_DUMP_DIRECTORY`, `Communicator.dump_record`), version 2.

A file holds one rank of one communicator. `docs/reference/record.md` says what its members mean.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unisono.doctor.packed import (
    DIRECTIONS,
    ROOTED,
    TIMES,
    packed_entries,
    shown,
    unpack,
    with_packed,
)
from unisono.doctor.parts import (
    MAX_RANKS,
    Claim,
    Columns,
    DumpError,
    Hint,
    Part,
    State,
    integer,
    members_of,
    text,
)
from unisono.errors import MisuseError

__all__ = ["is_record", "read_record", "read_records"]

FORMAT = "unisono-record"
VERSION = 2
# What is counted of a connection.
FIGURES = (
    "posts", "bytes", "busy_ns", "idle_ns", "most_in_flight_bytes", "mean_in_flight_bytes",
)  # fmt: skip
_STATES = {
    "scheduled": State.scheduled, "started": State.started, "ended": State.ended,
    "failed": State.failed, "aborted": State.failed,
}  # fmt: skip


# What ranks agree on where each hears the other's control plane: src/comm/bootstrap/inquiry.cc.
_BROKEN = re.compile(r"the connection between rank (\d{1,9}) and rank (\d{1,9}) is broken")


def is_record(document: Any) -> bool:
    """Whether a JSON document is such a record."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def read_record(document: dict[str, Any], file: str) -> list[Part]:
    """The part of one rank.

    Raises:
        DumpError: The record is wrong, or of a version that is not known.
    """
    where = "the record"
    version = integer(document, "version", where)
    if version != VERSION:
        raise DumpError(
            f"it is version {version} of Unisono's record; this release reads version {VERSION}"
        )
    # 0 ranks and no world ranks: NCCL told its profiler plugin neither.
    ranks = integer(document, "ranks", where, 0, MAX_RANKS)
    rank = integer(document, "rank", where, 0, (ranks or MAX_RANKS) - 1)
    if min(ranks, rank) < 0:
        raise DumpError("the record has no 'rank' and 'ranks'")
    communicator = text(document, "communicator", where)
    name = text(document, "group", where)
    epoch = integer(document, "epoch", where, 0, default=0)
    members = members_of(_list(document, "world_ranks"), where)
    world_rank = integer(document, "world_rank", where, 0, MAX_RANKS - 1)
    if members and len(members) != ranks:
        raise DumpError(f"the record has {len(members)} 'world_ranks' of {ranks} ranks")
    ahead, written_ns = _clock(document)
    columns, hints = Columns(), []
    packed = packed_entries(document)
    collectives = [_Entry(one, f"collective {i}", ahead, ranks)
                   for i, one in enumerate(_list(document, "collectives"))]  # fmt: skip
    numbers = [number for one in packed if not one.is_messages
               for number in one.columns["sequence"].tolist()]  # fmt: skip
    numbers += [one.number("sequence") for one in collectives]
    if sorted(set(numbers)) != numbers:
        raise DumpError("the sequence numbers of its collectives do not rise")
    messages = [_Entry(one, f"message {i}", ahead, ranks)
                for i, one in enumerate(_list(document, "messages"))]  # fmt: skip
    for one in sorted([*collectives, *messages], key=lambda entry: entry.times[0]):
        # What a graph holds runs when the graph does, of which the record tells nothing.
        if one.values.get("captured") is True:
            continue
        one.add_to(columns)
        hints += one.hints()
    _check_connections(document, ranks)
    failure = document.get("failure")
    if isinstance(failure, dict):
        kind, at_fault = text(failure, "kind", "failure", ""), integer(failure, "rank", "failure")
        message = text(failure, "message", "failure", "")
        if kind == "environment" and at_fault in (-1, rank):
            hints.append(Hint("error", message, 0))
        elif 0 <= at_fault < ranks:
            hints.append(Hint("accused", kind, 0, at_fault))
            if broken := _BROKEN.search(message):
                ends = [int(end) for end in broken.groups()]
                hints += [Hint("broken", kind, 0, end) for end in ends if end < ranks]
    calls = with_packed(columns, packed, ahead, ranks)
    claim = Claim(name, f"{FORMAT} {communicator} {epoch}", ranks, rank, members)
    world_rank = members[rank] if members else world_rank
    key = ("world", world_rank) if world_rank >= 0 else (name, rank)
    return [
        Part(
            file, FORMAT, str(version), key, [claim], calls,
            list(columns.kinds), list(columns.types), hints, ranks if name == "world" else 0,
            document.get("watched") is True, written_ns,
        )
    ]  # fmt: skip


def read_records(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The documents of Unisono's records among files and folders, checked; others are left out.

    A record whose `world_ranks` are not known is left out, too.

    Raises:
        MisuseError: None is a record.
    """
    files = [
        file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])
    ]
    found = []
    for file in files:
        try:
            document = json.loads(file.read_text())
            if is_record(document):
                read_record(document, str(file))
                # Without the ranks of the job, entries of several groups belong to no one process.
                unpack(document)
                if document["world_ranks"]:
                    found.append(document)
        except (OSError, ValueError, RecursionError):
            continue
    if not found:
        raise MisuseError("none of the files is a record of Unisono that can be read")
    return found


class _Entry:
    """A collective, or the messages of one call to or from one peer."""

    def __init__(self, values: Any, name: str, ahead: int, ranks: int) -> None:
        if not isinstance(values, dict):
            raise DumpError(f"{name} is no object")
        self.values, self.name, self.most = values, name, (ranks or MAX_RANKS) - 1
        self.knows_places = ranks > 0
        # Wall-clock times: those of ranks on one host agree with each other and with their files'.
        seen = [self.number(time, default=0) for time in TIMES]
        self.times = [one + ahead if one else 0 for one in seen]
        state = _STATES.get(text(values, "state", name))
        if state is None:
            raise DumpError(f"{name}: '{text(values, 'state', name)}' is no state of a call")
        # It waited for its turn on the host when another call failed.
        never_began = state is State.failed and not seen[1] and values.get("path") == "host"
        self.state = State.scheduled if never_began else state

    def number(self, name: str, least: int = 0, default: int = -1) -> int:
        return integer(self.values, name, self.name, least, default=default)

    def add_to(self, columns: Columns) -> None:
        size = self.number("bytes")
        if "direction" in self.values:
            direction = DIRECTIONS.get(text(self.values, "direction", self.name))
            if direction is None:
                raise DumpError(f"{self.name}: 'direction' is neither send nor receive")
            # From whom a receive from any source takes its message is not known before it arrives.
            # Nor is which process a peer is, where the group's ranks are not known.
            peer = integer(self.values, "peer", self.name, -1, self.most)
            peer = peer if self.knows_places else -1
            columns.add(0, direction if peer >= 0 else "point_to_point", size=size, peer=peer,
                        state=self.state, times=self.times)  # fmt: skip
            return
        kind = text(self.values, "collective", self.name)
        root = integer(self.values, "root", self.name, 0, self.most)
        operation = text(self.values, "operation", self.name, "")
        columns.add(
            0, shown(kind, operation), type=text(self.values, "type", self.name, ""),
            number=self.number("sequence"), size=size, root=root if kind in ROOTED else -1,
            state=self.state, times=self.times,
        )  # fmt: skip

    def hints(self) -> list[Hint]:
        waiting = self.values.get("waiting")
        if not isinstance(waiting, dict) or self.state is State.ended:
            return []
        peer = integer(waiting, "peer", self.name, -1, self.most)
        kind = text(waiting, "kind", self.name)
        channel, expected, got = (
            integer(waiting, one, self.name) for one in ("channel", "expected", "got")
        )
        what = f"{kind} of rank {peer} on channel {channel}, {expected} expected, {got} seen"
        return [Hint("waiting", what, 0, peer)]


def _check_connections(document: dict[str, Any], ranks: int) -> None:
    """What connections carried is for the profile; records before it had been counted lack it."""
    if "connections" not in document:
        return
    for i, one in enumerate(_list(document, "connections")):
        where = f"connection {i}"
        if not isinstance(one, dict):
            raise DumpError(f"{where} is no object")
        for name in ("direction", "transport", "protocol"):
            text(one, name, where)
        if one["direction"] not in DIRECTIONS:
            raise DumpError(f"{where}: 'direction' is neither send nor receive")
        for name, most in (("peer", (ranks or MAX_RANKS) - 1), ("channel", 1 << 31)):
            if integer(one, name, where, 0, most) < 0:
                raise DumpError(f"{where} has no '{name}'")
        for name in FIGURES:
            integer(one, name, where, 0)


def _list(document: dict[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    if not isinstance(found, list):
        raise DumpError(f"the record has no list '{name}'")
    return found


def _clock(document: dict[str, Any]) -> tuple[int, int]:
    """What makes a time of the monotonic clock one of the wall clock, and when it was written."""
    clock = document.get("clock")
    if not isinstance(clock, dict):
        raise DumpError("the record has no 'clock'")
    wall, monotonic = (integer(clock, one, "clock", 0) for one in ("wall_ns", "monotonic_ns"))
    if min(wall, monotonic) < 0:
        raise DumpError("the record's 'clock' has no 'wall_ns' and 'monotonic_ns'")
    return max(wall - monotonic, 0), wall
