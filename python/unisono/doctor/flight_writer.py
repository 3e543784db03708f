"""Unisono's records in the form of PyTorch's Flight Recorder, which its `torchfrtrace` reads.

Flight Recorder knows no failed calls: those were scheduled or started last, and are retired.
Programs of their own (`custom`) have no counterpart and are left out. `torchfrtrace` pairs calls of
all ranks of a group by their number. Messages have a number for each sender, receiver and tag, so
that each of these is a group of its two ranks here.
"""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unisono.errors import MachineError, MisuseError
from unisono.files import write_whole

__all__ = ["flight_recorder", "write_flight_recorder"]

VERSION = "2.10"
_NAMES = {
    "all_reduce": "all_reduce", "all_gather": "_all_gather_base", "broadcast": "broadcast",
    "reduce_scatter": "_reduce_scatter_base", "reduce": "reduce", "gather": "gather",
    "scatter": "scatter", "all_to_all": "all_to_all", "all_to_all_v": "all_to_all",
    "barrier": "all_reduce_barrier",
}  # fmt: skip
_TYPES = {
    "float32": ("Float", 4), "float16": ("Half", 2), "bfloat16": ("BFloat16", 2),
    "float64": ("Double", 8), "int64": ("Long", 8), "int32": ("Int", 4), "int8": ("Char", 1),
    "uint8": ("Byte", 1),
}  # fmt: skip


def flight_recorder(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The dump of one process, of the records of its communicators.

    Args:
        records: Documents of version 2, each of another communicator of the same process.

    Raises:
        MisuseError: They are of several processes.
    """
    config: dict[str, Any] = {}
    status: dict[str, Any] = {}
    made: list[dict[str, Any]] = []
    ranks = set()
    for number, record in enumerate(records):
        members = record["world_ranks"]
        ranks.add(members[record["rank"]])
        name = str(number) if record["group"] == "" else record["group"]
        groups = {name: (members, [_collective(one, record) for one in record["collectives"]
                                   if one["collective"] in _NAMES])}  # fmt: skip
        for one in record["messages"]:
            if one["peer"] >= 0:
                ends = _ends(one, record)
                _, entries = groups.setdefault(_channel(one, name, *ends), (ends, []))
                entries.append(_message(one, record))
        for group, (ends, entries) in groups.items():
            identity = len(config)
            config[group] = {"name": group, "desc": group, "ranks": str(sorted(ends))}
            for entry in entries:
                entry |= {"pg_id": identity, "process_group": (group, group)}
            made += entries
            status[str(identity)] = _status(entries)
    if len(ranks) > 1:
        shown = ", ".join(map(str, sorted(ranks)))
        raise MisuseError(f"the records are of ranks {shown}; a dump is of one process")
    made.sort(key=lambda entry: entry["time_created_ns"])
    for number, entry in enumerate(made):
        entry["record_id"] = number
    return {"version": VERSION, "pg_config": config, "pg_status": status, "entries": made}


def write_flight_recorder(records: Iterable[dict[str, Any]], folder: Path) -> None:
    """Writes `nccl_trace_rank_N` of each process into a folder, which is made.

    Raises:
        MachineError: One cannot be written.
    """
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for one in records:
        by_rank.setdefault(one["world_ranks"][one["rank"]], []).append(one)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"cannot write to {folder}: {error.strerror}") from None
    for rank, mine in by_rank.items():
        dump = pickle.dumps(flight_recorder(mine))
        write_whole(folder / f"nccl_trace_rank_{rank}", dump, private=True)


def _status(entries: list[dict[str, Any]]) -> dict[str, int]:
    """The last collective that came so far, as ProcessGroupNCCL counts: 0 if none."""
    numbers: dict[str, list[int]] = {"scheduled": [0], "started": [0], "completed": [0]}
    for entry in entries:
        if not entry["is_p2p"]:
            numbers[entry["state"]].append(entry["collective_seq_id"])
    completed, started, scheduled = (max(numbers[one]) for one in
                                     ("completed", "started", "scheduled"))  # fmt: skip
    return {
        "last_enqueued_collective": max(completed, started, scheduled),
        "last_started_collective": max(completed, started),
        "last_completed_collective": completed,
    }


def _times(entry: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    ahead = record["clock"]["wall_ns"] - record["clock"]["monotonic_ns"]
    started, ended = entry.get("started_ns"), entry.get("ended_ns")
    is_over = entry["state"] == "ended"
    # A call that waited for its turn on the host when another one failed never began.
    has_failed = entry["state"] in ("failed", "aborted") and (
        started is not None or entry.get("path") != "host")  # fmt: skip
    return {
        "frames": [],
        "op_id": entry.get("sequence", 0) + 1,
        "state": "completed" if is_over else "started" if started else "scheduled",
        "retired": is_over or has_failed,
        "time_created_ns": entry["scheduled_ns"] + ahead,
        "time_discovered_started_ns": started + ahead if started else None,
        "time_discovered_completed_ns": ended + ahead if is_over else None,
        "duration_ms": (ended - started) / 1e6 if is_over and started else None,
        "timeout_ms": 0,
    }


def _collective(entry: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    kind, ranks = entry["collective"], record["ranks"]
    type_name, size = _TYPES.get(entry["type"], ("Byte", 1))
    whole = entry["bytes"] // size
    part = whole // ranks
    is_root = record["rank"] == entry["root"]
    every = [[part]] * ranks
    sizes: dict[str, tuple[list[list[int]], list[list[int]]]] = {
        "all_gather": ([[part]], [[whole]]),
        "reduce_scatter": ([[whole]], [[part]]),
        "gather": ([[part]], every if is_root else []),
        "scatter": (every if is_root else [], [[part]]),
    }
    inputs, outputs = sizes.get(kind, ([[whole]], [[whole]]))
    return {
        **_times(entry, record),
        "collective_seq_id": entry["sequence"] + 1, "p2p_seq_id": 0, "is_p2p": False,
        "profiling_name": f"nccl:{_NAMES[kind]}",
        "input_sizes": inputs, "input_dtypes": [type_name] * len(inputs),
        "output_sizes": outputs, "output_dtypes": [type_name] * len(outputs),
    }  # fmt: skip


def _ends(entry: dict[str, Any], record: dict[str, Any]) -> tuple[int, int]:
    """The world ranks of a message's sender and receiver."""
    own, peer = (record["world_ranks"][place] for place in (record["rank"], entry["peer"]))
    return (own, peer) if entry["direction"] == "send" else (peer, own)


def _channel(entry: dict[str, Any], group: str, sender: int, receiver: int) -> str:
    """The name of the group of all messages that are numbered together."""
    tag = f" tag {entry['message_tag']}" if entry.get("message_tag") else ""
    memory = "" if entry.get("path", "host") == "host" else " on streams"
    return f"{group} {sender}->{receiver}{tag}{memory}"


def _message(entry: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    # PyTorch numbers the members of a group by their world ranks.
    ends = _ends(entry, record)
    sender, receiver = (sorted(ends).index(one) for one in ends)
    is_send = entry["direction"] == "send"
    sizes = [[entry["bytes"]]]
    return {
        **_times(entry, record),
        "collective_seq_id": entry["sequence"] + 1, "p2p_seq_id": entry["sequence"] + 1,
        "is_p2p": True,
        "profiling_name": f"nccl:send {sender}->{receiver}" if is_send else
                          f"nccl:recv {receiver}<-{sender}",
        "input_sizes": sizes, "input_dtypes": ["Byte"],
        "output_sizes": sizes, "output_dtypes": ["Byte"],
    }  # fmt: skip
