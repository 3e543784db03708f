"""Writes a simulated job in each format, with the states and fields that the format really has."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

from python.doctor.jobs import START_NS, TIMEOUT_S, Job, Made

_BYTES = {"Float": 4, "Int": 4}


def _ns(job: Job, rank: int, seconds: float) -> int:
    return START_NS + round((seconds + job.clocks[rank]) * 1e9)


def _time(path: Path, ns: int) -> None:
    os.utime(path, ns=(ns, ns))


def write(job: Job, folder: Path, format_: str) -> list[Path]:
    """The files of all ranks that leave one."""
    folder.mkdir(parents=True, exist_ok=True)
    if format_.startswith("ras"):
        return _WRITERS[format_](job, folder)
    if format_ == "unisono":
        return write_records(job, folder)
    paths = []
    for rank in range(job.ranks):
        if job.fault == "died" and rank == job.victim:
            continue
        name, contents = _OF_RANK[format_](job, rank)
        path = folder / name
        path.write_bytes(contents)
        _time(path, _ns(job, rank, job.taken))
        paths.append(path)
    return paths


def _entry(job: Job, rank: int, number: int, made: Made, library: str, timing: bool) -> dict:
    op, members = made.op, job.groups[made.op.group]
    name = op.kind
    if op.peer >= 0:
        arrow = "->" if op.kind == "send" else "<-"
        name = f"{op.kind} {members.index(rank)}{arrow}{op.peer}"
    started = made.started if timing else 0
    entry: dict[str, Any] = {
        "record_id": number, "pg_id": 0, "process_group": (op.group, "undefined"),
        "collective_seq_id": op.index + 1, "p2p_seq_id": 0, "op_id": number,
        "profiling_name": f"{library}:{name}", "is_p2p": op.peer >= 0,
        "input_sizes": [[op.size // _BYTES[op.type]]], "input_dtypes": [op.type],
        "output_sizes": [[op.size // _BYTES[op.type]]], "output_dtypes": [op.type],
        "time_created_ns": _ns(job, rank, made.created), "timeout_ms": TIMEOUT_S * 1000,
    }  # fmt: skip
    if library == "gloo":
        entry |= {
            "state": "scheduled",
            "retired": bool(made.ended),
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
        }
        return entry  # fmt: skip
    state = "completed" if made.ended else "started" if started else "scheduled"
    if timing and made.ended:
        entry["duration_ms"] = 1e3 * (made.ended - made.started)
    return entry | {
        "state": state, "retired": bool(made.ended),
        "time_discovered_started_ns": _ns(job, rank, started) if started else None,
        "time_discovered_completed_ns": _ns(job, rank, made.ended) if made.ended else None,
    }  # fmt: skip


def flight_recorder(job: Job, rank: int, library: str, timing: bool) -> dict[str, Any]:
    """A Flight Recorder dump, as data."""
    entries = [_entry(job, rank, i, made, library, timing)
               for i, made in enumerate(job.calls[rank])]  # fmt: skip
    groups = {
        name: {"name": name, "desc": "default_pg" if name == "world" else "undefined",
               "ranks": str(job.groups[name])}
        for name in job.of(rank)
    }  # fmt: skip
    if library == "gloo":
        groups = {"": {"name": "", "desc": "", "ranks": "[]"}}
    return {"version": "2.10", "comm_lib_version": "2.28.9", "pg_config": groups, "pg_status": {},
            "entries": entries}  # fmt: skip


def _nccl(job: Job, rank: int) -> tuple[str, bytes]:
    return f"nccl_trace_rank_{rank}", pickle.dumps(
        flight_recorder(job, rank, "nccl", timing=False), protocol=2
    )


def _nccl_timed(job: Job, rank: int) -> tuple[str, bytes]:
    return f"nccl_trace_rank_{rank}", pickle.dumps(flight_recorder(job, rank, "nccl", timing=True))


def _nccl_json(job: Job, rank: int) -> tuple[str, bytes]:
    """JSON has 0 for a time that is not known, texts in its status, and no empty list."""
    dump = flight_recorder(job, rank, "nccl", True)
    for entry in dump["entries"]:
        for name in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[name] = entry[name] or 0
    if not dump["entries"]:
        del dump["entries"]
    for one in dump["pg_status"].values():
        one |= {name: str(value) for name, value in one.items()}
    return f"trace_{rank}.json", json.dumps(dump).encode()


def _gloo(job: Job, rank: int) -> tuple[str, bytes]:
    return f"gloo_trace_rank_{rank}", pickle.dumps(
        flight_recorder(job, rank, "gloo", timing=False), protocol=2
    )


def _call(job: Job, rank: int, number: int, made: Made) -> dict[str, Any]:
    def us(seconds: float) -> int:
        return _ns(job, rank, seconds) // 1000 if seconds else 0

    return {
        "opName": made.op.kind, "algoName": "ring", "opCount": number, "collId": number,
        "dataType": "ncclFloat32" if made.op.type == "Float" else "ncclInt32",
        "count": made.op.size // 4, "enqueueTs": us(made.created), "startTs": us(made.started),
        "endTs": us(made.ended), **({"peer": made.op.peer} if made.op.peer >= 0 else {}),
    }  # fmt: skip


def _ncclx(job: Job, rank: int) -> tuple[str, bytes]:
    document = {}
    for name in job.of(rank):
        past, current, pending, number = [], [], [], 0
        for made in job.calls[rank]:
            if made.op.group != name:
                continue
            call = _call(job, rank, made.op.index if made.op.peer < 0 else number, made)
            if made.op.peer >= 0:
                call["opName"] = {"send": "Send", "recv": "Recv"}[made.op.kind]
            number += 1
            (past if made.ended else current if made.started else pending).append(call)
        members = job.groups[name]
        active = []
        is_stuck = any(made.op == job.at for made in job.calls[rank] if not made.ended)
        if job.fault == "network" and is_stuck and rank != job.victim and name == job.at.group:
            active = [{"opCount": 1, "coll": "AllReduce", "channelId": 3, "remoteRank":
                       members.index(job.victim), "opType": "SEND", "status": "IN_PROGRESS",
                       "POSTED": 4, "TRANSMITTED": 3, "DONE": 1}]  # fmt: skip
        errors = []
        if job.fault == "error" and rank == job.victim and name == job.at.group:
            errors = [{"errorMessage": "CUDA error 719: unspecified launch failure"}]
        document[f"{name}-hash"] = {
            "commHash": json.dumps(f"{name}-hash"), "commDesc": json.dumps(name),
            "rank": str(members.index(rank)), "nRanks": str(len(members)),
            "CT_pastColls": json.dumps(past), "CT_currentColls": json.dumps(current),
            "CT_pendingColls": json.dumps(pending), "PT_activeOps": json.dumps(active),
            "processGlobalErrors": json.dumps(errors),
        }  # fmt: skip
    return f"commdump_rank_{rank}.json", json.dumps(document).encode()


_KINDS = {"_all_gather_base": "all_gather", "_reduce_scatter_base": "reduce_scatter"}
_TYPES = {"Float": "float32", "Int": "int32"}


def write_records(job: Job, folder: Path) -> list[Path]:
    """Unisono's records: of every rank that lives, one file for each of its groups."""
    paths = []
    fails = job.fault not in ("slow", "running", "")
    for name, members in job.groups.items():
        for place, rank in enumerate(members):
            if job.fault == "died" and rank == job.victim:
                continue
            collectives: list[dict[str, Any]] = []
            messages: list[dict[str, Any]] = []
            counts: dict[tuple[str, int], int] = {}
            for made in job.calls[rank]:
                if made.op.group != name:
                    continue
                is_message = made.op.peer >= 0
                entry = _record_entry(job, made, members, rank, fails)
                direction = (made.op.kind, made.op.peer)
                entry["sequence"] = counts.get(direction, 0) if is_message else len(collectives)
                counts[direction] = counts.get(direction, 0) + 1
                (messages if is_message else collectives).append(entry)
            document = {
                "format": "unisono-record", "version": 2, "cause": "failure" if fails else "signal",
                "communicator": f"7{name}", "group": name, "epoch": 0, "rank": place,
                "ranks": len(members), "world_ranks": members, "node": "a", "process": 100 + rank,
                "watched": True,
                "clock": {"monotonic_ns": 1 + round(1e9 * job.taken),
                          "wall_ns": START_NS + round(1e9 * (job.taken + job.clocks[rank]))},
                "collectives": collectives, "messages": messages,
            }  # fmt: skip
            if fails:
                is_own = job.fault == "error" and rank == job.victim
                kind = "peer" if job.fault == "died" else "timeout"
                at_fault = members.index(job.victim) if job.victim in members else place
                document["failure"] = {
                    "kind": "environment" if is_own else kind, "rank": at_fault,
                    "time_ns": 1 + round(1e9 * job.taken), "message": "CUDA error 719",
                }  # fmt: skip
            path = folder / f"unisono-7{name}-{place}.json"
            path.write_text(json.dumps(document))
            written = (START_NS + 1e9 * (job.taken + job.clocks[rank])) / 1e9
            os.utime(path, (written, written))
            paths.append(path)
    return paths


