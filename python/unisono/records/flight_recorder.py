"""Dumps of PyTorch's Flight Recorder, by NCCL, nccl2 and Gloo: pickles and JSON.

A dump does not say whose it is. Its rank is in all of its groups, and is one end of its messages;
where several ranks can be that, its file's name has the rank, as PyTorch names it. NCCL's calls
have states; Gloo's stay `scheduled` and become `retired`, and its groups list no ranks.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from unisono.records.parts import (
    COLUMNS,
    ENDED,
    MAX_RANKS,
    Claim,
    DumpError,
    Hint,
    Part,
    State,
    integer,
    integers,
    members_of,
    text,
)
from unisono.records.whose import rank_in_name

__all__ = ["ELEMENT_BYTES", "is_flight_recorder", "read_flight_recorder"]

Array = np.ndarray[Any, Any]
_T = TypeVar("_T")
FORMAT = "flight-recorder"
_MESSAGE = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})$")
# The element types have PyTorch's names here.
ELEMENT_BYTES = {
    "Float": 4, "Half": 2, "BFloat16": 2, "Double": 8, "Long": 8, "Int": 4, "Short": 2, "Char": 1,
    "Byte": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "ComplexHalf": 4,
    "ComplexFloat": 8, "ComplexDouble": 16, "UInt16": 2, "UInt32": 4, "UInt64": 8,
}  # fmt: skip
_STATES = {"scheduled": State.scheduled, "started": State.started, "completed": State.ended}
# Inputs and outputs of these may differ from rank to rank.
_UNEVEN = ("alltoall", "all_to_all", "gather", "scatter", "_reduce_oop", "coalesced")
# Both sides of these are the same on all ranks.
_TWO_SIDED = ("all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter")
_NUMBERS = {
    "created": "time_created_ns", "started": "time_discovered_started_ns",
    "ended": "time_discovered_completed_ns", "timeout_ms": "timeout_ms",
}  # fmt: skip
_DAMAGE = (AttributeError, IndexError, KeyError, TypeError)
_SHOWN_FRAMES = 3
_MOST_NAME = 200
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
        DumpError: The dump is wrong, or neither it nor its file's name says its rank.
    """
    entries = document.get("entries", [])
    if not isinstance(entries, list):
        raise DumpError(f"'entries' is a {type(entries).__name__}; a list is needed")
    version = text(document, "version", "the dump", "")
    if not version.startswith("2."):
        raise DumpError(f"it is version '{version}' of Flight Recorder's dump; 2.x is known")
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise DumpError(f"entry {i} is a {type(entry).__name__}; a dictionary is needed")
    rank = _rank(document, entries, file)
    claims = _claims(document, rank)
    rows = _Rows(claims, entries)
    hints = _stack(entries)
    world = max((claim.size for claim in rows.claims), default=0)
    enqueued = _enqueued(document, entries, rows)
    return [
        Part(
            file, FORMAT, version, ("world", rank), rows.claims, rows.columns, list(rows.kinds),
            list(rows.types), hints, world, True, last_enqueued=enqueued,
            has_hidden_call=rows.is_gloo and rows.lacks(enqueued),
            hides_failures=rows.hides_failures,
        )
    ]  # fmt: skip


def _rank(document: dict[str, Any], entries: list[dict[str, Any]], file: str) -> int:
    """Whose dump it is, by what it holds before its name."""
    rank = integer(document, "rank", "the dump", 0, MAX_RANKS)
    if rank >= 0:
        return rank
    groups = {name: members for _, name, members, _ in _groups(document) if members}
    possible = set.intersection(*(set(members) for members in groups.values())) if groups else set()
    for entry in entries if len(possible) > 1 else ():
        message = _MESSAGE.search(str(entry.get("profiling_name", ""))[:_MOST_NAME])
        of = entry.get("process_group")
        if message is None or not isinstance(of, list | tuple) or not of:
            continue
        members = groups.get(str(of[0])[:_MOST_NAME], ())
        if int(message[2]) < len(members) and members[int(message[2])] in possible:
            possible = {members[int(message[2])]}
            break
    named = rank_in_name(file)
    if len(possible) == 1 and named not in possible:
        return possible.pop()
    if named < 0:
        raise DumpError("neither its groups and messages nor its name say its rank; the name is to "
                        "end in it, as nccl_trace_rank_0")  # fmt: skip
    return named


