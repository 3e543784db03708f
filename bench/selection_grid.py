"""How often the selection table picks a winner, and the cost model that would pick most.

    python bench/selection_grid.py measure FILE [--quick]    times every plan on a grid
    python bench/selection_grid.py check FILE                how often the table is right
    python bench/selection_grid.py fit FILE [--write]        the parameters that fit the grid best
    python bench/selection_grid.py refit FILE                measure --quick, check, fit --write

The grid: 2 to 8 ranks on 1 to 4 nodes, 8 B to 16 MiB, over shared memory, loopback and, with
--delay, far nodes; every algorithm by every protocol that serves. Every plan is timed briefly, and
again in the other order; those within twice the best, and what the table chooses, then take turns,
point by point, in many short rounds, so that what the machine does meanwhile touches all alike;
medians count. A choice is right when its time is at most 10 % above the best of its point.
`measure` keeps the shapes that FILE has: it goes on where it was stopped.

`fit` searches from the parameters that stand in src/comm/cost_model.cc, one at a time, draws
nothing at random, and prints rows for that file or, with --write, puts them there; the extension
has them when it is built anew (tools/setup).
"""

import argparse
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from unisono import plans
from unisono.bench import driver
from unisono.bench.cases import Case, Request, list_cases, sizes_between
from unisono.bench.machine import crowding

SHAPES = ((2, 1), (3, 1), (4, 1), (8, 1), (2, 2), (4, 2), (6, 2), (6, 3), (8, 2), (8, 4))
QUICK_SHAPES = ((2, 1), (4, 1), (2, 2), (4, 2), (8, 4))
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]
PROTOCOLS = ("simple", "ll", "ll128")
TOLERANCE = 1.10
# Of the best of a point's first look: plans that are timed again.
CONTENDERS = 2.0
# Of a case's turn. In a few ms small calls would be timed one by one, each after a barrier, and
# what counts would be how soon ranks that share cores wake up.
CASE_SECONDS = 0.03
FACTORS = (0.4, 0.6, 0.8, 0.9, 0.97, 1.03, 1.1, 1.25, 1.6, 2.5)
ROUNDS = 12
# Where the parameters stand, one table.
MODEL = Path(__file__).resolve().parents[1] / "src" / "comm" / "cost_model.cc"
_NUMBER = r"[-+0-9.e]+"

Point = tuple[int, int, str, int]


def measure(file: Path, quick: bool, delay: str) -> None:
    """Writes the rows, after each shape: what is there can be used when it is stopped."""
    rows: list[dict[str, Any]] = json.loads(file.read_text())["rows"] if file.exists() else []
    there = {(row["ranks"], row["nodes"]) for row in rows}
    for ranks, nodes in QUICK_SHAPES if quick else SHAPES:
        if (ranks, nodes) in there:
            continue
        sizes = sizes_between(8, (2 if quick else 16) << 20, 64 if quick else 8)
        request = Request(
            COLLECTIVES, ranks, nodes, sizes, ["all"], ["all"], seconds=CASE_SECONDS,
            delay=delay if nodes > 1 else "",
        )  # fmt: skip
        twins = twins_of(list_cases(request), nodes)
        cases = list(twins)
        times: dict[Case, list[float]] = {case: [] for case in cases}
        # The first plan of a point finds connections not made yet; in the second look it is last.
        add_times(times, request, cases + cases[::-1])
        add_times(times, request, in_turn(times, nodes, rounds=5 if quick else 9))
        rows += [
            {
                "ranks": ranks, "nodes": nodes, "collective": twin.collective, "bytes": twin.bytes,
                "algorithm": twin.algorithm, "protocol": twin.protocol,
                "time_us": statistics.median(took), "runs": len(took),
            }
            for case, took in times.items()
            for twin in twins[case]
        ]  # fmt: skip
        print(f"{ranks} ranks, {nodes} nodes: {len(rows)} rows so far", file=sys.stderr)
        file.write_text(json.dumps({"delay": delay, "rows": rows}, indent=0) + "\n")


