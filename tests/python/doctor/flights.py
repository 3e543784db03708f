"""Dumps of Flight Recorder that are written here call by call, with the members of NCCL's."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_NS = 1_780_000_000 * 10**9
TIMEOUT_MS = 600_000
TAKEN_S = 700.0


@dataclass(frozen=True)
class Made:
    """A collective; `ended_s` is 0 while it is under way."""

    group: str
    number: int
    created_s: float
    ended_s: float = 0.0
    kind: str = "all_reduce"
    elements: int = 64


@dataclass
class Flight:
    """What a rank's dump holds, and when it was written, by its clock."""

    calls: list[Made]
    taken_s: float = TAKEN_S
    ahead_s: float = 0.0
    changes: dict[str, Any] = field(default_factory=dict)


def steps(group: str, count: int, first: int = 1) -> list[Made]:
    """Calls that have ended, one a second."""
    return [Made(group, number, float(number), number + 0.01)
            for number in range(first, first + count)]  # fmt: skip


def dump(groups: dict[str, list[int]], flight: Flight) -> dict[str, Any]:
    def ns(seconds: float) -> int | None:
        return START_NS + round((seconds + flight.ahead_s) * 1e9) if seconds else None

    names = list(groups)
    entries = [
        {
            "record_id": place, "pg_id": names.index(made.group),
            "process_group": (made.group, "undefined"), "collective_seq_id": made.number,
            "p2p_seq_id": 0, "op_id": made.number, "profiling_name": f"nccl:{made.kind}",
            "time_created_ns": ns(made.created_s), "is_p2p": False,
            "input_sizes": [[made.elements]], "input_dtypes": ["Float"],
            "output_sizes": [[made.elements]], "output_dtypes": ["Float"],
            "state": "completed" if made.ended_s else "started",
            "time_discovered_started_ns": ns(made.created_s),
            "time_discovered_completed_ns": ns(made.ended_s), "retired": bool(made.ended_s),
            "timeout_ms": TIMEOUT_MS,
        } | flight.changes
        for place, made in enumerate(flight.calls)
    ]  # fmt: skip
    config = {name: {"name": name, "desc": "undefined", "ranks": str(members)}
              for name, members in groups.items()}  # fmt: skip
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}


def write_flights(folder: Path, groups: dict[str, list[int]], flights: list[Flight]) -> Path:
    """One file a rank, with the time of its dump."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, flight in enumerate(flights):
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(dump(groups, flight)))
        ns = START_NS + round((flight.taken_s + flight.ahead_s) * 1e9)
        os.utime(path, ns=(ns, ns))
    return folder
