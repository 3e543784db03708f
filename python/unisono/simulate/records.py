"""Our own records as workloads: the JSON that every communicator can dump, one file a rank."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unisono import plans
from unisono.errors import MisuseError
from unisono.files import read_bounded
from unisono.records.packed import unpack
from unisono.records.parts import DumpError
from unisono.records.unisono_record import load_record, read_record
from unisono.simulate.replay import Recorded, replay
from unisono.simulate.workload import AUTOMATIC, Call, Task, Workload

_MAX_BYTES = 1 << 30


class _Timed(BaseModel):
    model_config = ConfigDict(extra="ignore")
    sequence: int = Field(ge=0)
    bytes: int = Field(ge=0)
    path: str = "host"
    state: str
    captured: bool = False
    started_ns: int = 0
    ended_ns: int = 0


class _Entry(_Timed):
    collective: str
    plan: str
    protocol: Literal["simple", "ll", "ll128"]
    type: str = "uint8"
    root: int = 0


class _Message(_Timed):
    direction: Literal["send", "receive"]
    peer: int
    messages: int = Field(1, ge=1, le=1 << 20)
    message_tag: int = 0


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore")
    format: Literal["unisono-record"]
    version: Literal[2]
    communicator: str
    epoch: int
    rank: int = Field(ge=0)
    ranks: int = Field(ge=1, le=1 << 20)
    collectives: list[_Entry]
    messages: list[_Message]


# Messages from one rank to another that are numbered together: both, the tag, and whether they were
# on streams.
_Stream = tuple[int, int, int, bool]


def load_records(paths: Iterable[Path], name: str = "record") -> Workload:
    """The workload that the records of all ranks of one communicator hold.

    Plans are those that ran, where the library has an algorithm of that name. Compute is the time
    between calls. A record keeps the newest calls: those that a rank of them no longer has are left
    out.

    Raises:
        MisuseError: A record is missing or wrong, of another communicator, or ends early.
    """
    records: dict[int, _Record] = {}
    for path in paths:
        record = _read(path)
        if records:
            first = next(iter(records.values()))
            if (record.communicator, record.epoch, record.ranks) != (
                first.communicator, first.epoch, first.ranks,
            ):  # fmt: skip
                raise MisuseError(
                    f"{path}: communicator {record.communicator}, epoch {record.epoch}, and "
                    f"{first.communicator}, epoch {first.epoch}; a workload is one communicator's"
                )
        if record.rank in records:
            raise MisuseError(f"{path}: rank {record.rank} has two records")
        records[record.rank] = record
    if not records:
        raise MisuseError("there are no records")
    ranks = next(iter(records.values())).ranks
    missing = sorted(set(range(ranks)) - set(records))
    if missing:
        raise MisuseError(f"there are no records of ranks {', '.join(map(str, missing[:10]))}")
    # A ring of entries: the oldest ones may be gone on some ranks.
    first_common = max(
        (record.collectives[0].sequence for record in records.values() if record.collectives),
        default=0,
    )
    first_messages = _first_messages(records)
    workload = Workload(name, ranks, {"record": [list(range(ranks))]})
    for rank in range(ranks):
        calls = [
            _recorded(rank, entry)
            for entry in records[rank].collectives
            # A graph's calls have entries of their own where it runs.
            if entry.sequence >= first_common and not entry.captured
        ]
        for message in records[rank].messages:
            if not message.captured:
                calls += _sent(rank, message, first_messages)
        workload.lists.append(replay(rank, calls))
    return workload


def _read(path: Path) -> _Record:
    contents = read_bounded(path, _MAX_BYTES)
    try:
        document: Any = load_record(contents)
        if document is None:
            raise MisuseError(f"{path}: it is no record of Unisono that can be read")
        unpack(document)
        record = _Record.model_validate(document)
        read_record(document, str(path))
    except DumpError as error:
        raise MisuseError(f"{path}: {error}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        raise MisuseError(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    return record


def _stream(rank: int, message: _Message) -> _Stream:
    ends = (rank, message.peer) if message.direction == "send" else (message.peer, rank)
    return (*ends, message.message_tag, message.path != "host")


def _first_messages(records: dict[int, _Record]) -> dict[_Stream, int]:
    """The first message that both ends of a stream still have."""
    first: dict[tuple[_Stream, str], int] = {}
    for rank, record in records.items():
        for message in record.messages:
            end = (_stream(rank, message), message.direction)
            first[end] = min(message.sequence, first.get(end, message.sequence))
    found: dict[_Stream, int] = {}
    for (stream, _), sequence in first.items():
        found[stream] = max(sequence, found.get(stream, 0))
    return found


def _sent(rank: int, message: _Message, first: dict[_Stream, int]) -> list[Recorded]:
    """An entry has the messages of one call; each is as large as the others."""
    if message.peer < 0:
        raise MisuseError(
            f"rank {rank}: message {message.sequence} is received from any rank; the record does "
            "not tell from which"
        )
    _check(rank, message, f"message {message.sequence} ({message.direction})")
    stream = _stream(rank, message)
    kind: Literal["send", "recv"] = "send" if message.direction == "send" else "recv"
    title = f"{kind} {stream[0]}->{stream[1]}"
    size, rest = divmod(message.bytes, message.messages)
    return [
        Recorded(
            message.started_ns, message.ended_ns,
            Task(kind, title, f"record {title} {stream[2]} {stream[3]}", peer=message.peer,
                 size_bytes=size + (rest if place == message.messages - 1 else 0)),
        )
        for place in range(message.messages)
        if message.sequence + place >= first[stream]
    ]  # fmt: skip


def _check(rank: int, entry: _Timed, what: str) -> None:
    """Raises MisuseError where an entry does not tell when it ran."""
    if entry.state in ("scheduled", "ended") and entry.started_ns == 0 and entry.path != "host":
        raise MisuseError(
            f"rank {rank}: {what} went to a CUDA stream; the record does not tell when it began"
        )
    if entry.state != "ended" or entry.ended_ns == 0:
        raise MisuseError(f"rank {rank}: {what} is {entry.state}; the record ends early")


def _recorded(rank: int, entry: _Entry) -> Recorded:
    _check(rank, entry, f"call {entry.sequence} ({entry.collective})")
    known = [algorithm.name for algorithm in plans.algorithms(entry.collective)]
    call = Call(
        entry.collective, entry.bytes, entry.plan if entry.plan in known else AUTOMATIC,
        entry.protocol,
        type=entry.type, root=entry.root,
    )  # fmt: skip
    task = Task("collective", f"{entry.collective} {entry.sequence}", "calls", call=call,
                communicator="record")  # fmt: skip
    return Recorded(entry.started_ns, entry.ended_ns, task)
