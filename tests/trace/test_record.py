"""Real dumps against the published schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from unisono.errors import CollectiveTimeoutError, PeerError
from unisono.testing import run_ranks

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/schema/record-v2.schema.json").read_text())


def is_valid(record: Any) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(record)


def a_record() -> Any:
    """Of rank 0 of two, with all kinds of entries."""
    found: dict[int, Any] = {}

    def calls(comm: Any) -> None:
        peer = 1 - comm.rank
        comm.all_reduce(np.ones(10, np.float32), "max")
        comm.broadcast(np.ones(3), root=1)
        if comm.rank == 0:
            comm.send(np.ones(4), peer)
            comm.recv(np.ones(4), peer)
        else:
            comm.recv(np.ones(4), peer)
            comm.send(np.ones(4), peer)
        comm.barrier()
        found[comm.rank] = comm.record()

    run_ranks(2, calls)
    return found[0]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_what_a_rank_writes_is_valid() -> None:
    record = a_record()
    jsonschema.validate(record, SCHEMA)
    assert [one["sequence"] for one in record["collectives"]] == [0, 1, 2]
    ways = [(one["direction"], one["message_tag"], one["sequence"]) for one in record["messages"]]
    assert ways == [("send", 0, 0), ("receive", 0, 0)]
    assert record["world_ranks"] == [0, 1]
    assert record["clock"]["monotonic_ns"] >= record["collectives"][-1]["ended_ns"]


def test_what_a_rank_writes_after_a_failure_is_valid() -> None:
    found: dict[int, Any] = {}

    def calls(comm: Any) -> None:
        comm.barrier()
        if comm.rank == 1:
            return
        with pytest.raises((CollectiveTimeoutError, PeerError)):
            comm.all_reduce(np.ones(10))
        found[0] = comm.record()

    run_ranks(2, calls, timeout=1)
    jsonschema.validate(found[0], SCHEMA)
    assert found[0]["failure"]["rank"] == 1
    assert [one["state"] for one in found[0]["collectives"]] == ["ended", "failed"]


@pytest.mark.parametrize(
    "change",
    [
        {"state": "completed"},
        {"state": "started"},
        {"state": "ended", "ended_ns": None},
        {"ended_ns": 0},
        {"captured": True},
        {"path": "mpi"},
        {"unknown": 1},
        {"sequence": -1},
    ],
    ids=str,
)
def test_entries_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    record = a_record()
    entry = record["collectives"][0]
    for name, value in change.items():
        if value is None:
            del entry[name]
        else:
            entry[name] = value
    assert not is_valid(record)


@pytest.mark.parametrize("member", sorted(SCHEMA["required"]))
def test_every_member_of_the_head_is_needed(member: str) -> None:
    record = a_record()
    del record[member]
    assert not is_valid(record)
