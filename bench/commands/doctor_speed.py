"""How long `unisono doctor` takes for dumps of large jobs, and how much memory.

    python bench/commands/doctor_speed.py FORMAT RANKS [--entries 2000]
                                          [--folder FOLDER | --keep FOLDER]

Writes dumps of RANKS ranks in groups of eight and of all, each with so many calls, the last of
which one rank has not made; times the command on them, checks its verdict, and prints one line.
FORMAT is `record` (Unisono's, packed as in its files), `words` (the same, not packed), or
`flight_recorder` (pickles, as PyTorch writes them for NCCL).
"""

import argparse
import base64
import contextlib
import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

STEP_NS = 1_000_000
START_NS = 1_780_000_000 * 10**9
TIMEOUT_NS = 600 * 10**9
GROUP = 8


def calls_of(rank: int, ranks: int, entries: int) -> list[tuple[str, int, bool]]:
    """Group, number and whether it has ended; rank ranks / 2 lacks the last one."""
    made = []
    for place in range(entries):
        name = "world" if place % 4 == 3 else f"tp{rank // GROUP}"
        number = place // 4 if name == "world" else place - place // 4 - (place % 4 == 3)
        made.append((name, number, place < entries - 1))
    return made[: -1 if rank == ranks // 2 else None]


def members_of(name: str, ranks: int) -> list[int]:
    first = 0 if name == "world" else GROUP * int(name[2:])
    return list(range(ranks) if name == "world" else range(first, min(first + GROUP, ranks)))


def column(values: list[int]) -> dict[str, object]:
    """As docs/reference/record.md says, "Packed entries"."""
    distances = np.array(values, np.int64) - min(values)
    width = next(one for one in (1, 2, 4, 8) if distances.max() < 1 << 8 * one)
    data = base64.b64encode(distances.astype(f"<u{width}").tobytes()).decode()
    return {"least": min(values), "width": width, "data": data}


def packed(entries: list[dict[str, Any]]) -> dict[str, object]:
    names: list[str] = []
    columns = {}
    for name in entries[0]:
        values = [one[name] for one in entries]
        if isinstance(values[0], str):
            names += [one for one in dict.fromkeys(values) if one not in names]
            values = [names.index(one) for one in values]
        columns[name] = column(values)
    del columns["state"]
    columns["launched_ns"] = column([0] * len(entries))
    for name in ("started_ns", "ended_ns"):
        columns[name] = column([one[name] - one["scheduled_ns"] + 1 for one in entries])
    return {"entries": len(entries), "names": names, "columns": columns}


def write_packed(folder: Path, rank: int, ranks: int, entries: int) -> None:
    write_records(folder, rank, ranks, entries, in_words=64)


def write_records(
    folder: Path, rank: int, ranks: int, entries: int, in_words: int = 1 << 30
) -> None:
    """One file for each group of the rank."""
    files: dict[str, list[dict[str, Any]]] = {}
    for place, (name, number, has_ended) in enumerate(calls_of(rank, ranks, entries)):
        begun = 1 + place * STEP_NS
        entry = {
            "sequence": number, "collective": "all_reduce", "type": "float32", "operation": "sum",
            "root": 0, "bytes": 1 << 20, "plan": "ring", "protocol": "simple", "path": "host",
            "state": "ended" if has_ended else "failed", "scheduled_ns": begun,
            "started_ns": begun + 1000, "ended_ns": begun + STEP_NS // 2,
        }  # fmt: skip
        files.setdefault(name, []).append(entry)
    for name, collectives in files.items():
        members = members_of(name, ranks)
        document = {
            "format": "unisono-record", "version": 2, "cause": "failure", "communicator": name,
            "group": name, "epoch": 0, "rank": members.index(rank), "ranks": len(members),
            "world_ranks": members, "node": "a", "process": rank + 1, "watched": True,
            "clock": {"monotonic_ns": 1, "wall_ns": START_NS},
            "failure": {"kind": "timeout", "rank": -1, "time_ns": 1, "message": "timeout"},
            "collectives": collectives[-in_words:], "messages": [],
        }  # fmt: skip
        if old := collectives[:-in_words]:
            document["packed_collectives"] = packed(old)
        (folder / f"unisono-{name}-{rank}.json").write_text(json.dumps(document))


def write_flight_recorder(folder: Path, rank: int, ranks: int, entries: int) -> None:
    made = []
    for place, (name, number, has_ended) in enumerate(calls_of(rank, ranks, entries)):
        # The last call had been under way for its timeout when the dump was made.
        created = START_NS + place * STEP_NS - (0 if has_ended else TIMEOUT_NS)
        made.append({
            "record_id": place, "pg_id": 0, "process_group": (name, "undefined"),
            "collective_seq_id": number + 1, "p2p_seq_id": 0, "op_id": place,
            "profiling_name": "nccl:all_reduce", "is_p2p": False, "input_sizes": [[1 << 18]],
            "input_dtypes": ["Float"], "output_sizes": [[1 << 18]], "output_dtypes": ["Float"],
            "time_created_ns": created, "timeout_ms": TIMEOUT_NS // 10**6,
            "state": "completed" if has_ended else "started", "retired": has_ended,
            "time_discovered_started_ns": created,
            "time_discovered_completed_ns": created + STEP_NS // 2 if has_ended else None,
            "frames": [{"name": "step", "filename": "train.py", "line": 100 + place % 7}] * 8,
        })  # fmt: skip
    names = ("world", f"tp{rank // GROUP}")
    groups = {name: {"name": name, "desc": "undefined", "ranks": str(members_of(name, ranks))}
              for name in names}  # fmt: skip
    document = {"version": "2.10", "entries": made, "pg_config": groups}
    (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document))


WRITERS = {"record": write_packed, "words": write_records, "flight_recorder": write_flight_recorder}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("format", choices=list(WRITERS))
    parser.add_argument("ranks", type=int)
    parser.add_argument("--entries", type=int, default=2000)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--folder", type=Path, help="a file system with room; else the default")
    where.add_argument("--keep", type=Path, help="keeps the dumps here, and uses those of before")
    chosen = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = chosen.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(dir=chosen.folder))
        )
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.iterdir()):
            for rank in range(chosen.ranks):
                WRITERS[chosen.format](folder, rank, chosen.ranks, chosen.entries)
        size = sum(path.stat().st_size for path in folder.iterdir())
        begun = time.monotonic()
        run = subprocess.run(
            [sys.executable, "-m", "unisono", "doctor", str(folder), "--json", "-"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - begun
    if run.returncode != 3:
        sys.exit(f"the doctor ended with {run.returncode}: {run.stderr[-2000:]}")
    found = json.loads(run.stdout)
    if found["ranks"] != [f"rank {chosen.ranks // 2}"]:
        sys.exit(f"it named {found['ranks']}: {found['paragraph']}")
    # Of the process that read the most, or of the one that judged.
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    memory, busy = used.ru_maxrss / 2**20, used.ru_utime + used.ru_stime
    print(f"{chosen.format:<15} {chosen.ranks:>5} ranks x {chosen.entries} calls, "
          f"{size / 2**20:>6.0f} MiB: {seconds:6.2f} s, {busy:6.2f} s of processors, "
          f"{memory:4.1f} GiB")  # fmt: skip


if __name__ == "__main__":
    main()
