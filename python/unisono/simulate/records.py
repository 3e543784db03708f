"""Our own records as workloads: the JSON that every communicator can dump, one file a rank."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unisono import plans
from unisono.errors import MisuseError
from unisono.files import read_text
from unisono.simulate.replay import Recorded, replay
from unisono.simulate.workload import AUTOMATIC, Call, Task, Workload

_MAX_BYTES = 1 << 30


class _Entry(BaseModel):
    model_config = ConfigDict(extra="ignore")
    sequence: int = 0
    collective: str = "point_to_point"
    plan: str
    protocol: Literal["simple", "ll", "ll128"]
    bytes: int = Field(ge=0)
    type: str = "uint8"
    root: int = 0
    path: str = "host"
    state: str
    captured: bool = False
    started_ns: int = 0
    ended_ns: int = 0


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore")
    format: Literal["unisono-record"]
    version: Literal[2]
    communicator: str
    epoch: int
    rank: int = Field(ge=0)
    ranks: int = Field(ge=1, le=1 << 20)
    collectives: list[_Entry]


def load_records(paths: Iterable[Path], name: str = "record") -> Workload:
    """The workload that the records of all ranks of one communicator hold.

    Plans are those that ran, where the library has an algorithm of that name. Compute is the time
    between calls.

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
    workload = Workload(name, ranks, {"record": [list(range(ranks))]})
    for rank in range(ranks):
        calls = [
            _recorded(rank, entry)
            for entry in records[rank].collectives
            if entry.sequence >= first_common
        ]
        workload.lists.append(replay(rank, calls))
    return workload


def _read(path: Path) -> _Record:
    try:
        document: Any = json.loads(read_text(path, _MAX_BYTES))
        return _Record.model_validate(document)
    except (json.JSONDecodeError, RecursionError) as error:
        raise MisuseError(f"{path}: {error}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        raise MisuseError(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


def _recorded(rank: int, entry: _Entry) -> Recorded:
    if entry.state in ("scheduled", "ended") and entry.started_ns == 0 and entry.path != "host":
        raise MisuseError(
            f"rank {rank}: call {entry.sequence} ({entry.collective}) went to a CUDA stream; the "
            "record does not tell when it began"
        )
    if entry.state != "ended" or entry.ended_ns == 0:
        raise MisuseError(
            f"rank {rank}: call {entry.sequence} ({entry.collective}) is {entry.state}; the record "
            "ends early"
        )
    known = [algorithm.name for algorithm in plans.algorithms(entry.collective)]
    call = Call(
        entry.collective, entry.bytes, entry.plan if entry.plan in known else AUTOMATIC,
        entry.protocol,
        type=entry.type, root=entry.root,
    )  # fmt: skip
    task = Task("collective", f"{entry.collective} {entry.sequence}", "calls", call=call,
                communicator="record")  # fmt: skip
    return Recorded(entry.started_ns, entry.ended_ns, task)