def _record_entry(
    job: Job, made: Made, members: list[int], rank: int, fails: bool
) -> dict[str, Any]:
    is_open = not made.ended
    state = "started" if made.started else "scheduled"
    entry: dict[str, Any] = {
        "bytes": made.op.size, "plan": "ring", "protocol": "simple", "path": "host",
        "state": "ended" if made.ended else "failed" if fails else state,
        "scheduled_ns": 1 + round(1e9 * made.created),
    }  # fmt: skip
    if made.started:
        entry["started_ns"] = 1 + round(1e9 * made.started)
    if made.ended or fails:
        entry["ended_ns"] = 1 + round(1e9 * (made.ended or job.taken))
    if made.op.peer >= 0:
        entry |= {"direction": "send" if made.op.kind == "send" else "receive",
                  "peer": made.op.peer, "messages": 1, "message_tag": 0}  # fmt: skip
    else:
        entry |= {"collective": _KINDS.get(made.op.kind, made.op.kind),
                  "type": _TYPES[made.op.type], "operation": "sum", "root": 0}  # fmt: skip
    at = job.at
    waits = fails and is_open and made.started and rank != job.victim and job.fault != "order"
    if waits and at is not None and made.op.group == at.group and job.victim in members:
        entry["waiting"] = {
            "kind": "message", "peer": members.index(job.victim), "channel": 0,
            "thread_block": 0, "step": 1, "tile": 0, "expected": 4, "got": 3,
        }  # fmt: skip
    return entry


