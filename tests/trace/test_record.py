"""Real dumps against the published schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from python.metrics.records import connection
from unisono.errors import CollectiveTimeoutError, PeerError
from unisono.records.packed import unpack
from unisono.records.parts import DumpError
from unisono.records.unisono_record import read_record
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
    ways = {(one["direction"], one["peer"], one["channel"]) for one in record["connections"]}
    assert {("send", 1, 1 << 16), ("receive", 1, 1 << 16)} < ways, "of messages, and of collectives"
    assert record["world_ranks"] == [0, 1]
    assert record["clock"]["monotonic_ns"] >= record["collectives"][-1]["ended_ns"]


def test_what_a_rank_writes_after_a_failure_is_valid() -> None:
    found: dict[int, Any] = {}

    def calls(comm: Any) -> None:
        comm.barrier()
        if comm.rank == 1:
            return
        with pytest.raises((CollectiveTimeoutError, PeerError)):
            comm.all_reduce(np.ones(10), timeout=1)
        found[0] = comm.record()

    run_ranks(2, calls)
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"direction": "up"}, "neither send nor receive"),
        ({"direction": None}, "'direction' is missing"),
        ({"peer": 2}, "'peer' is 2"),
        ({"peer": None}, "no 'peer'"),
        ({"channel": -1}, "'channel' is -1"),
        ({"transport": []}, "'transport' is a list"),
        ({"posts": -1}, "'posts' is -1"),
        ({"bytes": 0.5}, "'bytes' is 0.5"),
        ({"busy_ns": 1 << 63}, "'busy_ns'"),
        ({"idle_ns": "soon"}, "'idle_ns'"),
    ],
    ids=str,
)
def test_hostile_connections_are_refused(change: dict[str, Any], message: str) -> None:
    document = json.loads(json.dumps(RECORD))
    document["connections"] = [connection(), connection() | change]
    # A schema knows neither how many ranks there are nor what fits into 64 bits.
    if change not in ({"peer": 2}, {"busy_ns": 1 << 63}):
        assert not is_valid(document)
    with pytest.raises(DumpError, match=message):
        read_record(document, "record")
    document["connections"].pop()
    jsonschema.validate(document, SCHEMA)
    read_record(document, "record")
    for wrong in ([1], {"peer": 1}, "many"):
        document["connections"] = wrong
        assert not is_valid(document)
        with pytest.raises(DumpError, match="connection"):
            read_record(document, "record")


def test_a_connection_that_receives_is_not_timed() -> None:
    document = json.loads(json.dumps(RECORD))
    document["connections"] = [connection(direction="receive")]
    assert not is_valid(document)
    timed = ("busy_ns", "idle_ns", "most_in_flight_bytes", "mean_in_flight_bytes")
    for name in timed:
        del document["connections"][0][name]
    assert is_valid(document)
    document["connections"] = [connection()]
    del document["connections"][0]["idle_ns"]
    assert not is_valid(document), "all four or none"


PACKED = """
import json, os, sys
import numpy as np
import unisono
comm = unisono.init(timeout=100)
for i in range(150):
    comm.all_reduce(np.ones(10 + i % 3, np.float32), "max")
    if i % 2:
        comm.broadcast(np.ones(3), root=1)
    comm.send(np.ones(4), 1) if comm.rank == 0 else comm.recv(np.ones(4), 0)
with open(f"{sys.argv[1]}/words-{comm.rank}.json", "w") as file:
    json.dump(comm.record(), file)
if comm.rank == 1:
    comm.abort()
try:
    comm.barrier()
except unisono.UnisonoError:
    pass
"""


@pytest.mark.slow
def test_packed_entries_say_what_the_words_say(tmp_path: Path) -> None:
    program, dumps = tmp_path / "program.py", tmp_path / "dumps"
    program.write_text(PACKED)
    dumps.mkdir()
    subprocess.run(
        [sys.executable, "-m", "unisono", "run", "-n", "2", "--keep-going", str(program),
         str(tmp_path)],
        env={**os.environ, "UNISONO_DUMP_DIRECTORY": str(dumps), "UNISONO_LOG": "off"},
        timeout=120, check=False,
    )  # fmt: skip
    for path in dumps.iterdir():
        document = json.loads(path.read_text())
        jsonschema.validate(document, SCHEMA)
        words = json.loads((tmp_path / f"words-{document['rank']}.json").read_text())
        assert document["packed_collectives"]["entries"] > 100
        assert document["packed_messages"]["entries"] > 50
        [part] = read_record(document, "packed")
        unpack(document)
        jsonschema.validate(document, SCHEMA)
        # The dump has a barrier more at most, which failed.
        assert document["collectives"][: len(words["collectives"])] == words["collectives"]
        assert document["messages"] == words["messages"]
        [other] = read_record(document, "words")
        for name, values in other.calls.items():
            if name in ("kind", "type"):
                mine = [getattr(part, f"{name}s")[one] for one in part.calls[name]]
                assert mine == [getattr(other, f"{name}s")[one] for one in values]
            else:
                assert (part.calls[name] == values).all(), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.update(entries=1 << 30), "'entries' is 1073741824"),
        (lambda one: one["columns"].pop("bytes"), "no column 'bytes'"),
        (lambda one: one["columns"]["bytes"].update(width=3), "1, 2, 4 or 8"),
        (lambda one: one["columns"]["bytes"].update(data="AAA"), "not base64"),
        (lambda one: one["columns"]["bytes"].update(data="AAAA"), "3 bytes, not 2"),
        (lambda one: one["columns"]["collective"].update(least=7), "a name that is not there"),
        (lambda one: one.update(names=[1]), "no list of texts"),
    ],
)
def test_hostile_packed_entries_are_refused(change: Any, message: str) -> None:
    def column(data: str, least: int = 0) -> dict[str, Any]:
        return {"least": least, "width": 1, "data": data}

    document = json.loads(json.dumps(RECORD))
    document["packed_collectives"] = {
        "entries": 2, "names": ["all_reduce", "float32", "sum"],
        "columns": {
            "sequence": column("AAE="), "collective": column("AAA="), "type": column("AQE="),
            "operation": column("AgI="), "root": column("AAA="), "bytes": column("AAA="),
            "scheduled_ns": column("AAE=", 5), "started_ns": column("AAA="),
            "launched_ns": column("AAA="), "ended_ns": column("AgI="),
        },
    }  # fmt: skip
    [part] = read_record(json.loads(json.dumps(document)), "record")
    assert part.calls["ended"].tolist() == [6 + AHEAD, 7 + AHEAD]
    change(document["packed_collectives"])
    with pytest.raises(DumpError, match=message):
        read_record(document, "record")


AHEAD = 100
RECORD = {
    "format": "unisono-record", "version": 2, "cause": "failure", "communicator": "7",
    "group": "world", "epoch": 0, "rank": 0, "ranks": 2, "world_ranks": [0, 1], "node": "a",
    "process": 1, "watched": True, "clock": {"monotonic_ns": 10, "wall_ns": 10 + AHEAD},
    "collectives": [], "messages": [],
}  # fmt: skip
