"""Memory of communicators before large messages are used, measured and as they report it.

    unisono run -n 64 bench/cpu/memory.py [--communicators 8] [--json FILE]

Every rank makes that many communicators of all ranks and makes every small call on each. The table
has, for the rank that holds most, what the process took from the machine (PSS of
/proc/self/smaps_rollup: private pages, and each shared page divided by who maps it) and what
`Communicator.memory()` reports.
"""

import argparse
import json
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import unisono

MIB = 1 << 20
LIMIT_BYTES = 64 * MIB
# Elements of float32: 8 bytes and 4 KiB of one rank.
SMALL = (2, 1024)


def rollup() -> dict[str, int]:
    """The process's memory in bytes, by the names of /proc/self/smaps_rollup."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in map(str.split, lines)}


def use(comm: unisono.Communicator) -> None:
    """Every collective, small."""
    for count in SMALL:
        mine = np.ones(count, np.float32)
        all_ranks = np.ones(count * comm.size, np.float32)
        comm.all_reduce(mine)
        comm.all_gather(mine)
        comm.reduce_scatter(all_ranks)
        comm.broadcast(mine)
        comm.all_to_all(all_ranks)
        comm.barrier()


def use_all(communicators: list[unisono.Communicator]) -> None:
    """Each of them, in turn."""
    for comm in communicators:
        use(comm)


def split_all(comm: unisono.Communicator, number: int) -> list[unisono.Communicator]:
    """So many communicators of all ranks."""
    made = (comm.split(0, comm.rank) for _ in range(number))
    return [each for each in made if each is not None]


def highest(comm: unisono.Communicator, value: int) -> int:
    """The largest of all ranks' values."""
    return int(comm.all_reduce(np.array([value], np.int64), op="max")[0])


def measure(comm: unisono.Communicator, communicators: int) -> list[dict[str, Any]]:
    """One row a stage: what the largest process holds, and what its communicators report."""
    rows: list[dict[str, Any]] = []
    made = [comm]

    def row(stage: str) -> None:
        comm.barrier()
        measured = rollup()
        reports = [one.memory() for one in made]
        connections = [each for report in reports for each in report["connections"]]
        numbers = {
            "pss_bytes": measured["Pss"],
            "rss_bytes": measured["Rss"],
            "private_bytes": measured["Private_Clean"] + measured["Private_Dirty"],
            "reported_bytes": sum(report["total_bytes"] for report in reports),
            "plans_bytes": sum(report["plans_bytes"] for report in reports),
            "record_bytes": sum(report["record_bytes"] for report in reports),
            "connections": len(connections),
            "connections_bytes": sum(each["bytes"] for each in connections),
        }
        numbers = {name: highest(comm, value) for name, value in numbers.items()}
        rows.append({"stage": stage, "communicators": len(made), **numbers})

    stages: list[tuple[str, Callable[[], object]]] = [
        ("joined", lambda: None),
        ("first communicator used", lambda: use(comm)),
        ("others made", lambda: made.extend(split_all(comm, communicators - 1))),
        ("others used", lambda: use_all(made[1:])),
    ]
    for stage, act in stages:
        act()
        row(stage)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows for a person, in MiB."""
    lines = [
        f"{'':24} {'comms':>6} {'PSS MiB':>9} {'private':>9} {'grown':>9} {'reported':>9} "
        f"{'conns':>6} {'KiB/conn':>9}"
    ]
    for row in rows:
        grown = row["pss_bytes"] - rows[0]["pss_bytes"]
        each = row["connections_bytes"] / max(row["connections"], 1) / 1024
        lines.append(
            f"{row['stage']:24} {row['communicators']:6} {row['pss_bytes'] / MIB:9.1f} "
            f"{row['private_bytes'] / MIB:9.1f} {grown / MIB:9.1f} "
            f"{row['reported_bytes'] / MIB:9.1f} {row['connections']:6} {each:9.1f}"
        )
    return "\n".join(lines)


def main() -> int:
    """Measures, and prints on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--communicators", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with unisono.init() as comm:
        rows = measure(comm, options.communicators)
        if comm.rank == 0:
            holds = rows[-1]["pss_bytes"] < LIMIT_BYTES
            print(f"{comm.size} ranks, {comm.nodes} nodes, the largest process")
            print(table(rows))
            print(f"{'below' if holds else 'ABOVE'} {LIMIT_BYTES // MIB} MiB each")
            if options.json:
                result = {
                    "date": date.today().isoformat(),
                    "ranks": comm.size,
                    "nodes": comm.nodes,
                    "rows": rows,
                }
                options.json.write_text(json.dumps(result, indent=1) + "\n")
        comm.barrier()
    return 0


if __name__ == "__main__":
    sys.exit(main())
