"""Holds the simulator's LogGOPS on GOAL files against LogGOPSim's.

    studies/simulator/goal_compare.py /path/to/LogGOPSim [--json FILE]

LogGOPSim (Hoefler et al., github.com/spcl/LogGOPSim) is built from its own sources, which are no
part of this project. Files are generated: collectives of this library, a binomial tree, and random
graphs, with a tag for each message. If LogGOPSim's folder has `txt2bin`, its
binary of each text must equal ours byte for byte.
Exits with 1 if a time differs by more than 0.1 %.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unisono import _unisono as native

MOST_APART = 1e-3
# L, o, g, G, O in ns, S in bytes: whole numbers, as LogGOPSim takes them.
PARAMETERS = [
    {"L": 2500, "o": 1500, "g": 1000, "G": 6, "O": 0, "S": 65535},  # its defaults
    {"L": 3700, "o": 200, "g": 5, "G": 1, "O": 2, "S": 1 << 30},
    {"L": 1000, "o": 300, "g": 700, "G": 3, "O": 1, "S": 4096},
]
COLLECTIVES = [
    ("ring_all_reduce", 16), ("ring_all_reduce", 256), ("recursive_doubling_all_reduce", 64),
    ("rabenseifner_all_reduce", 61), ("tree_all_reduce", 100), ("bruck_all_gather", 48),
    ("direct_all_to_all", 32), ("binomial_broadcast", 64),
]  # fmt: skip


def machine(ranks: int, p: dict[str, int]) -> native.Machine:
    return native.Machine.log_gops(
        ranks, latency_ns=p["L"], overhead_ns=p["o"], gap_ns=p["g"], gap_ns_per_byte=p["G"],
        overhead_ns_per_byte=p["O"],
    )  # fmt: skip


def on_one_cpu(text: str) -> str:
    """LogGOPSim begins an operation of another cpu before what it requires has ended."""
    return re.sub(r" cpu \d+", "", text)


def collective(plan: str, ranks: int, count: int) -> str:
    schedule = native.goal_of_collective(
        machine(ranks, PARAMETERS[0]), native.find_algorithm(plan), ranks=ranks, count=count
    )
    return on_one_cpu(schedule.to_text())


def binomial_tree(ranks: int, size: int) -> str:
    lines = [f"num_ranks {ranks}"]
    for rank in range(ranks):
        lines.append(f"rank {rank} {{")
        below = rank.bit_length()
        if rank > 0:
            lines.append(f"r: recv {size}b from {rank - (1 << (below - 1))} tag {rank}")
        for i in range(below, 32):
            if rank + (1 << i) >= ranks:
                break
            lines.append(f"s{i}: send {size}b to {rank + (1 << i)} tag {rank + (1 << i)}")
            if rank > 0:
                lines.append(f"s{i} requires r")
        lines.append("}")
    return "\n".join(lines) + "\n"


def random_graph(seed: int, ranks: int, messages: int, largest: int) -> str:
    """Messages between random ranks in one global order, which no requirement contradicts."""
    rng = random.Random(seed)
    bodies: list[list[str]] = [[] for _ in range(ranks)]
    labels: list[list[str]] = [[] for _ in range(ranks)]

    def add(rank: int, what: str) -> None:
        label = f"l{len(labels[rank])}"
        bodies[rank].append(f"{label}: {what}")
        for other in rng.sample(labels[rank], min(len(labels[rank]), rng.randrange(3))):
            bodies[rank].append(f"{label} {rng.choice(['requires'] * 4 + ['irequires'])} {other}")
        labels[rank].append(label)

    for tag in range(messages):
        sender, receiver = rng.sample(range(ranks), 2)
        size = int(largest ** rng.random())
        add(sender, f"send {size}b to {receiver} tag {tag}")
        add(receiver, f"recv {size}b from {sender} tag {tag}")
        if rng.random() < 0.5:
            add(rng.choice((sender, receiver)), f"calc {rng.randrange(20000)}")
    ranks_text = [f"rank {i} {{\n" + "\n".join(body) + "\n}" for i, body in enumerate(bodies)]
    return f"num_ranks {ranks}\n" + "\n".join(ranks_text) + "\n"


def cases() -> Iterator[tuple[str, str, bool]]:
    """Name, text, and whether all sends must be eager: an exchange of large ones deadlocks."""
    for plan, ranks in COLLECTIVES:
        try:
            yield f"{plan}, {ranks} ranks", collective(plan, ranks, 1 << 14), True
        except Exception as error:
            raise SystemExit(f"{plan}: {error}") from None
    yield "binomial tree, 100 ranks", binomial_tree(100, 5000), False
    for seed in range(8):
        yield f"random graph {seed}, 12 ranks", random_graph(seed, 12, 400, 1 << 17), False
    yield "random graph, 200 ranks", random_graph(99, 200, 20000, 1 << 14), False


def their_time_ns(program: Path, binary: Path, p: dict[str, int]) -> tuple[float, float]:
    """Simulated ns, and the seconds that it took."""
    options = [f"-{name}{value}" for name, value in p.items()]
    start = time.perf_counter()
    run = subprocess.run(
        [program, "-f", binary, "-b", *options], capture_output=True, text=True, timeout=600
    )
    seconds = time.perf_counter() - start
    found = re.search(r"Maximum finishing time at host \d+: (\d+)", run.stdout)
    if found is None:
        raise SystemExit(f"LogGOPSim says:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return float(found[1]), seconds


def compare(program: Path, folder: Path) -> list[dict[str, Any]]:
    rows = []
    for name, text, is_eager in cases():
        schedule = native.GoalSchedule.read(text.encode())
        binary = folder / "case.bin"
        binary.write_bytes(schedule.to_binary())
        same = None
        converter = program.with_name("txt2bin")
        if converter.exists():
            (folder / "case.goal").write_text(text)
            theirs = folder / "theirs.bin"
            subprocess.run(
                [converter, "-i", folder / "case.goal", "-o", theirs], check=True,
                capture_output=True, timeout=600,
            )  # fmt: skip
            same = theirs.read_bytes() == binary.read_bytes()
        for parameters in PARAMETERS:
            p = parameters | ({"S": 1 << 30} if is_eager else {})
            their_ns, their_seconds = their_time_ns(program, binary, p)
            start = time.perf_counter()
            ours = native.run_goal(machine(schedule.ranks, p), schedule, rendezvous_bytes=p["S"])
            seconds = time.perf_counter() - start
            our_ns = ours.time_us * 1000
            rows.append(
                {
                    "case": name,
                    "parameters": " ".join(f"{key}={value}" for key, value in p.items()),
                    "operations": schedule.operations,
                    "loggopsim_ns": their_ns,
                    "unisono_ns": our_ns,
                    "apart": abs(our_ns - their_ns) / their_ns,
                    "loggopsim_seconds": their_seconds,
                    "unisono_seconds": seconds,
                    "same_binary": same,
                }
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loggopsim", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = compare(arguments.loggopsim, Path(folder))
    print(f"{'case':40} {'parameters':44} {'LogGOPSim ns':>14} {'ours ns':>14} {'apart':>9} binary")
    for row in rows:
        binary = {True: "same", False: "DIFFERS", None: "-"}[row["same_binary"]]
        print(
            f"{row['case']:40} {row['parameters']:44} {row['loggopsim_ns']:14.0f} "
            f"{row['unisono_ns']:14.0f} {row['apart']:9.5%} {binary}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    worst = max(rows, key=lambda row: row["apart"])
    print(f"worst: {worst['apart']:.5%} ({worst['case']})")
    return 1 if worst["apart"] > MOST_APART or any(r["same_binary"] is False for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
