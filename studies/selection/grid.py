"""How often the selection table picks a winner on a grid of sizes and shapes.

    python studies/selection/grid.py measure FILE [--shapes 8x1,4x2] [--sizes 8,4096]
                                                  [--seconds 120]
    python studies/selection/grid.py check FILE

The grid: 2 to 16 ranks on 1 to 4 nodes, 8 B to 2 MiB, over shared memory, loopback and, with
--delay, far nodes; every algorithm by every protocol that serves. The plans of a point take turns
(rank_of_grid.py), and all of that a second time on fresh ranks; a plan's time is the mean of the
two medians. A choice is right when its time is at most 10 % above the best of its point.
`measure` keeps the shapes that FILE has: it goes on where it was stopped, and begins no shape for
which no time seems to be left. studies/selection/fit.py finds the parameters that fit FILE best.

`check` also says what two measurements of one table differ by: how often what is best in the first
of the two is within 10 % of the best in the second. No table can be right more often than that.
"""

import argparse
import json
import math
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from unisono import plans
from unisono.bench.cases import Case, Request, list_cases, write_cases
from unisono.bench.machine import describe_machine, oversubscription
from unisono.launcher import launch

# Those that say most first.
SHAPES = "8x1,4x1,16x1,4x2,8x2,2x1,8x4,2x2,16x4,6x1,6x2,3x1"
SIZES = "8,512,8192,65536,524288,2097152"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
TOLERANCE = 1.10
PASSES = 2
ROUNDS = 6
# Of a turn: a row of calls long enough that the barrier before it does not count. Where ranks share
# cores, what counts besides is how soon they wake up.
TURN_SECONDS = 0.0015
OVERSUBSCRIBED_TURN_SECONDS = 0.03
WORKER = Path(__file__).with_name("rank_of_grid.py")

Point = tuple[int, int, str, int]
Plan = tuple[str, str]


def measure(file: Path, shapes: list[tuple[int, int]], sizes: list[int], seconds: float,
            delay: str) -> None:  # fmt: skip
    """Writes the rows after each shape: what is there can be used when it is stopped."""
    rows: list[dict[str, Any]] = json.loads(file.read_text())["rows"] if file.exists() else []
    there = {(row["ranks"], row["nodes"]) for row in rows}
    written = {"machine": describe_machine(), "cores": os.cpu_count(), "delay": delay}
    started, longest = time.monotonic(), 0.0
    for ranks, nodes in shapes:
        if (ranks, nodes) in there:
            continue
        began = time.monotonic()
        if began - started + longest > seconds:
            print(f"no time is left for {ranks} ranks, {nodes} nodes", file=sys.stderr)
            continue
        points = points_to_measure(ranks, nodes, sizes)
        done = [run(points, ranks, nodes, delay if nodes > 1 else "") for _ in range(PASSES)]
        for index, twins_of_case in enumerate(points):
            for place, twins in enumerate(twins_of_case.values()):
                turns = [times[index][place] for times in done]
                passes = [statistics.median(took) for took in turns]
                rows += [
                    {
                        "ranks": ranks, "nodes": nodes, "collective": twin.collective,
                        "bytes": twin.bytes, "algorithm": twin.algorithm,
                        "protocol": twin.protocol, "time_us": statistics.geometric_mean(passes),
                        "passes_us": passes, "turns": [len(took) for took in turns],
                    }
                    for twin in twins
                ]  # fmt: skip
        longest = max(longest, time.monotonic() - began)
        print(
            f"{ranks} ranks, {nodes} nodes: {len(rows)} rows so far, {time.monotonic() - began:.1f}"
            f" s for {len(points)} points of {sum(map(len, points))} plans", file=sys.stderr,
        )  # fmt: skip
        file.write_text(json.dumps(written | {"rows": rows}, indent=0) + "\n")


def points_to_measure(ranks: int, nodes: int, sizes: list[int]) -> list[dict[Case, list[Case]]]:
    """The points of a shape: their cases, each with all that have the same plan."""
    points = []
    for collective in COLLECTIVES:
        for size in sizes:
            request = Request([collective], ranks, nodes, [size], ["all"], ["all"])
            points.append(twins_of(list_cases(request), nodes))
    return points


def twins_of(cases: list[Case], nodes: int) -> dict[Case, list[Case]]:
    """Cases whose plans are the same but for their names, by the first of them.

    On few ranks many algorithms are one; timed apart, the luckiest would seem to be the best.
    """
    by_plan: dict[tuple[str, int, str], list[Case]] = defaultdict(list)
    for case in cases:
        text = plan_text(f"{case.algorithm}_{case.collective}", case.ranks, nodes, case.protocol)
        by_plan[case.collective, case.count, text].append(case)
    return {twins[0]: twins for twins in by_plan.values()}


@cache
def plan_text(name: str, ranks: int, nodes: int, protocol: str) -> str:
    """A plan as text, but for its name."""
    entry = plans.find_algorithm(name)
    return entry.plan(plans.Placement(ranks, nodes), protocol=protocol).to_text().partition("\n")[2]