_COUNTED = {"all_reduce": "AllReduce", "_all_gather_base": "AllGather", "all_gather": "AllGather",
            "_reduce_scatter_base": "ReduceScatter", "broadcast": "Broadcast"}  # fmt: skip


def _counts(job: Job, name: str, rank: int) -> dict[str, int]:
    counts = dict.fromkeys(["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"], 0)
    for made in job.calls[rank]:
        if made.op.group == name and made.op.peer < 0:
            counts[_COUNTED[made.op.kind]] += 1
    return counts


def _ras_json(job: Job, folder: Path) -> list[Path]:
    """Two reports, a minute apart, of a job that has stopped."""
    paths = []
    for minute in range(2):
        communicators = []
        for number, (name, members) in enumerate(job.groups.items()):
            lost = [job.victim] if job.fault == "died" and job.victim in members else []
            communicators.append({
                "hash": f"0x{number + 1:x}", "secondary_hash": "0x1:0x2", "size": len(members),
                "ranks_count": len(members) - len(lost), "missing_ranks_count": len(lost),
                "ranks": [
                    {"rank": members.index(rank), "host": "10.0.0.1", "pid": 100 + rank,
                     "cuda_dev": rank % 8, "nvml_dev": rank % 8,
                     "status": {"init_state": 0, "async_error": 1 if job.fault == "error"
                                and rank == job.victim and name == "world" else 0,
                                "finalize_called": False, "destroy_flag": False,
                                "abort_flag": False},
                     "collective_counts": _counts(job, name, rank)}
                    for rank in members if rank not in lost
                ],
                "missing_ranks": [
                    {"rank": members.index(rank), "host": "10.0.0.1", "pid": 100 + rank,
                     "cuda_dev": rank % 8, "nvml_dev": rank % 8,
                     "status": {"unresponsive": True, "considered_dead": True}}
                    for rank in lost
                ],
            })  # fmt: skip
        document = {"nccl_version": "2.28.9", "cuda_runtime_version": 12090,
                    "cuda_driver_version": 13000, "timestamp": f"2026-06-19 06:5{minute}:57",
                    "communicators_count": len(communicators), "communicators": communicators,
                    "ras": {"collection_time_sec": 0.0, "timeouts_count": 0}}  # fmt: skip
        text = json.dumps(document, indent=2)
        path = folder / f"ras{minute}.json"
        path.write_text(text)
        paths.append(path)
    return paths


_OF_RANK = {"nccl": _nccl, "nccl_timed": _nccl_timed, "nccl_json": _nccl_json, "gloo": _gloo,
            "ncclx": _ncclx}  # fmt: skip
_WRITERS = {"ras_json": _ras_json}
