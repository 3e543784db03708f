"""The normal form of one dump: columns of calls, the groups they belong to, and hints.

A number that a format does not give is -1, a time 0. Calls stand in the order that their process
made them. Names are kept once, in tables, so that a call is 68 bytes whatever its format.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from unisono.records.logs.events import Event

__all__ = [
    "COLUMNS", "ENDED", "SILENCES", "Claim", "Columns", "DumpError", "Hint", "Key", "Part", "State",
    "StrayError", "integer", "integers", "members_of", "text", "texts",
]  # fmt: skip

Array = np.ndarray[Any, Any]
MAX_RANKS = 1 << 20
# A dump of 2,000 calls with their stacks is some 10 MB.
MAX_FILE_BYTES = 1 << 30
_MOST_TEXT = 200
_MOST_NAMES = int(np.iinfo(np.int16).max)

# Who a process is: its world rank, or its place in a communicator of unknown world ranks.
Key = tuple[str, int]


class DumpError(ValueError):
    """What is wrong with a dump, without its file's name."""


class StrayError(DumpError):
    """The file is no dump and no log."""


class State(IntEnum):
    """The furthest that a call was seen to come; formats differ in what they can see."""

    scheduled = 0
    started = 1
    ended = 2
    failed = 3


ENDED = int(State.ended)
# Why a process that was asked has said nothing: kinds of hints.
SILENCES = ("dead", "stopped", "absent", "unresponsive")

COLUMNS: dict[str, type[np.generic]] = {
    "group": np.int32, "number": np.int64, "kind": np.int16, "type": np.int16, "size": np.int64,
    "root": np.int32, "peer": np.int32, "state": np.int8, "created": np.int64, "started": np.int64,
    "ended": np.int64, "timeout_ms": np.int64, "output": np.int64,
}  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """What a dump says about a group.

    Attributes:
        name: As its library calls it.
        ident: Equal for all ranks of the group, and for no other group, as far as the format knows.
        size: Its number of ranks; 0 if the dump does not say.
        place: The process's rank in the group, or -1.
        members: World ranks, in order; empty if the dump does not say.
    """

    name: str
    ident: str
    size: int = 0
    place: int = -1
    members: tuple[int, ...] = ()


@dataclass(frozen=True)
class Hint:
    """Evidence in addition to the calls.

    Attributes:
        kind: waiting, error, network, stack, or one of SILENCES; accused: the ranks have found the
            peer at fault; broken: they have found a connection broken, and the peer is one of its
            ends.
        text: For people.
        group: Index in the part's groups, or -1.
        peer: Rank in that group, or -1.
        fault: Of accused, the kind of failure: timeout, peer, environment or aborted.
        reason: Of accused, what is known about the peer; empty in records that do not say.
    """

    kind: str
    text: str
    group: int = -1
    peer: int = -1
    fault: str = ""
    reason: str = ""


