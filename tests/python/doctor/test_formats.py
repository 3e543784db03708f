"""What Unisono's records become: Flight Recorder's dumps, and one time line of all ranks."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from python.doctor.dumps import write
from python.doctor.jobs import simulate
from unisono.doctor import diagnose, read_files
from unisono.doctor.flight_writer import flight_recorder, write_flight_recorder
from unisono.doctor.perfetto import perfetto
from unisono.errors import MisuseError
from unisono.records.clocks import align


def records_of(folder: Path, seed: int, fault: str) -> list[dict[str, Any]]:
    return [
        json.loads(path.read_text()) for path in write(simulate(seed, fault), folder, "unisono")
    ]


@pytest.mark.parametrize("fault", ["skip", "outside", "size", "kind"])
def test_flight_recorders_dumps_tell_the_doctor_the_same(tmp_path: Path, fault: str) -> None:
    seed = random.randrange(1 << 30)
    write_flight_recorder(records_of(tmp_path / "records", seed, fault), tmp_path / "dumps")
    # The dumps are written now, of calls that were made at the job's times.
    own = diagnose(read_files([tmp_path / "records"]))
    theirs = diagnose(read_files([tmp_path / "dumps"]))
    assert theirs.ranks == own.ranks == [f"rank {simulate(seed, fault).victim}"], f"seed {seed}"
    assert theirs.verdict == own.verdict


def test_members_and_messages_are_as_pytorch_writes_them() -> None:
    record = {
        "group": "world/0.1", "rank": 0, "ranks": 2, "world_ranks": [5, 3],
        "clock": {"monotonic_ns": 100, "wall_ns": 1100},
        "collectives": [
            {"sequence": 4, "collective": "all_gather", "type": "float32", "operation": "sum",
             "root": 0, "bytes": 32, "state": "ended", "scheduled_ns": 10, "started_ns": 11,
             "ended_ns": 31},
        ],
        "messages": [
            {"sequence": 2, "direction": "receive", "peer": 1, "messages": 1, "message_tag": 0,
             "bytes": 8, "state": "failed", "scheduled_ns": 40, "ended_ns": 60},
        ],
    }  # fmt: skip
    dump = flight_recorder([record])
    gather, receive = dump["entries"]
    assert dump["pg_config"]["world/0.1"]["ranks"] == "[3, 5]"
    assert (gather["profiling_name"], gather["collective_seq_id"]) == ("nccl:_all_gather_base", 5)
    assert (gather["input_sizes"], gather["output_sizes"]) == ([[4]], [[8]])
    assert (gather["state"], gather["time_created_ns"]) == ("completed", 1010)
    # World rank 5 is the second of the group for PyTorch.
    assert receive["profiling_name"] == "nccl:recv 1<-0"
    assert (receive["state"], receive["retired"]) == ("scheduled", True)
    # By `pg_id`, as PyTorch has it, and not by name.
    assert dump["pg_status"]["0"]["last_completed_collective"] == 5
    with pytest.raises(MisuseError, match="ranks 3, 5; a dump is of one process"):
        flight_recorder([record, {**record, "rank": 1}])


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_pytorchs_own_tool_reads_them(tmp_path: Path) -> None:
    write_flight_recorder(records_of(tmp_path / "records", 5, "outside"), tmp_path / "dumps")
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace",
         str(tmp_path / "dumps"), "--prefix", "nccl_trace_rank_", "--allow-incomplete-ranks"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr


def moved(record: dict[str, Any], ns: int, node: str) -> dict[str, Any]:
    """The record as a rank on another host writes it, whose monotonic clock is ahead."""
    out: dict[str, Any] = json.loads(json.dumps(record))
    out["node"] = node
    out["clock"]["monotonic_ns"] += ns
    for one in (*out["collectives"], *out["messages"]):
        for name in ("scheduled_ns", "started_ns", "launched_ns", "ended_ns"):
            if name in one:
                one[name] += ns
    return out


def test_clocks_are_aligned_by_collectives_and_the_error_is_a_bound(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    records = records_of(tmp_path, seed, "")
    ahead = {rank: random_.randrange(1 << 50) for rank in range(64)}
    shifted = [moved(one, ahead[one["world_ranks"][one["rank"]]],
                     f"host{one['world_ranks'][one['rank']]}") for one in records]  # fmt: skip
    found = align(shifted)
    reference = shifted[0]["world_ranks"][shifted[0]["rank"]]
    for rank, (ns, error) in found.items():
        assert error >= 0, rank
        assert abs(ns - (ahead[rank] - ahead[reference])) <= error


def test_the_time_line_has_every_call_once(tmp_path: Path) -> None:
    records = records_of(tmp_path, 3, "skip")
    trace = perfetto(records)
    calls = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    entries = sum(len(one["collectives"]) + len(one["messages"]) for one in records)
    assert len(calls) == entries
    assert min(event["ts"] for event in calls) >= 0
    assert len({event["pid"] for event in calls}) == simulate(3, "skip").ranks
    assert perfetto([]) == {"traceEvents": []}


@pytest.mark.slow
def test_the_command_writes_both(tmp_path: Path) -> None:
    records_of(tmp_path / "records", 3, "skip")
    trace, folder = tmp_path / "trace.json", tmp_path / "dumps"
    run = subprocess.run(
        [sys.executable, "-m", "unisono", "doctor", str(tmp_path / "records"),
         "--timeline", str(trace), "--flight-recorder", str(folder)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 3, run.stderr
    assert json.loads(trace.read_text())["traceEvents"]
    assert len(list(folder.iterdir())) == simulate(3, "skip").ranks
