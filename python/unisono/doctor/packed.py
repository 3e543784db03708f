"""Packed entries of Unisono's records: calls that have ended, as columns."""

import base64
import binascii
from typing import Any

import numpy as np

from unisono.doctor.parts import COLUMNS, Columns, DumpError, State, integer

__all__ = [
    "DIRECTIONS", "ROOTED", "TIMES", "Packed", "packed_entries", "shown", "unpack", "with_packed",
]  # fmt: skip

Array = np.ndarray[Any, Any]
DIRECTIONS = {"send": "send", "receive": "recv"}
ROOTED = ("broadcast", "reduce", "gather", "scatter")
TIMES = ("scheduled_ns", "started_ns", "ended_ns")
# A rank's dump has at most so many of each kind; a hostile one claims more.
_MOST_ENTRIES = 1 << 20
_NAMED = ("collective", "type", "operation", "direction", "plan", "protocol", "path")
_SINCE = ("started_ns", "launched_ns", "ended_ns")
_LEFT_OUT = (*_SINCE, "operation", "thread_blocks", "slots", "chunk_bytes", "connecting_ns",
             "reducing_ns")  # fmt: skip


class Packed:
    """Columns of one kind of entries, checked.

    Attributes:
        name: "collectives" or "messages".
        count: The number of entries.
        names: The texts that the columns of texts refer to.
        columns: By the name of the member that they stand for; times are absolute, 0 if not seen.
    """

    def __init__(self, document: Any, name: str) -> None:
        self.name, where = name, f"packed {name}"
        if not isinstance(document, dict):
            raise DumpError(f"{where}: it is no object")
        self.count = integer(document, "entries", where, 0, _MOST_ENTRIES)
        names, columns = document.get("names"), document.get("columns")
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise DumpError(f"{where}: 'names' is no list of texts")
        if not isinstance(columns, dict) or self.count < 0:
            raise DumpError(f"{where}: it has no 'entries' and 'columns'")
        self.names: list[str] = names
        self.columns = {name: self._column(one, f"{where}: column '{name}'")
                        for name, one in columns.items()}  # fmt: skip
        of_kind = ("direction", "peer") if self.is_messages else (
            "collective", "type", "operation", "root")  # fmt: skip
        for column in ("sequence", "bytes", "scheduled_ns", *_SINCE, *of_kind):
            if column not in self.columns:
                raise DumpError(f"{where}: it has no column '{column}'")
        for column in _NAMED:
            places = self.columns.get(column)
            if places is not None and ((places < 0) | (places >= len(names))).any():
                raise DumpError(f"{where}: column '{column}' refers to a name that is not there")
        scheduled = self.columns["scheduled_ns"]
        for column in _SINCE:
            since = self.columns[column]
            self.columns[column] = np.where(since == 0, 0, scheduled + since - 1)

    @property
    def is_messages(self) -> bool:
        """Whether the entries are messages."""
        return self.name == "messages"

    def texts(self, column: str) -> list[str]:
        """The texts of a column, one for each entry."""
        return [self.names[place] for place in self.columns[column].tolist()]

    def _column(self, document: Any, where: str) -> Array:
        if not isinstance(document, dict):
            raise DumpError(f"{where} is no object")
        width = integer(document, "width", where)
        least = integer(document, "least", where, -(1 << 62))
        if width not in (1, 2, 4, 8):
            raise DumpError(f"{where}: 'width' is {width}; 1, 2, 4 or 8 is needed")
        try:
            data = base64.b64decode(document.get("data", ""), validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise DumpError(f"{where}: 'data' is not base64") from error
        if len(data) != width * self.count:
            raise DumpError(f"{where}: 'data' has {len(data)} bytes, not {width * self.count}")
        distances = np.frombuffer(data, f"<u{width}").astype(np.int64)
        if len(distances) and (distances < 0).any():
            raise DumpError(f"{where}: a value does not fit")
        return distances + least


def packed_entries(document: dict[str, Any]) -> list[Packed]:
    """The packed collectives and messages of a record.

    Raises:
        DumpError: What is wrong with them.
    """
    return [Packed(document[f"packed_{name}"], name) for name in ("collectives", "messages")
            if document.get(f"packed_{name}") is not None]  # fmt: skip


def unpack(document: dict[str, Any]) -> None:
    """Turns the packed entries of a record into entries like the others."""
    for packed in packed_entries(document):
        columns: dict[str, list[Any]] = {
            column: packed.texts(column) if column in _NAMED else values.tolist()
            for column, values in packed.columns.items()
        }
        entries = []
        for values in zip(*columns.values(), strict=True):
            entry = dict(zip(columns, values, strict=True)) | {"state": "ended"}
            # What was not seen or said is left out, as in words.
            for member in _LEFT_OUT:
                if not entry.get(member, True):
                    del entry[member]
            entries.append(entry)
        document[packed.name] = entries + document[packed.name]
        del document[f"packed_{packed.name}"]


def shown(kind: str, operation: str) -> str:
    """What people call a collective."""
    return f"{kind} ({operation})" if operation and "reduce" in kind else kind


def with_packed(columns: Columns, packed: list[Packed], ahead: int, ranks: int) -> dict[str, Array]:
    """The calls in words and those that are packed, in the order that they were made.

    Args:
        columns: The calls in words.
        packed: The record's packed entries.
        ahead: What is added to a time to make it one of the wall clock.
        ranks: Of the group; 0 if not known.
    """
    tables = [_calls(columns, one, ahead) | (
        _messages(columns, one, ranks) if one.is_messages else
        _collectives(columns, one)) for one in packed]  # fmt: skip
    in_words = columns.arrays()
    if not tables:
        return in_words
    joined = {name: np.concatenate([*(one[name] for one in tables), in_words[name]]).astype(kind)
              for name, kind in COLUMNS.items()}  # fmt: skip
    order = np.argsort(joined["created"], kind="stable")
    return {name: values[order] for name, values in joined.items()}


def _calls(columns: Columns, packed: Packed, ahead: int) -> dict[str, Array]:
    of, none = packed.columns, np.full(packed.count, -1)
    made, started, ended = (np.where(of[one] == 0, 0, of[one] + ahead) for one in TIMES)
    return {
        "group": np.zeros(packed.count), "number": none, "size": of["bytes"], "root": none,
        "type": np.full(packed.count, columns.type_code("")), "peer": none, "created": made,
        "started": started, "ended": ended, "state": np.full(packed.count, int(State.ended)),
        "timeout_ms": np.zeros(packed.count),
    }  # fmt: skip


def _messages(columns: Columns, packed: Packed, ranks: int) -> dict[str, Array]:
    peers = packed.columns["peer"]
    if not ranks:
        return {"kind": np.full(packed.count, columns.kind_code("point_to_point"))}
    if packed.count and not 0 <= peers.min() <= peers.max() < ranks:
        raise DumpError("packed messages: a peer is no rank of the group")
    directions = packed.texts("direction")
    if not set(directions) <= set(DIRECTIONS):
        raise DumpError("packed messages: a 'direction' is neither send nor receive")
    kinds = np.array([columns.kind_code(DIRECTIONS[one]) for one in directions])
    return {"kind": kinds, "peer": peers}


def _collectives(columns: Columns, packed: Packed) -> dict[str, Array]:
    of, names = packed.columns, packed.names
    pairs = np.stack([of["collective"], of["operation"]])
    found, which = np.unique(pairs, axis=1, return_inverse=True)
    codes = np.array([columns.kind_code(shown(names[kind], names[operation]))
                      for kind, operation in found.T.tolist()], np.int64)  # fmt: skip
    types = np.array([columns.type_code(one) for one in names], np.int64)
    has_root = np.array([one in ROOTED for one in names], bool)
    return {
        "kind": codes[which.reshape(-1)], "type": types[of["type"]], "number": of["sequence"],
        "root": np.where(has_root[of["collective"]], of["root"], -1),
    }  # fmt: skip