class Columns:
    """Columns under construction; names become numbers."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}
        self.types: dict[str, int] = {}
        self._rows: list[tuple[int, ...]] = []

    def add(
        self,
        group: int,
        kind: str,
        *,
        number: int = -1,
        type: str = "",  # noqa: A002
        size: int = -1,
        root: int = -1,
        peer: int = -1,
        state: State = State.scheduled,
        times: Sequence[int] = (0, 0, 0),
        timeout_ms: int = 0,
    ) -> None:
        """Adds a call; `times` are when it was made, began and ended.

        The size of its output is not known, or follows from its `size`.
        """
        self._rows.append(
            (group, number, self.kind_code(kind), self.type_code(type), size, root, peer,
             int(state), *times, timeout_ms, -1)
        )  # fmt: skip

    def kind_code(self, kind: str) -> int:
        """The number of a kind of calls."""
        return _code(self.kinds, kind)

    def type_code(self, type: str) -> int:  # noqa: A002
        """The number of an element type."""
        return _code(self.types, type)

    def arrays(self) -> dict[str, Array]:
        """The columns."""
        by_column = zip(*self._rows, strict=True) if self._rows else ([] for _ in COLUMNS)
        return {
            name: np.array(values, dtype)
            for (name, dtype), values in zip(COLUMNS.items(), by_column, strict=True)
        }


def _code(names: dict[str, int], name: str) -> int:
    code = names.setdefault(name[:_MOST_TEXT], len(names))
    if code > _MOST_NAMES:
        raise DumpError(f"it names more than {_MOST_NAMES} kinds of calls")
    return code


@dataclass
class Part:
    """What one file says about one process.

    Attributes:
        format: The reader's name.
        version: The version of the format, as the file says.
        world_size: Ranks of the job, 0 if unknown.
        dumps_when_idle: Whether a process that is alive but makes no call would have left a dump.
        counts: (index of the group, place, kind) -> calls launched, where only that is known.
        missing: (index of the group, place) -> why a rank did not answer.
        taken: When a report without calls was made, as text that sorts.
        has_hidden_call: Whether the process has made a call that the dump does not hold.
        last_enqueued: By index of the group, the last number enqueued, where the dump says it.
        has_file_time: Whether `written_ns` is only the time of the file.
        hides_failures: Whether calls that are over may have failed: the dump does not say.
        ids: What all dumps of a run share with others of it, and with no other run; empty if the
            format has none.
        odd: What of the file could not be used, though the rest was: a sentence each.
        host: Where the process ran; empty if the dump does not say.
        events: Of a log, what its lines say.
    """

    file: str
    format: str
    version: str
    key: Key
    claims: list[Claim]
    calls: dict[str, Array]
    kinds: list[str]
    types: list[str]
    hints: list[Hint] = field(default_factory=list)
    world_size: int = 0
    dumps_when_idle: bool = False
    written_ns: int = 0
    checksum: int = 0
    counts: dict[tuple[int, int, str], int] = field(default_factory=dict)
    missing: dict[tuple[int, int], str] = field(default_factory=dict)
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    taken: str = ""
    has_hidden_call: bool = False
    last_enqueued: dict[int, int] = field(default_factory=dict)
    has_file_time: bool = False
    hides_failures: bool = False
    ids: tuple[str, ...] = ()
    host: str = ""
    odd: list[str] = field(default_factory=list)
    events: tuple[Event, ...] = ()

    # Pickled, columns are as short as they can be: a job of 8,192 ranks has a gigabyte of them.
    def __getstate__(self) -> dict[str, Any]:
        count = len(self.calls["group"])
        columns = [
            int(values[0]) if count and (values == values[0]).all() else values.tobytes()
            for values in (self.calls[name] for name in COLUMNS)
        ]
        return self.__dict__ | {"calls": (count, columns)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        count, columns = state["calls"]
        calls = {
            name: np.frombuffer(values, kind) if isinstance(values, bytes) else
            np.ndarray((count,), kind, np.array(values, kind), strides=(0,))
            for (name, kind), values in zip(COLUMNS.items(), columns, strict=True)
        }  # fmt: skip
        self.__dict__ |= state | {"calls": calls}


def integer(
    values: Any, name: str, where: str, least: int = -1, most: int = (1 << 62), default: int = -1
) -> int:
    """A number of a dump, or the default where it is missing or null.

    Raises:
        DumpError: It is no whole number in the range.
    """
    value = values.get(name)
    if value is None:
        return default
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        shown = repr(value)[:40] if isinstance(value, int | str | float) else type(value).__name__
        raise DumpError(f"{where}: '{name}' is {shown}; a number from {least} to {most} is needed")
    return value


def text(values: Any, name: str, where: str, default: str | None = None) -> str:
    """A text of a dump.

    Raises:
        DumpError: It is missing without a default, or no text.
    """
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, str | int):
        kind = "missing" if value is None else f"a {type(value).__name__}"
        raise DumpError(f"{where}: '{name}' is {kind}; a text is needed")
    return str(value)[:_MOST_TEXT] if isinstance(value, str) else str(integer(values, name, where))


def integers(
    entries: Sequence[dict[str, Any]], name: str, where: str, least: int = -1,
    most: int = (1 << 62), default: int = -1,
) -> Array:  # fmt: skip
    """A number of each entry, as `integer` reads it.

    Raises:
        DumpError: One is no whole number in the range.
    """
    values = [one.get(name, default) for one in entries]
    if None in values:
        values = [default if one is None else one for one in values]
    if set(map(type, values)) == {int} and least <= min(values) and max(values) <= most:
        return np.array(values, np.int64)
    return np.array(
        [integer(one, name, f"{where} {i}", least, most, default) for i, one in enumerate(entries)],
        np.int64,
    )


def texts(
    entries: Sequence[dict[str, Any]], name: str, where: str, default: str | None = None
) -> list[str]:
    """A text of each entry, as `text` reads it.

    Raises:
        DumpError: One is missing without a default, or no text.
    """
    values: list[Any] = [one.get(name, default) for one in entries]
    if set(map(type, values)) == {str} and max(map(len, values)) <= _MOST_TEXT:
        return values
    return [text(one, name, f"{where} {i}", default) for i, one in enumerate(entries)]


def members_of(ranks: Iterable[int], where: str) -> tuple[int, ...]:
    """World ranks of a group, checked.

    Raises:
        DumpError: One is no rank, or is there twice.
    """
    members = tuple(ranks)
    for rank in members:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < MAX_RANKS:
            raise DumpError(f"{where}: the group's ranks include {str(rank)[:40]}, which is none")
    if len(set(members)) != len(members):
        raise DumpError(f"{where}: the group's ranks name one rank twice")
    return members