def twins_of(cases: list[Case], nodes: int) -> dict[Case, list[Case]]:
    """Cases whose plans are the same but for their names, by the first of them.

    On few ranks many algorithms are one; timed apart, the luckiest would seem to be the best.
    """
    by_plan: dict[tuple[str, int, str], list[Case]] = defaultdict(list)
    for case in cases:
        entry = plans.find_algorithm(f"{case.algorithm}_{case.collective}")
        placement = plans.Placement(case.ranks, nodes)
        text = entry.plan(placement, protocol=case.protocol).to_text().partition("\n")[2]
        by_plan[case.collective, case.count, text].append(case)
    return {twins[0]: twins for twins in by_plan.values()}


def add_times(times: dict[Case, list[float]], request: Request, turns: list[Case]) -> None:
    """Measures cases in this order."""
    for case, row in zip(turns, driver.run(request, turns), strict=True):
        times[case].append(row.time_us)


def in_turn(times: dict[Case, list[float]], nodes: int, rounds: int) -> list[Case]:
    """Each point's contenders, one after another, so many times; and all of that twice."""
    points: dict[tuple[str, int], dict[Case, float]] = defaultdict(dict)
    for case, took in times.items():
        points[case.collective, case.count][case] = min(took)
    turns = []
    for (collective, _), at in points.items():
        some = next(iter(at))
        placement = plans.Placement(some.ranks, nodes)
        row = plans.choose(collective, some.bytes, placement, crowding(some.ranks))
        chosen = (row.algorithm, row.protocol)
        close = [
            case
            for case, took in at.items()
            if took <= CONTENDERS * min(at.values()) or (case.algorithm, case.protocol) == chosen
        ]
        turns += close * rounds
    return turns * 2


def points_of(file: Path) -> dict[Point, dict[tuple[str, str], float]]:
    """By ranks, nodes, collective and bytes: the time of each algorithm and protocol."""
    points: dict[Point, dict[tuple[str, str], float]] = defaultdict(dict)
    for row in json.loads(file.read_text())["rows"]:
        point = (row["ranks"], row["nodes"], row["collective"], row["bytes"])
        points[point][row["algorithm"], row["protocol"]] = row["time_us"]
    return points


def check(file: Path) -> None:
    """Prints the share of right choices, and the others, the worst first."""
    wrong, right_of = [], defaultdict(list)
    points = points_of(file)
    for (ranks, nodes, collective, size), times in points.items():
        chosen = plans.choose(collective, size, plans.Placement(ranks, nodes), crowding(ranks))
        took = times.get((chosen.algorithm, chosen.protocol), math.inf)
        best = min(times, key=lambda plan: times[plan])
        over = took / times[best]
        right_of[ranks, nodes].append(over <= TOLERANCE)
        if over > TOLERANCE:
            wrong.append(
                (over, f"{collective} of {size} B on {ranks} ranks, {nodes} nodes:"
                 f" {chosen.algorithm} {chosen.protocol} {took:.1f} us,"
                 f" best {best[0]} {best[1]} {times[best]:.1f} us")
            )  # fmt: skip
    for over, text in sorted(wrong, reverse=True):
        print(f"{over:6.2f} x  {text}")
    for (ranks, nodes), right in right_of.items():
        print(f"{ranks} ranks, {nodes} nodes: {sum(right)} of {len(right)}")
    all_right = len(points) - len(wrong)
    print(
        f"the table: {all_right} of {len(points)} choices are within 10 % of the best: "
        f"{all_right / len(points):.1%}"
    )


