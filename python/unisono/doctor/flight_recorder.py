"""Dumps of PyTorch's Flight Recorder, by NCCL, nccl2 and Gloo: pickles and JSON.

A dump does not say whose it is: its file's name ends in the rank, as PyTorch names it. NCCL's calls
have states; Gloo's stay `scheduled` and become `retired`, and its groups list no ranks.
"""

import re
from typing import Any

import numpy as np

from unisono.doctor.parts import (
    COLUMNS,
    MAX_RANKS,
    Claim,
    DumpError,
    Hint,
    Part,
    State,
    integer,
    members_of,
    text,
)

__all__ = ["is_flight_recorder", "read_flight_recorder"]

FORMAT = "flight-recorder"
_RANK = re.compile(r"(\d{1,7})(?:\.[A-Za-z]+)*$")
_MESSAGE = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})$")
_BYTES = {
    "Float": 4, "Half": 2, "BFloat16": 2, "Double": 8, "Long": 8, "Int": 4, "Short": 2, "Char": 1,
    "Byte": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "ComplexFloat": 8,
    "ComplexDouble": 16,
}  # fmt: skip
_STATES = {"scheduled": State.scheduled, "started": State.started, "completed": State.ended}
# Inputs and outputs of these may differ from rank to rank.
_UNEVEN = ("alltoall", "all_to_all", "gather", "scatter", "_reduce_oop", "coalesced")
_NUMBERS = (
    "time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns", "timeout_ms",
)  # fmt: skip
_SHOWN_FRAMES = 3
_MOST_KINDS = int(np.iinfo(np.int16).max)
# NCCL runs batched messages and collectives as one: after them stands an entry for all.
_BATCH = "coalesced"


def is_flight_recorder(document: Any) -> bool:
    """Whether plain data looks like such a dump."""
    return isinstance(document, dict) and ("pg_config" in document or "pg_status" in document or (
        "entries" in document and "version" in document and "format" not in document))  # fmt: skip


def read_flight_recorder(document: dict[str, Any], file: str) -> list[Part]:
    """The part of one process.

    Raises:
        DumpError: The dump is wrong, or its file's name does not end in a rank.
    """
    rank = integer(document, "rank", "the dump", 0, MAX_RANKS)
    if rank < 0:
        found = _RANK.search(file)
        if found is None:
            raise DumpError("a Flight Recorder dump's name ends in its rank, as nccl_trace_rank_0")
        rank = int(found[1])
    entries = document.get("entries", [])
    if not isinstance(entries, list):
        raise DumpError(f"'entries' is a {type(entries).__name__}; a list is needed")
    version = text(document, "version", "the dump", "")
    if not version.startswith("2."):
        raise DumpError(f"it is version '{version}' of Flight Recorder's dump; 2.x is known")
    claims = _claims(document, rank)
    rows = _Rows(claims)
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise DumpError(f"entry {i} is a {type(entry).__name__}; a dictionary is needed")
        try:
            rows.add(i, entry)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise DumpError(f"entry {i} is damaged ({type(error).__name__}: {error})") from None
    hints = rows.stack(entries)
    world = max((claim.size for claim in rows.claims), default=0)
    enqueued = _enqueued(document, rows.claims)
    return [
        Part(
            file, FORMAT, version, ("world", rank), rows.claims, rows.arrays(), list(rows.kinds),
            list(rows.types), hints, world, True, last_enqueued=enqueued,
            has_hidden_call=rows.is_gloo and rows.lacks(enqueued),
        )
    ]  # fmt: skip


def _claims(document: dict[str, Any], rank: int) -> list[Claim]:
    config = document.get("pg_config", {})
    if not isinstance(config, dict):
        raise DumpError(f"'pg_config' is a {type(config).__name__}; a dictionary is needed")
    claims = []
    for key, one in config.items():
        where = f"pg_config {str(key)[:40]}" if isinstance(key, str | int) else "pg_config"
        if not isinstance(one, dict):
            raise DumpError(f"{where} is a {type(one).__name__}; a dictionary is needed")
        ranks = one.get("ranks", "")
        if isinstance(ranks, str):
            ranks = [int(part) for part in re.findall(r"-?\d{1,12}", ranks)]
        if not isinstance(ranks, list | tuple):
            raise DumpError(f"{where}: 'ranks' is a {type(ranks).__name__}; a list is needed")
        members = members_of(ranks, where)
        name = text(one, "name", where, str(key) if isinstance(key, str | int) else "")
        if rank not in members:
            continue
        place = members.index(rank)
        ident = f"{FORMAT}\0{name}\0{members}"
        shown = text(one, "desc", where, "")
        if shown in ("", "undefined", name):
            shown = name
        elif shown != "default_pg":
            shown = f"{name} ({shown})"
        claims.append(Claim(shown, ident, len(members), place, members))
    return claims


def _count(entry: dict[str, Any], name: str, where: str) -> int:
    value = entry.get(name)
    if value is None:
        return 0
    # Most of a dump's numbers pass here.
    if type(value) is int and 0 <= value < 1 << 62:
        return value
    return integer(entry, name, where, 0, default=0)


