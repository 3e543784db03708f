"""Times GOAL schedules whose messages have no order: an all-to-all, and many between two ranks.

    bench/commands/goal_speed.py [--ranks N] [--messages N] [--json FILE]

CPU seconds of one core, the least of five runs. An event is counted as in other simulators, three
a message: sent, arrived, received. The two ranks receive in the reverse order of the tags that are
sent, so that each message waits until all later ones have been looked at.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from unisono import _unisono as native

TURNS = 5


def all_to_all(ranks: int) -> str:
    """Each rank sends 4 KiB to each other and receives as much; nothing requires anything."""
    lines = [f"num_ranks {ranks}"]
    for rank in range(ranks):
        lines.append(f"rank {rank} {{")
        others = [(rank + step) % ranks for step in range(1, ranks)]
        lines += [f"s{other}: send 4096b to {other} tag {rank}" for other in others]
        lines += [f"r{other}: recv 4096b from {other} tag {other}" for other in others]
        lines.append("}")
    return "\n".join(lines) + "\n"


def between_two(messages: int) -> str:
    """Rank 0 sends messages with one tag each to rank 1, which receives them the last first."""
    sends = [f"s{tag}: send 64b to 1 tag {tag}" for tag in range(messages)]
    receives = [f"r{tag}: recv 64b from 0 tag {tag}" for tag in reversed(range(messages))]
    return "\n".join(["num_ranks 2", "rank 0 {", *sends, "}", "rank 1 {", *receives, "}"]) + "\n"


def measure(name: str, text: str, messages: int) -> dict[str, Any]:
    """The least time of a schedule, reading apart from simulating."""
    begin = time.process_time()
    schedule = native.GoalSchedule.read(text.encode())
    read_seconds = time.process_time() - begin
    machine = native.Machine.log_gops(
        schedule.ranks, latency_ns=2500, overhead_ns=1500, gap_ns=1000, gap_ns_per_byte=6,
        overhead_ns_per_byte=0,
    )  # fmt: skip
    seconds = []
    for _ in range(TURNS):
        begin = time.process_time()
        native.run_goal(machine, schedule, rendezvous_bytes=1 << 30)
        seconds.append(time.process_time() - begin)
    least = min(seconds)
    return {
        "schedule": name,
        "ranks": schedule.ranks,
        "messages": messages,
        "read_seconds": read_seconds,
        "seconds": least,
        "events_per_second": 3 * messages / least,
    }


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=512, help="of the all-to-all; default 512")
    parser.add_argument("--messages", type=int, default=100_000, help="between the two ranks")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.ranks < 2 or options.messages < 1:
        parser.error("--ranks must be 2 or more, and --messages 1 or more")
    pairs = options.ranks * (options.ranks - 1)
    rows = [
        measure("all-to-all", all_to_all(options.ranks), pairs),
        measure("between two ranks", between_two(options.messages), options.messages),
    ]
    print(
        f"{'schedule':<20} {'ranks':>5} {'messages':>9} "
        f"{'read, s':>8} {'run, s':>8} {'Mevent/s':>9}"
    )
    for row in rows:
        print(
            f"{row['schedule']:<20} {row['ranks']:5} {row['messages']:9} "
            f"{row['read_seconds']:8.2f} {row['seconds']:8.3f} "
            f"{row['events_per_second'] / 1e6:9.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