def fit(file: Path, write: bool) -> None:
    """Prints the parameters whose choices are within the tolerance most often."""
    text = MODEL.read_text()
    parameters = read_parameters(text)
    width = len(parameters) // (2 * len(PROTOCOLS))
    candidates = []
    for (ranks, nodes, collective, size), times in points_of(file).items():
        placement = plans.Placement(ranks, nodes)
        block = size if collective in ("all_reduce", "broadcast") else size / ranks
        best = min(times.values())
        costs = []
        for (name, protocol), took in times.items():
            entry = plans.find_algorithm(f"{name}_{collective}")
            costs.append((terms_of(entry, placement, block, protocol, width), took / best))
        candidates.append(costs)

    def loss(parameters: list[float]) -> tuple[float, float]:
        # Beside the misses, how far off they are, so that a search has a slope to follow.
        misses, excess = 0, 0.0
        for costs in candidates:
            # Of equals the first in the registry, as in the table.
            _, over = min(
                ((sum(terms[i] * parameters[i] for i in terms), over) for terms, over in costs),
                key=lambda cost: cost[0],
            )
            misses += over > TOLERANCE
            excess += math.log(over)
        return misses / len(candidates) + 0.5 * excess / len(candidates), misses / len(candidates)

    least = loss(parameters)
    print(f"the model at first: {1 - least[1]:.1%} within 10 %")
    for _ in range(ROUNDS):
        before = least
        for index in range(len(parameters)):
            for factor in FACTORS:
                tried = list(parameters)
                tried[index] *= factor
                if (found := loss(tried)) < least:
                    least, parameters = found, tried
        if least == before:
            break
    print(f"the model then: {1 - least[1]:.1%} within 10 %")
    fitted = write_parameters(text, parameters)
    print("\n".join(line for line in fitted.splitlines() if _is_row(line)))
    if write:
        MODEL.write_text(fitted)
        print(f"written to {MODEL}; build the extension anew to use them")


def _is_row(line: str) -> bool:
    return line.lstrip().startswith((".intra_node = ", ".inter_node = ", ".reduce_ns_per_byte = "))


def read_parameters(text: str) -> list[float]:
    """Those of each protocol inside a node, of each between nodes, and the reduction's."""
    rows = [line.partition("=")[2] for line in text.splitlines() if _is_row(line)]
    return [float(number) for row in rows for number in re.findall(_NUMBER, row)]


def write_parameters(text: str, parameters: list[float]) -> str:
    """The file's text with others in their place."""
    numbers = iter(parameters)
    lines = [
        re.sub(_NUMBER, lambda _: f"{next(numbers):.3g}", line.partition("=")[2])
        if _is_row(line)
        else line
        for line in text.splitlines()
    ]
    heads = [line.partition("=")[0] + "=" if _is_row(line) else "" for line in text.splitlines()]
    return "".join(head + line + "\n" for head, line in zip(heads, lines, strict=True))


def terms_of(
    entry: plans.Algorithm, placement: plans.Placement, block: float, protocol: str, width: int
) -> dict[int, float]:
    """What each parameter is multiplied by, as CostModel::time_us does.

    `width` parameters of a protocol's row: alpha, beta; or alpha, the overhead of a message beyond
    the longest chain, beta.
    """
    cost: Any = entry.cost(placement, block, protocol=protocol)
    between = [cost.steps_inter_node, 1e-3 * cost.bytes_sent_inter_node]
    inside = [
        cost.steps - cost.steps_inter_node,
        1e-3 * (cost.bytes_sent - cost.bytes_sent_inter_node + cost.bytes_filling),
    ]
    if width == 3:
        further = max(cost.messages_inter_node - cost.steps_inter_node, 0)
        between.insert(1, further)
        inside.insert(1, max(max(cost.messages - cost.steps, 0) - further, 0))
    first = width * PROTOCOLS.index(protocol)
    terms = dict(enumerate(inside, first)) | dict(
        enumerate(between, first + width * len(PROTOCOLS))
    )
    return terms | {2 * width * len(PROTOCOLS): 1e-3 * cost.bytes_reduced}


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("measure", "check", "fit", "refit"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer shapes and sizes")
    parser.add_argument("--delay", default="", help="between nodes, as 1ms")
    parser.add_argument("--write", action="store_true", help="fit: put the parameters in place")
    arguments = parser.parse_args()
    refit = arguments.action == "refit"
    if arguments.action == "measure" or refit:
        measure(arguments.file, arguments.quick or refit, arguments.delay)
    if arguments.action == "check" or refit:
        check(arguments.file)
    if arguments.action == "fit" or refit:
        fit(arguments.file, arguments.write or refit)


if __name__ == "__main__":
    main()
