"""Unisono's own record (`UNISONO_DUMP_DIRECTORY`, `Communicator.dump_record`), version 1.

A file holds one rank of one communicator. A rank writes it when its call fails, or by a signal. Its
sequence numbers count collectives and groups of messages together.
"""

from typing import Any

from unisono.doctor.parts import (
    MAX_RANKS,
    Claim,
    Columns,
    DumpError,
    Hint,
    Part,
    State,
    integer,
    text,
)

__all__ = ["is_record", "read_record"]

FORMAT = "unisono-record"
MESSAGES = "point_to_point"
_STATES = {
    "enqueued": State.scheduled, "started": State.started, "completed": State.ended,
    "failed": State.failed, "launched": State.started,
}  # fmt: skip
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


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
    if version != 1:
        raise DumpError(
            f"it is version {version} of Unisono's record; this release reads version 1"
        )
    ranks = integer(document, "ranks", where, 1, MAX_RANKS)
    rank = integer(document, "rank", where, 0, ranks - 1)
    communicator = text(document, "communicator", where)
    if min(ranks - 1, rank) < 0:
        raise DumpError("the record has no 'rank' and 'ranks'")
    epoch = integer(document, "epoch", where, 0, default=0)
    entries = document.get("entries")
    if not isinstance(entries, list):
        raise DumpError("the record has no list 'entries'")
    for i, one in enumerate(entries):
        if not isinstance(one, dict):
            raise DumpError(f"entry {i} is no object")
    columns, hints = Columns(), []
    numbers = [integer(one, "sequence", f"entry {i}", 0) for i, one in enumerate(entries)]
    if sorted(set(numbers)) != numbers:
        raise DumpError("the sequence numbers of its entries do not rise")
    # Messages are counted too: only where all calls are there, the collectives have exact numbers.
    has_messages = any(one.get("collective") == MESSAGES for one in entries)
    is_whole = not numbers or numbers[0] == 0
    made = 0
    for i, entry in enumerate(entries):
        name = f"entry {i}"
        kind = text(entry, "collective", name)
        is_message = kind == MESSAGES
        state = _STATES.get(text(entry, "state", name))
        if state is None:
            raise DumpError(f"{name}: '{text(entry, 'state', name)}' is no state of a call")
        waiting = entry.get("waiting")
        peer = -1
        if isinstance(waiting, dict):
            peer = integer(waiting, "peer", name, -1, ranks - 1)
            if state is not State.ended:
                hints.append(Hint("waiting", _waiting(waiting, name), 0, peer))
        number = made if is_whole else numbers[i]
        columns.add(
            0, _kind(kind, entry, name), type=text(entry, "type", name, ""),
            number=-1 if is_message or (has_messages and not is_whole) else number,
            size=integer(entry, "bytes", name, 0),
            root=integer(entry, "root", name, 0, ranks - 1) if kind in _ROOTED else -1,
            peer=max(peer, 0) if is_message else -1, state=state,
            times=[integer(entry, f"{at}_ns", name, 0, default=0)
                   for at in ("enqueued", "started", "ended")],
        )  # fmt: skip
        made += not is_message
    claim = Claim(communicator, f"{FORMAT} {communicator} {epoch}", ranks, rank)
    return [
        Part(
            file, FORMAT, str(version), (communicator, rank), [claim], columns.arrays(),
            list(columns.kinds), list(columns.types), hints,
        )
    ]  # fmt: skip


def _kind(kind: str, entry: dict[str, Any], where: str) -> str:
    if "reduce" not in kind:
        return kind
    return f"{kind} ({text(entry, 'operation', where, 'sum')})"


def _waiting(waiting: dict[str, Any], where: str) -> str:
    kind = text(waiting, "kind", where)
    values = {
        name: integer(waiting, name, where) for name in ("peer", "channel", "expected", "got")
    }
    return (
        f"{kind} of rank {values['peer']} on channel {values['channel']}, {values['expected']} "
        f"expected, {values['got']} seen"
    )
