"""Entries of Unisono's records as columns, and the table of calls that they make together.

`words` and `packed` read the two forms in which a record has entries.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unisono.records.parts import COLUMNS, Columns, DumpError, State

__all__ = ["DIRECTIONS", "TIMES", "Entries", "calls_of"]

Array = np.ndarray[Any, Any]
# What a call is made of; a number is the value of a whole column.
_Table = dict[str, Array | int]
DIRECTIONS = {"send": "send", "receive": "recv"}
TIMES = ("scheduled_ns", "started_ns", "ended_ns")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_NOT_SAID: _Table = {
    "group": 0, "number": -1, "size": -1, "root": -1, "peer": -1, "created": 0, "started": 0,
    "ended": 0, "timeout_ms": 0, "output": -1,
}  # fmt: skip


class Entries:
    """Columns of one kind of entries, checked.

    Attributes:
        name: "collectives" or "messages".
        count: The number of entries.
        names: The texts that the columns of texts refer to.
        columns: By the name of the member that they stand for; times are absolute, 0 if not seen.
        states: Of each entry.
    """

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0
        self.names: list[str] = []
        self.columns: dict[str, Array] = {}
        self.states: Array | int = int(State.ended)

    @property
    def is_messages(self) -> bool:
        """Whether the entries are messages."""
        return self.name == "messages"

    @property
    def where(self) -> str:
        """What messages of errors call the entries."""
        return self.name

    def used(self, column: str) -> list[int]:
        """The places of the names that a column refers to."""
        counts = np.bincount(self.columns[column], minlength=len(self.names))
        return np.flatnonzero(counts).tolist()


def calls_of(
    found: Sequence[Entries], columns: Columns, ahead: int, ranks: int
) -> dict[str, Array]:
    """The calls of all entries, in the order that they were made.

    Args:
        found: The record's entries; calls that were made at one time keep this order.
        columns: Numbers the names of kinds and types.
        ahead: What is added to a time to make it one of the wall clock.
        ranks: Of the group; 0 if not known.
    """
    table = {name: np.empty(sum(one.count for one in found), of) for name, of in COLUMNS.items()}
    end = 0
    for one in found:
        if not one.count:
            continue
        begin, end = end, end + one.count
        made = _messages(columns, one, ranks) if one.is_messages else _collectives(columns, one)
        for name, values in (_NOT_SAID | _calls(columns, one, ahead) | made).items():
            table[name][begin:end] = values
    created = table["created"]
    if (created[1:] >= created[:-1]).all():
        return table
    order = np.argsort(created, kind="stable")
    return {name: values[order] for name, values in table.items()}


def _calls(columns: Columns, entries: Entries, ahead: int) -> _Table:
    of = entries.columns
    table: _Table = {"size": of["bytes"], "type": columns.type_code(""), "state": entries.states}
    for name, time in zip(("created", "started", "ended"), TIMES, strict=True):
        table[name] = np.where(of[time] == 0, 0, of[time] + ahead)
    return table


def _messages(columns: Columns, entries: Entries, ranks: int) -> _Table:
    if not {entries.names[one] for one in entries.used("direction")} <= set(DIRECTIONS):
        raise DumpError(f"{entries.where}: a 'direction' is neither send nor receive")
    # Which process a peer is, is not known where the group's ranks are not.
    if not ranks:
        return {"kind": columns.kind_code("point_to_point")}
    peers = entries.columns["peer"]
    if int(peers.max()) >= ranks:
        raise DumpError(f"{entries.where}: a peer is no rank of the group")
    kinds = _codes(entries, "direction", lambda one: columns.kind_code(DIRECTIONS[one]))
    # From whom a receive from any source takes its message is not known before it arrives.
    if (peers < 0).any():
        kinds = np.where(peers < 0, columns.kind_code("point_to_point"), kinds)
    return {"kind": kinds, "peer": peers}


def _collectives(columns: Columns, entries: Entries) -> _Table:
    of, names = entries.columns, entries.names
    pairs, which = np.unique(of["collective"] * len(names) + of["operation"], return_inverse=True)
    kinds = [columns.kind_code(_shown(names[one // len(names)], names[one % len(names)]))
             for one in pairs.tolist()]  # fmt: skip
    has_root = _codes(entries, "collective", lambda one: one in _ROOTED)
    return {
        "kind": np.array(kinds, np.int16)[which], "number": of["sequence"],
        "type": _codes(entries, "type", columns.type_code),
        "root": np.where(has_root, of["root"], -1),
    }  # fmt: skip


def _codes(entries: Entries, column: str, code: Callable[[str], int]) -> Array:
    """Numbers in place of the texts of a column."""
    codes = np.zeros(len(entries.names), np.int16)
    for place in entries.used(column):
        codes[place] = code(entries.names[place])
    return codes[entries.columns[column]]


def _shown(kind: str, operation: str) -> str:
    """What people call a collective."""
    return f"{kind} ({operation})" if operation and "reduce" in kind else kind
