"""A selection file of what was fastest on a measured grid.

    python studies/selection/grid.py measure FILE
    python studies/selection/table.py FILE TABLE
    UNISONO_SELECTION_FILE=TABLE program ...

TABLE serves the ranks and nodes of FILE, up to the largest size there; for all else the model
chooses as without it. `UNISONO_SELECTION_FILE=TABLE python studies/selection/grid.py measure OTHER
--sizes ...` says how often it is right in a second measurement, also between its sizes.
"""

import argparse
import json
import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from grid import Plan, read

# What is as fast as that beside the best of a size may be the plan of the size before: a plan
# chosen by chance alone serves the sizes between badly.
AS_FAST = 1.03

Times = dict[int, dict[Plan, float]]


def rows_of(times: Times) -> list[tuple[int, int, Plan]]:
    """First and last byte, and the plan, of a collective's sizes; neighbours differ."""
    sizes = sorted(times)
    plans = plans_of(times)
    rows = [(0, sizes[-1], plans[0])]
    for (size, plan), (next_size, next_plan) in pairwise(zip(sizes, plans, strict=True)):
        if plan == next_plan:
            continue
        change = crossing(times, (size, next_size), (plan, next_plan))
        rows[-1] = (rows[-1][0], change, plan)
        rows.append((change + 1, sizes[-1], next_plan))
    return rows


def plans_of(times: Times) -> list[Plan]:
    """The plan of each size."""
    plans: list[Plan] = []
    for size in sorted(times):
        best = min(times[size], key=lambda plan: times[size][plan])
        is_kept = plans and times[size].get(plans[-1], math.inf) <= AS_FAST * times[size][best]
        plans.append(plans[-1] if is_kept else best)
    return plans


def crossing(times: Times, sizes: tuple[int, int], plans: tuple[Plan, Plan]) -> int:
    """Up to which size the first of two plans is faster, if times are straight lines in logs."""
    took = [[times[size].get(plan, math.inf) for plan in plans] for size in sizes]
    ahead, behind = (math.log(second) - math.log(first) for first, second in took)
    share = 0.5
    if 0 <= ahead < math.inf and -math.inf < behind < 0:
        share = ahead / (ahead - behind)
    return int(sizes[0] * (sizes[1] / sizes[0]) ** share)


def table_of(file: Path) -> dict[str, Any]:
    """What UNISONO_SELECTION_FILE reads."""
    by_call: dict[tuple[int, int, str], Times] = defaultdict(dict)
    for (ranks, nodes, collective, size), times in read(file).times.items():
        by_call[ranks, nodes, collective][size] = times
    return {
        "rows": [
            {
                "collective": collective, "ranks": ranks, "nodes": nodes, "min_bytes": first,
                "max_bytes": last, "algorithm": plan[0], "protocol": plan[1],
            }
            for (ranks, nodes, collective), times in by_call.items()
            for first, last, plan in rows_of(times)
        ]
    }  # fmt: skip


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("table", type=Path)
    arguments = parser.parse_args()
    table = table_of(arguments.file)
    arguments.table.write_text(json.dumps(table, indent=1) + "\n")
    print(f"{len(table['rows'])} rows in {arguments.table}")


if __name__ == "__main__":
    main()