def _groups(document: dict[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...], dict[str, Any]]]:
    """Each group of the dump: where it is, its name, its ranks, and what the dump says of it."""
    config = document.get("pg_config", {})
    if not isinstance(config, dict):
        raise DumpError(f"'pg_config' is a {type(config).__name__}; a dictionary is needed")
    for key, one in config.items():
        where = f"pg_config {str(key)[:40]}" if isinstance(key, str | int) else "pg_config"
        if not isinstance(one, dict):
            raise DumpError(f"{where} is a {type(one).__name__}; a dictionary is needed")
        ranks = one.get("ranks", "")
        if not isinstance(ranks, str | list | tuple):
            raise DumpError(f"{where}: 'ranks' is a {type(ranks).__name__}; a list is needed")
        members = _members(ranks, where) if isinstance(ranks, str) else members_of(ranks, where)
        name = text(one, "name", where, str(key) if isinstance(key, str | int) else "")
        yield where, name, members, one


def _claims(document: dict[str, Any], rank: int) -> list[Claim]:
    claims = []
    for where, name, members, one in _groups(document):
        if rank not in members:
            continue
        place = members.index(rank)
        ident = f"{FORMAT}\0{name}\0{_digest(members)}"
        shown = text(one, "desc", where, "")
        if shown in ("", "undefined", name):
            shown = name
        elif shown != "default_pg":
            shown = f"{name} ({shown})"
        claims.append(Claim(shown, ident, len(members), place, members))
    return claims


@lru_cache(maxsize=64)
def _members(ranks: str, where: str) -> tuple[int, ...]:
    """The ranks of a group, which all dumps of its ranks list."""
    return members_of((int(part) for part in re.findall(r"-?\d{1,12}", ranks)), where)


@lru_cache(maxsize=64)
def _digest(members: tuple[int, ...]) -> str:
    """A short text in place of many ranks."""
    return hashlib.sha256(str(members).encode()).hexdigest()


def _enqueued(
    document: dict[str, Any], entries: list[dict[str, Any]], rows: "_Rows"
) -> dict[int, int]:
    """The last number that each group enqueued.

    `pg_status` has the groups by `pg_id`, which is each process's own count, and no name.
    """
    status = document.get("pg_status")
    if not isinstance(status, dict):
        return {}
    of: dict[str, set[int]] = {}
    for entry, group in zip(entries, rows.columns["group"].tolist(), strict=True):
        number = entry.get("pg_id")
        if isinstance(number, int | str):
            of.setdefault(str(number), set()).add(group)
    found = {}
    for number, groups in of.items():
        one = status.get(number)
        if isinstance(one, dict) and len(groups) == 1:
            found[groups.pop()] = integer(one, "last_enqueued_collective", "pg_status")
    return found


class _Name(NamedTuple):
    """What the name of a call says: `profiling_name`, and whether it is a message."""

    library: str
    kind: str
    code: int
    peer: int
    # The members that have the call's size and that of its other side; empty where ranks may differ
    # in it.
    sizes: str
    others: str