def run(
    points: list[dict[Case, list[Case]]], ranks: int, nodes: int, delay: str
) -> list[list[list[float]]]:
    """By point and case: the times of its turns, in us, on fresh ranks."""
    is_oversubscribed = oversubscription(ranks) > 1
    job = {
        "points": [write_cases(list(point)) for point in points],
        "chosen": [index_of_choice(point, nodes) for point in points],
        "seed": secrets.randbits(32),
        "rounds": ROUNDS,
        "turn_seconds": OVERSUBSCRIBED_TURN_SECONDS if is_oversubscribed else TURN_SECONDS,
    }
    with tempfile.TemporaryDirectory(prefix="unisono-grid-") as folder:
        (Path(folder) / "job.json").write_text(json.dumps(job))
        environment = {"UNISONO_DELAY": delay} if delay else {}
        outcome = launch([str(WORKER), folder], ranks, nodes=nodes, environment=environment,
                         prefix_output=False)  # fmt: skip
        if not outcome.ok:
            sys.exit(f"{ranks} ranks on {nodes} nodes: {outcome.message}")
        lines = (Path(folder) / "times").read_text().splitlines()
    return [json.loads(line) for line in lines]


def index_of_choice(point: dict[Case, list[Case]], nodes: int) -> int:
    """Which of a point's cases the table takes."""
    some = next(iter(point))
    placement = plans.Placement(some.ranks, nodes)
    row = plans.choose(some.collective, some.bytes, placement, oversubscription(some.ranks))
    chosen = (row.algorithm, row.protocol)
    for index, twins in enumerate(point.values()):
        if chosen in [(twin.algorithm, twin.protocol) for twin in twins]:
            return index
    raise SystemExit(f"the table takes {chosen} for {some}, which was not listed")


@dataclass
class Grid:
    """A file's times in us, by ranks, nodes, collective and bytes, of algorithm and protocol.

    Attributes:
        cores: Of the machine where they were measured.
        times: Medians of all turns.
        passes: Medians of each pass.
    """

    cores: int
    times: dict[Point, dict[Plan, float]]
    passes: dict[Point, dict[Plan, list[float]]]

    def oversubscription(self, point: Point) -> float:
        """Ranks for each core there."""
        return max(point[0] / self.cores, 1.0)


def read(file: Path) -> Grid:
    """What `measure` wrote."""
    stored = json.loads(file.read_text())
    grid = Grid(stored["cores"], defaultdict(dict), defaultdict(dict))
    for row in stored["rows"]:
        point = (row["ranks"], row["nodes"], row["collective"], row["bytes"])
        plan = (row["algorithm"], row["protocol"])
        grid.times[point][plan] = row["time_us"]
        grid.passes[point][plan] = row["passes_us"]
    return grid


def check(file: Path) -> None:
    """Prints the share of right choices, and the others, the worst first."""
    wrong, right_of, floor_of = [], defaultdict(list), defaultdict(list)
    grid = read(file)
    for point, times in grid.times.items():
        ranks, nodes, collective, size = point
        placement = plans.Placement(ranks, nodes)
        chosen = plans.choose(collective, size, placement, grid.oversubscription(point))
        took = times.get((chosen.algorithm, chosen.protocol), math.inf)
        best = min(times, key=lambda plan: times[plan])
        over = took / times[best]
        right_of[ranks, nodes].append(over <= TOLERANCE)
        floor_of[ranks, nodes] += [over <= TOLERANCE for over in passes_apart(grid.passes[point])]
        if over > TOLERANCE:
            wrong.append(
                (over, f"{collective} of {size} B on {ranks} ranks, {nodes} nodes:"
                 f" {chosen.algorithm} {chosen.protocol} {took:.1f} us,"
                 f" best {best[0]} {best[1]} {times[best]:.1f} us")
            )  # fmt: skip
    for over, text in sorted(wrong, reverse=True):
        print(f"{over:6.2f} x  {text}")
    for (ranks, nodes), right in right_of.items():
        print(
            f"{ranks} ranks, {nodes} nodes: {sum(right)} of {len(right)}; "
            f"one measurement's best in another: {statistics.mean(floor_of[ranks, nodes]):.1%}"
        )
    print(
        f"the table: {len(grid.times) - len(wrong)} of {len(grid.times)} choices are within 10 % of"
        f" the best: {1 - len(wrong) / len(grid.times):.1%}; one measurement's best in another: "
        f"{statistics.mean(chain(*floor_of.values())):.1%}"
    )


def passes_apart(times: dict[Plan, list[float]]) -> list[float]:
    """How far above the best of a pass that is which was best in the other."""
    out = []
    for one, other in ((0, 1), (1, 0)):
        found = min(times.values(), key=lambda took: took[one])
        out.append(found[other] / min(took[other] for took in times.values()))
    return out


def read_shapes(text: str) -> list[tuple[int, int]]:
    """Of "8x1,4x2": ranks and nodes."""
    shapes = []
    for shape in text.split(","):
        ranks, _, nodes = shape.partition("x")
        shapes.append((int(ranks), int(nodes)))
    return shapes


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("measure", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--shapes", default=SHAPES, help="ranks x nodes, those that matter first")
    parser.add_argument("--sizes", default=SIZES, help="bytes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="to measure for")
    parser.add_argument("--delay", default="", help="between nodes, as 1ms")
    arguments = parser.parse_args()
    if arguments.action == "measure":
        sizes = [int(size) for size in arguments.sizes.split(",")]
        measure(arguments.file, read_shapes(arguments.shapes), sizes, arguments.seconds,
                arguments.delay)  # fmt: skip
    check(arguments.file)


if __name__ == "__main__":
    main()
