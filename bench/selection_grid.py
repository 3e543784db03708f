"""How often the selection table picks a winner, and the cost model that would pick most.

    python bench/selection_grid.py measure FILE [--quick]    times every plan on a grid
    python bench/selection_grid.py check FILE                how often the table is right
    python bench/selection_grid.py fit FILE                  the parameters that fit the grid best

The grid: 2 to 8 ranks on 1 to 4 nodes, 8 B to 16 MiB, over shared memory, loopback and, with
--delay, far nodes; every algorithm by every protocol that serves. A choice is right when its time
is at most 10 % above the best of its point. `fit` prints rows for src/comm/cost_model.cc; it
searches from the present ones, one parameter at a time, and draws nothing at random.
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unisono import plans
from unisono.bench import driver
from unisono.bench.cases import Request, list_cases, sizes_between

SHAPES = ((2, 1), (3, 1), (4, 1), (8, 1), (2, 2), (4, 2), (6, 2), (6, 3), (8, 2), (8, 4))
QUICK_SHAPES = ((2, 1), (4, 1), (4, 2), (8, 4))
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]
PROTOCOLS = ("simple", "ll", "ll128")
TOLERANCE = 1.10
# As in src/comm/cost_model.cc: alpha (us) and beta (ns a byte) by protocol, inside a node and
# between nodes, then the reduction's ns a byte.
PRESENT = [0.45, 0.15, 0.40, 0.35, 0.42, 0.20, 20, 0.45, 20, 0.50, 20, 0.47, 0.08]
FACTORS = (0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.4, 2.0)
ROUNDS = 6

Point = tuple[int, int, str, int]


def measure(file: Path, quick: bool, delay: str) -> None:
    """Writes the rows, after each shape: what is there can be used when it is stopped."""
    rows = []
    for ranks, nodes in QUICK_SHAPES if quick else SHAPES:
        request = Request(
            COLLECTIVES, ranks, nodes, sizes_between(8, 16 << 20, 64 if quick else 8),
            ["all"], ["all"], seconds=0.02 if quick else 0.1, delay=delay if nodes > 1 else "",
        )  # fmt: skip
        rows += [asdict(row) for row in driver.run(request, list_cases(request))]
        print(f"{ranks} ranks, {nodes} nodes: {len(rows)} rows so far", file=sys.stderr)
        file.write_text(json.dumps({"delay": delay, "rows": rows}, indent=0) + "\n")


def points_of(file: Path) -> dict[Point, dict[tuple[str, str], float]]:
    """By ranks, nodes, collective and bytes: the time of each algorithm and protocol."""
    points: dict[Point, dict[tuple[str, str], float]] = defaultdict(dict)
    for row in json.loads(file.read_text())["rows"]:
        point = (row["ranks"], row["nodes"], row["collective"], row["bytes"])
        points[point][row["algorithm"], row["protocol"]] = row["time_us"]
    return points


def check(file: Path) -> None:
    """Prints the share of right choices, and the worst of the others."""
    right, wrong = 0, []
    for (ranks, nodes, collective, size), times in points_of(file).items():
        row = plans.choose(collective, size, plans.Placement(ranks, nodes))
        best = min(times, key=lambda plan: times[plan])
        took = times[row.algorithm, row.protocol]
        if took <= TOLERANCE * times[best]:
            right += 1
        else:
            chosen = f"{row.algorithm} {row.protocol}"
            wrong.append((took / times[best], ranks, nodes, collective, size, chosen, *best))
    for entry in sorted(wrong, reverse=True)[:15]:
        print(f"{entry[0]:5.2f} x the best", *entry[1:])
    total = right + len(wrong)
    print(f"{right} of {total} choices are within 10 % of the best: {right / total:.1%}")


def fit(file: Path) -> None:
    """Prints the parameters whose choices are within the tolerance most often."""
    candidates = []
    for (ranks, nodes, collective, size), times in points_of(file).items():
        placement = plans.Placement(ranks, nodes)
        rooted = collective in ("all_reduce", "broadcast")
        block = size if rooted else size / ranks
        best = min(times.values())
        costs = [
            (terms_of(plans.find_algorithm(f"{name}_{collective}"), placement, block, protocol),
             took / best)
            for (name, protocol), took in times.items()
        ]  # fmt: skip
        candidates.append(costs)

    def loss(parameters: list[float]) -> tuple[float, float]:
        misses, excess = 0, 0.0
        for costs in candidates:
            _, over = min(
                (sum(terms[i] * parameters[i] for i in terms), over) for terms, over in costs
            )
            misses += over > TOLERANCE
            excess += over - 1
        return misses / len(candidates), excess / len(candidates)

    parameters = list(PRESENT)
    least = loss(parameters)
    print(f"at first {1 - least[0]:.1%} within 10 %, {1 + least[1]:.2f} x the best on average")
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
    print(f"then {1 - least[0]:.1%} within 10 %, {1 + least[1]:.2f} x the best on average")
    numbers = [f"{value:.3g}" for value in parameters]
    for name, first in (("intra_node", 0), ("inter_node", 6)):
        pairs = [f"{{{numbers[i]}, {numbers[i + 1]}}}" for i in range(first, first + 6, 2)]
        print(f".{name} = {{{', '.join(pairs)}}},")
    print(f".reduce_ns_per_byte = {numbers[12]},")


def terms_of(
    entry: plans.Algorithm, placement: plans.Placement, block: float, protocol: str
) -> dict[int, float]:
    """What each parameter is multiplied by, as CostModel::time_us does."""
    cost: Any = entry.cost(placement, block, protocol=protocol)
    at = 2 * PROTOCOLS.index(protocol)
    return {
        at: cost.steps - cost.steps_inter_node,
        at + 1: 1e-3 * (cost.bytes_sent - cost.bytes_sent_inter_node),
        at + 6: cost.steps_inter_node,
        at + 7: 1e-3 * cost.bytes_sent_inter_node,
        12: 1e-3 * cost.bytes_reduced,
    }


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("measure", "check", "fit"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer shapes and sizes")
    parser.add_argument("--delay", default="", help="between nodes, as 1ms")
    arguments = parser.parse_args()
    if arguments.action == "measure":
        measure(arguments.file, arguments.quick, arguments.delay)
    elif arguments.action == "check":
        check(arguments.file)
    else:
        fit(arguments.file)


if __name__ == "__main__":
    main()