class _Rows:
    """Columns of the entries.

    Attributes:
        claims: Those of the dump, and of groups that it does not describe.
        hides_failures: Whether it only says of some calls that they are over.
    """

    def __init__(self, claims: list[Claim], entries: list[dict[str, Any]]) -> None:
        self.claims = claims
        self.kinds: dict[str, int] = {}
        self.types: dict[str, int] = {}
        self.columns: dict[str, Array] = {name: np.zeros(0, of) for name, of in COLUMNS.items()}
        self.is_gloo = self.hides_failures = False
        if not entries:
            return
        groups = self._groups_of(entries)
        names = self._names_of(entries)
        self.is_gloo = names[-1].library == "gloo"
        inputs, outputs = (_types_of(entries, *names) for names in (
            ("input_dtypes", "output_dtypes"), ("output_dtypes", "input_dtypes")))  # fmt: skip
        types = [
            self.types.setdefault(one if one == other else f"{one} to {other}", len(self.types))
            for one, other in zip(inputs, outputs, strict=True)
        ]
        if max(len(self.kinds), len(self.types)) > _MOST_KINDS:
            raise DumpError("it names more kinds of calls than any library has")
        numbers = _numbers_of(entries, names)
        states = _states_of(entries, names)
        self.hides_failures = any(
            state == ENDED and not _is_seen(one) for one, state in zip(entries, states, strict=True)
        )
        if _BATCH in self.kinds:
            _end_batches(groups, names, numbers, states)
        sizes = _each(list(zip(entries, names, inputs, strict=True)),
                      lambda call: _size(call[0], call[1].sizes, call[2]))  # fmt: skip
        others = _each(list(zip(entries, names, outputs, strict=True)),
                       lambda call: _size(call[0], call[1].others, call[2]))  # fmt: skip
        found = {
            "group": groups, "number": numbers, "kind": [one.code for one in names], "type": types,
            "size": sizes, "output": others, "root": -1, "peer": [one.peer for one in names],
            "state": states,
        } | {name: integers(entries, of, "entry", 0, default=0)
             for name, of in _NUMBERS.items()}  # fmt: skip
        for name, values in found.items():
            self.columns[name] = np.empty(len(entries), COLUMNS[name])
            self.columns[name][:] = values

    def lacks(self, enqueued: dict[int, int]) -> bool:
        """Whether more was enqueued on a group than the entries hold: Gloo's lack messages."""
        groups, numbers = self.columns["group"], self.columns["number"]
        return any((mine := numbers[groups == group]).size and number > max(int(mine.max()), -1)
                   for group, number in enqueued.items())  # fmt: skip

    def _groups_of(self, entries: list[dict[str, Any]]) -> list[int]:
        names = _texts(_each(entries, lambda one: one["process_group"][0]), "the group's name")
        places = {claim.ident.split("\0")[1]: i for i, claim in enumerate(self.claims)}
        for name in dict.fromkeys(names):
            if name not in places:
                places[name] = len(self.claims)
                self.claims.append(Claim(name, f"{FORMAT}\0{name}"))
        return [places[name] for name in names]

    def _names_of(self, entries: list[dict[str, Any]]) -> list[_Name]:
        profiled = _texts(_each(entries, lambda one: one["profiling_name"]), "'profiling_name'")
        said = [(name, bool(one.get("is_p2p")))
                for name, one in zip(profiled, entries, strict=True)]  # fmt: skip
        known = {one: self._name(*one) for one in dict.fromkeys(said)}
        return [known[one] for one in said]

    def _name(self, profiled: str, is_message: bool) -> _Name:
        library, _, kind = profiled[:200].partition(":")
        peer = -1
        if is_message and (found := _MESSAGE.search(kind)) is not None:
            kind, peer = found[1], int(found[3])
        sides = ("input_sizes", "output_sizes")
        sizes, others = sides[::-1] if "reduce_scatter" in kind else sides
        if kind.startswith(_UNEVEN):
            sizes = others = ""
        elif not any(one in kind for one in _TWO_SIDED):
            others = ""
        return _Name(
            library, kind, self.kinds.setdefault(kind, len(self.kinds)), peer, sizes, others
        )


def _each(entries: Sequence[_T], value: Callable[[_T], Any]) -> list[Any]:
    """A value of each entry.

    Raises:
        DumpError: An entry has another shape.
    """
    try:
        return [value(one) for one in entries]
    except _DAMAGE:
        pass
    for i, one in enumerate(entries):
        try:
            value(one)
        except _DAMAGE as error:
            raise DumpError(f"entry {i} is damaged ({type(error).__name__}: {error})") from None
    return []


