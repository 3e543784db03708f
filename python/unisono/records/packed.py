"""Packed entries of Unisono's records: calls that have ended, as columns."""

import binascii
from typing import Any

import numpy as np

from unisono.records.entries import Entries
from unisono.records.parts import DumpError, integer

__all__ = ["Packed", "packed_entries", "unpack"]

Array = np.ndarray[Any, Any]
# A rank's dump has at most so many of each kind; a hostile one claims more.
_MOST_ENTRIES = 1 << 20
_NAMED = ("collective", "type", "operation", "direction", "plan", "protocol", "path",
          "fallback", "chosen_path")  # fmt: skip
_SINCE = ("started_ns", "launched_ns", "ended_ns")
_LEFT_OUT = (*_SINCE, "operation", "thread_blocks", "slots", "chunk_bytes", "fallback",
             "chosen_path", "connecting_ns", "reducing_ns")  # fmt: skip


class Packed(Entries):
    """Entries that have ended, as a record holds them in columns."""

    def __init__(self, document: Any, name: str) -> None:
        super().__init__(name)
        where = self.where
        if not isinstance(document, dict):
            raise DumpError(f"{where}: it is no object")
        self.count = integer(document, "entries", where, 0, _MOST_ENTRIES)
        names, columns = document.get("names"), document.get("columns")
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise DumpError(f"{where}: 'names' is no list of texts")
        if not isinstance(columns, dict) or self.count < 0:
            raise DumpError(f"{where}: it has no 'entries' and 'columns'")
        self.names = names
        self.columns = {name: self._column(one, f"{where}: column '{name}'")
                        for name, one in columns.items()}  # fmt: skip
        of_kind = ("direction", "peer") if self.is_messages else (
            "collective", "type", "operation", "root")  # fmt: skip
        for column in ("sequence", "bytes", "scheduled_ns", *_SINCE, *of_kind):
            if column not in self.columns:
                raise DumpError(f"{where}: it has no column '{column}'")
        if not self.count:
            return
        for column in _NAMED:
            places = self.columns.get(column)
            if places is not None and not 0 <= places.min() <= places.max() < len(names):
                raise DumpError(f"{where}: column '{column}' refers to a name that is not there")
        if self.is_messages and self.columns["peer"].min() < 0:
            raise DumpError(f"{where}: a peer is no rank of the group")
        scheduled = self.columns["scheduled_ns"]
        for column in _SINCE:
            since = self.columns[column]
            self.columns[column] = np.where(since == 0, 0, scheduled + since - 1)

    @property
    def where(self) -> str:
        """What messages of errors call the entries."""
        return f"packed {self.name}"

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
            data = binascii.a2b_base64(document.get("data", ""), strict_mode=True)
        except (TypeError, ValueError) as error:
            raise DumpError(f"{where}: 'data' is not base64") from error
        if len(data) != width * self.count:
            raise DumpError(f"{where}: 'data' has {len(data)} bytes, not {width * self.count}")
        distances = np.frombuffer(data, f"<u{width}").astype(np.int64)
        if width == 8 and (distances < 0).any():
            raise DumpError(f"{where}: a value does not fit")
        return distances + least if least else distances


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
