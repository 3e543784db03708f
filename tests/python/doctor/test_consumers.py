"""Every file of the corpora gives the same calls to every consumer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from python.doctor.dumps import write
from python.doctor.flights import Flight, Made, write_flights
from python.doctor.jobs import simulate
from python.doctor.packs import packed
from python.doctor.test_runs import dump_of, put
from unisono.doctor.files import parse
from unisono.errors import MisuseError
from unisono.profile.calls import Calls
from unisono.records.unisono_record import read_records
from unisono.simulate import load_cluster, simulate_workload
from unisono.simulate.load import load_workload

RECORDED = Path(__file__).parents[1]
CORPORA = ("gloo", "nccl", "made", "json", "complex", "words", "packed", "messages")
RANKS = 4

# What a call is, and its bytes; -1 where ranks may differ in them.
Counts = Counter[tuple[str, int]]


def corpus(name: str, folder: Path) -> list[Path]:
    """The files of all ranks, in their order."""
    if name in ("gloo", "nccl"):
        return sorted((RECORDED / f"flight_recorder_{name}").iterdir())
    if name == "complex":
        made = [Made("world", number + 1, number + 1.0, number + 1.5) for number in range(3)]
        types = ["ComplexFloat", "ComplexDouble", "UInt16"]
        flights = [Flight(made) for _ in range(RANKS)]
        paths = sorted(write_flights(folder, {"world": list(range(RANKS))}, flights).iterdir())
        for path in paths:
            dump = dump_of(path)
            for entry, element in zip(dump["entries"], types, strict=True):
                entry |= {"input_dtypes": [element], "output_dtypes": [element], "duration_ms": 0.5}
            put(path, dump)
        return paths
    job = next(one for seed in range(99)
               if (one := simulate(seed, "", flat=True)).ranks == RANKS)  # fmt: skip
    if name in ("made", "json"):
        return write(job, folder, "nccl_timed" if name == "made" else "nccl_json")
    paths = write(job, folder, "unisono")
    for path in paths:
        record = json.loads(path.read_text())
        if name == "messages":
            record["messages"] = list(messages(record["rank"]))
        if name != "words":
            record = packed(record, "collectives", 12)
        if name == "messages":
            record = packed(record, "messages", 3)
        path.write_text(json.dumps(record))
    return paths


def messages(rank: int) -> Iterator[dict[str, Any]]:
    """Round a ring; rank 1 has lost its two oldest receives."""
    for direction, step in (("send", 1), ("receive", -1)):
        for sequence in range(2 if (rank, direction) == (1, "receive") else 0, 5):
            time = 10**6 * (1000 + sequence)
            yield {
                "sequence": sequence, "direction": direction, "peer": (rank + step) % RANKS,
                "messages": 1, "message_tag": 0, "bytes": 4096 + sequence, "plan": "messages",
                "protocol": "simple", "path": "host", "state": "ended", "scheduled_ns": time,
                "started_ns": time + 1, "ended_ns": time + 10**5,
            }  # fmt: skip


def seen_by_the_doctor(path: Path) -> Counts:
    [part] = parse(path.read_bytes(), str(path))
    of = part.calls
    found: Counts = Counter()
    for kind, size, output in zip(of["kind"], of["size"], of["output"], strict=True):
        name = part.kinds[kind].split()[0]
        if name != "coalesced":
            found[name, max(int(size), int(output))] += 1
    return found


def simulated(paths: list[Path]) -> list[Counts]:
    """Of each rank."""
    found = []
    for tasks in load_workload(paths[0].parent).lists:
        counts: Counts = Counter()
        for task in tasks.tasks:
            if task.kind in ("collective", "send", "recv"):
                size = task.call.size_bytes if task.call is not None else task.size_bytes
                counts[task.name.split()[0], size] += 1
        found.append(counts)
    return found


def alike(some: Counts, others: Counts) -> bool:
    """Where the one does not say bytes, the other may."""
    known = Counter({call: count for call, count in some.items() if call[1] >= 0})
    names, other_names = (Counter() for _ in range(2))
    for counts, into in ((some, names), (others, other_names)):
        for (name, _), count in counts.items():
            into[name] += count
    return names == other_names and all(others[call] >= count for call, count in known.items())


@pytest.mark.parametrize("name", CORPORA)
def test_every_file_gives_the_same_calls_to_every_consumer(tmp_path: Path, name: str) -> None:
    paths = corpus(name, tmp_path)
    assert len(paths) == RANKS
    judged = [seen_by_the_doctor(path) for path in paths]
    assert all(judged)
    if name == "messages":
        # What one end of a message no longer has, the simulator leaves out at the other end.
        for sequence in range(2):
            judged[0]["send", 4096 + sequence] -= 1
    for rank, (mine, theirs) in enumerate(zip(judged, simulated(paths), strict=True)):
        assert alike(+mine, theirs), f"rank {rank}: {mine - theirs} against {theirs - mine}"
    result = simulate_workload(load_cluster("dgx_a100"), load_workload(paths[0].parent))
    assert result.time_us > 0
    if name in ("words", "packed", "messages"):
        profiled = Calls(read_records(paths))
        of_one: Counts = Counter((one.kind, one.bytes) for one in profiled.collectives)
        assert not profiled.left_out
        collectives = {call: count for call, count in judged[1].items()
                       if call[0] not in ("send", "recv")}  # fmt: skip
        assert of_one == collectives


def test_a_packed_call_that_is_damaged_is_refused_and_not_dropped(tmp_path: Path) -> None:
    paths = corpus("packed", tmp_path)
    record = json.loads(paths[2].read_text())
    record["packed_collectives"]["entries"] -= 1
    paths[2].write_text(json.dumps(record))
    with pytest.raises(MisuseError, match=f"{paths[2].name}: packed collectives: column"):
        load_workload(tmp_path)