def _texts(values: list[Any], what: str) -> list[str]:
    if set(map(type, values)) != {str}:
        wrong = next(i for i, one in enumerate(values) if not isinstance(one, str))
        raise DumpError(f"entry {wrong} is damaged (TypeError: {what} is no text)")
    return values


def _numbers_of(entries: list[dict[str, Any]], names: list[_Name]) -> list[int]:
    numbers = [
        one.get("collective_seq_id", one.get("seq_id", -1)) if name.peer < 0 else -1
        for one, name in zip(entries, names, strict=True)
    ]
    if set(map(type, numbers)) != {int} or min(numbers) < -1 or max(numbers) >= 1 << 62:
        wrong = next(i for i, one in enumerate(numbers)
                     if type(one) is not int or not -1 <= one < 1 << 62)  # fmt: skip
        raise DumpError(f"entry {wrong}: its sequence number is no number")
    return numbers


def _is_seen(entry: dict[str, Any]) -> bool:
    """Whether the dump says when the call completed: JSON has 0 where a pickle has none."""
    return entry.get("time_discovered_completed_ns") not in (None, 0, "0") or (
        entry.get("state") == "completed")  # fmt: skip


def _states_of(entries: list[dict[str, Any]], names: list[_Name]) -> list[int]:
    """States; a call that is retired and not completed has timed out, where the library has events.

    Other libraries retire a call when they are through with it, however it ended.
    """
    said = _each(entries, lambda one: _STATES.get(one.get("state", "scheduled"), State.failed))
    over = {True: int(State.failed), False: ENDED}
    return [
        ENDED if _is_seen(one) else over[name.library == "nccl"] if one.get("retired") is True
        else int(state)
        for one, name, state in zip(entries, names, said, strict=True)
    ]  # fmt: skip


def _end_batches(
    groups: list[int], names: list[_Name], numbers: list[int], states: list[int]
) -> None:
    """The entry of a batch tells the state of those before it."""
    before: dict[int, list[int]] = {}
    for row, (group, name) in enumerate(zip(groups, names, strict=True)):
        if name.kind == _BATCH:
            numbers[row] = -1
            for one in before.pop(group, []):
                states[one] = states[row]
        elif states[row] == State.scheduled:
            before.setdefault(group, []).append(row)


def _types_of(entries: list[dict[str, Any]], name: str, other: str) -> list[str]:
    """The types of one side of each call; those of the other side where it has none."""
    found = _each(entries, lambda one: (one.get(name) or one.get(other) or ("",))[0])
    return [one[:40] for one in _texts(found, "a type")]


def _size(entry: dict[str, Any], sizes: str, element: str) -> int:
    """The bytes of one side of a call."""
    if not sizes:
        return -1
    elements = 0
    for shape in entry.get(sizes) or ():
        count = 1
        for length in shape:
            if type(length) is not int or not 0 <= length < 1 << 50:
                raise TypeError("a size is no number")
            count *= length
            if count >= 1 << 55:
                raise DumpError("an entry's tensor has more elements than memory can hold")
        elements += count
    return min(elements * ELEMENT_BYTES.get(element, 1), 1 << 62)


def _stack(entries: list[dict[str, Any]]) -> list[Hint]:
    """Where the program made its last call."""
    if not entries or not isinstance(entries[-1].get("frames"), list):
        return []
    frames = []
    for frame in entries[-1]["frames"][:_SHOWN_FRAMES]:
        if isinstance(frame, dict):
            place = f"{text(frame, 'filename', 'frames', '?')}:{integer(frame, 'line', 'frames')}"
            frames.append(f"{text(frame, 'name', 'frames', '?')} ({place})")
    return [Hint("stack", " < ".join(frames))] if frames else []