def _enqueued(document: dict[str, Any], claims: list[Claim]) -> dict[int, int]:
    """The last number that each group enqueued; names of pg_status are those of pg_config."""
    status = document.get("pg_status")
    if not isinstance(status, dict):
        return {}
    found = {}
    for index, claim in enumerate(claims):
        one = status.get(claim.ident.split("\0")[1])
        if isinstance(one, dict):
            found[index] = integer(one, "last_enqueued_collective", "pg_status")
    return found


class _Rows:
    """Columns of the entries, filled in one pass."""

    def __init__(self, claims: list[Claim]) -> None:
        self.claims = claims
        self.kinds: dict[str, int] = {}
        self.types: dict[str, int] = {}
        self._groups = {claim.ident.split("\0")[1]: i for i, claim in enumerate(claims)}
        self._rows: list[tuple[int, ...]] = []
        self.is_gloo = False
        # By group, rows whose state only the entry of their batch will tell.
        self._batches: dict[int, list[int]] = {}

    def add(self, index: int, entry: dict[str, Any]) -> None:
        name = entry["process_group"][0]
        if not isinstance(name, str):
            raise TypeError("the group's name is no text")
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = len(self.claims)
            self.claims.append(Claim(name, f"{FORMAT}\0{name}"))
        profiled = entry["profiling_name"]
        where = f"entry {index}"
        if not isinstance(profiled, str):
            raise TypeError("'profiling_name' is no text")
        library, _, kind = profiled[:200].partition(":")
        self.is_gloo = library == "gloo"
        peer, number = -1, entry.get("collective_seq_id", entry.get("seq_id", -1))
        if entry.get("is_p2p"):
            found = _MESSAGE.search(kind)
            if found is not None:
                kind, peer, number = found[1], int(found[3]), -1
        if type(number) is not int or not -1 <= number < 1 << 62:
            raise DumpError(f"{where}: its sequence number is no number")
        state = _STATES.get(entry.get("state", "scheduled"), State.failed)
        completed = entry.get("time_discovered_completed_ns")
        # Gloo says of a call no more than that it is through with it.
        if completed is not None or (entry.get("retired") and library != "nccl"):
            state = State.ended
        if kind == _BATCH:
            number = -1
            for row in self._batches.pop(group, []):
                self._rows[row] = (*self._rows[row][:7], int(state), *self._rows[row][8:])
        elif state is State.scheduled:
            self._batches.setdefault(group, []).append(len(self._rows))
        types = entry.get("input_dtypes") or entry.get("output_dtypes") or ("",)
        element = types[0]
        if not isinstance(element, str):
            raise TypeError("a type is no text")
        element = element[:40]
        kind_code = self.kinds.setdefault(kind, len(self.kinds))
        if kind_code > _MOST_KINDS or len(self.types) > _MOST_KINDS:
            raise DumpError("it names more kinds of calls than any library has")
        self._rows.append(
            (
                group, number, kind_code, self.types.setdefault(element, len(self.types)),
                self._size(kind, element, entry), -1, peer, int(state),
                *(_count(entry, one, where) for one in _NUMBERS),
            )
        )  # fmt: skip

    def lacks(self, enqueued: dict[int, int]) -> bool:
        """Whether more was enqueued on a group than the entries hold: Gloo's lack messages."""
        newest: dict[int, int] = {}
        for row in self._rows:
            newest[row[0]] = max(newest.get(row[0], -1), row[1])
        return any(number > newest.get(group, number) for group, number in enqueued.items())

    def _size(self, kind: str, element: str, entry: dict[str, Any]) -> int:
        if kind.startswith(_UNEVEN):
            return -1
        elements = 0
        sizes = entry.get("output_sizes" if "reduce_scatter" in kind else "input_sizes") or ()
        for shape in sizes:
            count = 1
            for length in shape:
                if type(length) is not int or not 0 <= length < 1 << 50:
                    raise TypeError("a size is no number")
                count *= length
                if count >= 1 << 55:
                    raise DumpError("an entry's tensor has more elements than memory can hold")
            elements += count
        return min(elements * _BYTES.get(element, 1), 1 << 62)

    def stack(self, entries: list[Any]) -> list[Hint]:
        """Where the program made its last call."""
        if not entries or not isinstance(entries[-1].get("frames"), list):
            return []
        frames = []
        for frame in entries[-1]["frames"][:_SHOWN_FRAMES]:
            if isinstance(frame, dict):
                place = (
                    f"{text(frame, 'filename', 'frames', '?')}:{integer(frame, 'line', 'frames')}"
                )
                frames.append(f"{text(frame, 'name', 'frames', '?')} ({place})")
        return [Hint("stack", " < ".join(frames))] if frames else []

    def arrays(self) -> dict[str, Any]:
        table = np.array(self._rows, np.int64).reshape(-1, len(COLUMNS))
        return {name: table[:, i].astype(dtype) for i, (name, dtype) in enumerate(COLUMNS.items())}
