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


def pipeline(ranks: int, missing: tuple[int, str] | None = None) -> list[dict[str, Any]]:
    """Records of a job whose neighbours send to each other, both ways, between all-reduces.

    The rank that is named makes no last message in a direction, so that its neighbours' do not end
    and no rank goes on; or no last `all_reduce`.
    """
    other_way = {"send": "receive", "receive": "send"}
    records = []
    for rank in range(ranks):
        peers = [one for one in (rank - 1, rank + 1) if 0 <= one < ranks]
        collectives, messages = [], []
        for step in range(4):
            is_last = step == 3
            # The lower of two neighbours sends first, the other receives first.
            for peer in peers:
                for way in ("send", "receive") if rank < peer else ("receive", "send"):
                    if is_last and missing == (rank, way):
                        continue
                    at = 100 * step + 10 * len(messages) + 1
                    waits = is_last and missing == (peer, other_way[way])
                    messages.append({
                        "bytes": 256, "state": "failed" if waits else "ended", "sequence": step,
                        "direction": way, "peer": peer, "messages": 1, "message_tag": 0,
                        "path": "host", "scheduled_ns": at, "started_ns": at + 1,
                        "ended_ns": at + 2,
                    })  # fmt: skip
            if is_last and missing and (missing[1] != "all_reduce" or missing[0] == rank):
                continue
            at = 1000 * (step + 1)
            collectives.append({
                "bytes": 256, "state": "failed" if is_last and missing else "ended",
                "sequence": step, "collective": "all_reduce", "type": "float32",
                "operation": "sum", "root": 0, "path": "host", "scheduled_ns": at,
                "started_ns": at + 1, "ended_ns": at + 2,
            })  # fmt: skip
        records.append({
            "format": "unisono-record", "version": 2, "communicator": "7", "group": "world",
            "epoch": 0, "rank": rank, "ranks": ranks, "world_rank": rank,
            "world_ranks": list(range(ranks)), "watched": True,
            "clock": {"monotonic_ns": 9000, "wall_ns": 10**18}, "collectives": collectives,
            "messages": messages})  # fmt: skip
    return records


def judged_by_pytorch(folder: Path) -> list[str]:
    """The faults that PyTorch's own tool names: what is wrong, the group, and the ranks."""
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder),
         "--prefix", "nccl_trace_rank_", "--allow-incomplete-ranks"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    lines = (run.stdout + run.stderr).splitlines()
    return [line for line in lines if any(word in line for word in (
        "Not all ranks", "has errors", "mismatch in", "cannot decide", "Too many", "MISMATCH",
        "missing ranks:", "group info:"))]  # fmt: skip


needs_pytorch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs PyTorch"
)


@needs_pytorch
@pytest.mark.parametrize("ranks", [2, 3])
def test_pytorchs_own_tool_finds_no_fault_in_messages_both_ways(tmp_path: Path, ranks: int) -> None:
    write_flight_recorder(pipeline(ranks), tmp_path)
    assert judged_by_pytorch(tmp_path) == []


@needs_pytorch
@pytest.mark.parametrize(
    ("rank", "what", "group"),
    [(1, "receive", "world 0->1"), (1, "send", "world 1->0"), (0, "all_reduce", "world")],
)
def test_pytorchs_own_tool_names_the_rank_that_is_missing(
    tmp_path: Path, rank: int, what: str, group: str
) -> None:
    write_flight_recorder(pipeline(2, (rank, what)), tmp_path)
    found = judged_by_pytorch(tmp_path)
    assert [line.partition("group info: ")[2] for line in found if "group info" in line] == [
        f"{group}:{group}"]  # fmt: skip
    assert [line.partition("missing ranks: ")[2] for line in found if "missing ranks" in line] == [
        f"{{{rank}}}"]  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_of_each_sender_receiver_and_tag_are_a_group_of_two(ranks: int) -> None:
    """Both ends give a message the same number."""
    ends: dict[tuple[str, int], set[str]] = {}
    for record in pipeline(ranks):
        dump = flight_recorder([record])
        for entry in dump["entries"]:
            if entry["is_p2p"]:
                group, number = entry["process_group"][0], entry["collective_seq_id"]
                assert len(json.loads(dump["pg_config"][group]["ranks"])) == 2
                ends.setdefault((group, number), set()).add(entry["profiling_name"].split()[0])
    assert len(ends) == 4 * 2 * (ranks - 1)
    assert all(one == {"nccl:send", "nccl:recv"} for one in ends.values())


@pytest.mark.parametrize("what", ["receive", "all_reduce"])
def test_the_doctor_reads_messages_of_both_ways_back(tmp_path: Path, what: str) -> None:
    write_flight_recorder(pipeline(3, (1, what)), tmp_path)
    found = diagnose(read_files([tmp_path]))
    assert found.ranks == ["rank 1"], found.paragraph


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
