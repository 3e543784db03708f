"""How often plans are chosen right on the shipped clusters: by stated cost, by the simulator, and
by the library with a selection file of `unisono tune`.

    python studies/simulator/choices.py [--clusters NAMES] [--ranks 4,16,64] [--sizes ...]

Of every point (a cluster, a collective, ranks, a size) all plans are simulated to their end. A
choice is right where it is within 10 % of the best of these. Three things choose: the least stated
cost (alpha a step, beta a byte); `choose_plan`, which asks the simulator; and `plans.choose`, which
is what a communicator takes, with UNISONO_SELECTION_FILE as `tune` writes it for the cluster. Some
of the sizes are none that `tune` asks the simulator for. All are judged by `loggops`, and up to
--flows ranks by `flows`, too, where many messages at once take long to simulate. Also printed: how
far stated costs are off the simulated times.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

# Read when a plan is chosen; `take_rows` writes it.
FOLDER = tempfile.TemporaryDirectory(prefix="unisono-choices-")
TABLE = Path(FOLDER.name) / "table.json"
os.environ["UNISONO_SELECTION_FILE"] = str(TABLE)

from unisono import _unisono as native  # noqa: E402
from unisono import plans  # noqa: E402
from unisono.simulate import (  # noqa: E402
    TUNED_COLLECTIVES,
    Candidate,
    Cluster,
    builtin_clusters,
    choose_plan,
    load_cluster,
    selection_file,
    simulate,
    tune,
)

LOG_GOPS, FLOWS = "loggops", "flows"
MODELS = (LOG_GOPS, FLOWS)
SIZES = [4 << 10, 24 << 10, 256 << 10, 3 << 19, 16 << 20]
AS_GOOD, CLOSE = 1.10, 0.15
STATED, ASKED, LIBRARY = "stated cost", "choose_plan", "library"
WAYS = (STATED, ASKED, LIBRARY)


@dataclass(frozen=True)
class Point:
    """A call on a cluster."""

    cluster: str
    collective: str
    ranks: int
    size_bytes: int


@dataclass(frozen=True)
class Plans:
    """What was found of a point.

    Attributes:
        times: By model, then by plan ("ring simple"): simulated to the end.
        stated: By plan.
        chosen: By what chose: the plan.
    """

    point: Point
    times: dict[str, dict[str, float]]
    stated: dict[str, float]
    chosen: dict[str, str]

    def loss(self, by: str, model: str) -> float:
        """How many times as long as the best its choice takes."""
        times = self.times[model]
        return times[self.chosen[by]] / min(times.values())


def points_of(names: list[str], ranks: list[int], sizes: list[int]) -> Iterator[Point]:
    for name in names:
        most = load_cluster(name).machine.max_ranks
        for count in ranks:
            if count <= most:
                for collective in TUNED_COLLECTIVES:
                    yield from (Point(name, collective, count, size) for size in sizes)


def take_rows(cluster: Cluster, ranks: list[int], protocols: list[str]) -> None:
    """Has the library choose as the simulator does on this cluster."""
    rows = tune(cluster, ranks, protocols=protocols)
    TABLE.write_text(json.dumps(selection_file(rows, "choices.py")))


def choice_of_library(cluster: Cluster, point: Point) -> str:
    """What a communicator takes; its row must be one of the file."""
    nodes = -(-point.ranks // cluster.machine.ranks_per_node)
    row = plans.choose(point.collective, point.size_bytes, plans.Placement(point.ranks, nodes))
    if not row.origin.startswith(f"{TABLE}: "):
        sys.exit(f"{point} is not decided by the file but by: {row.origin}")
    return f"{row.algorithm} {row.protocol}"


def examine(cluster: Cluster, point: Point, protocols: list[str], flows_ranks: int) -> Plans:
    found = {
        f"{one.algorithm} {one.protocol}": one
        for one in choose_plan(
            cluster, point.collective, size_bytes=point.size_bytes, ranks=point.ranks,
            protocols=protocols,
        )
    }  # fmt: skip
    stated = {plan: one.stated_us for plan, one in found.items()}

    def time_us(one: Candidate, model: str) -> float:
        return simulate(
            cluster, point.collective, one.algorithm, size_bytes=point.size_bytes,
            ranks=point.ranks, protocol=one.protocol, model=model,
        ).time_us  # fmt: skip

    times = {
        model: {plan: time_us(one, model) for plan, one in found.items()}
        for model in (MODELS if point.ranks <= flows_ranks else [LOG_GOPS])
    }
    chosen = {
        STATED: min(stated, key=lambda plan: stated[plan]),
        ASKED: next(iter(found)),
        LIBRARY: choice_of_library(cluster, point),
    }
    print(f"{point}: {chosen}", file=sys.stderr)
    return Plans(point, times, stated, chosen)


def report_costs(found: list[Plans]) -> None:
    """How far stated costs are off, by cluster."""
    print(f"\n{'stated cost, judged by loggops':<34}{'plans':>7}{'median':>10}{'within 15 %':>13}")
    for name in [*dict.fromkeys(one.point.cluster for one in found), ""]:
        off = [
            abs(one.stated[plan] / time - 1)
            for one in found
            if name in ("", one.point.cluster)
            for plan, time in one.times[LOG_GOPS].items()
        ]
        close = sum(error <= CLOSE for error in off) / len(off)
        print(f"{name or 'all':<34}{len(off):>7}{median(off):>10.1%}{close:>13.1%}")


def report_choices(found: list[Plans], model: str) -> None:
    """How often choices are right, by cluster and by collective."""
    judged = [one for one in found if model in one.times]
    if not judged:
        return
    title = f"within 10 % of the best, by {model}"
    print(f"\n{title:<34}{'points':>7}{''.join(f'{way:>13}' for way in WAYS)}")
    groups: dict[str, list[Plans]] = defaultdict(list)
    for one in judged:
        for key in (one.point.cluster, one.point.collective, "all"):
            groups[key].append(one)
    for key in sorted(groups, key=lambda key: (key == "all", key in TUNED_COLLECTIVES, key)):
        row = ""
        for by in WAYS:
            right = [one.loss(by, model) <= AS_GOOD for one in groups[key]]
            row += f"{sum(right) / len(right):>13.1%}"
        print(f"{key:<34}{len(groups[key]):>7}{row}")
    for by in WAYS:
        worst = max(judged, key=lambda plans: plans.loss(by, model))
        point, times = worst.point, worst.times[model]
        best = min(times, key=lambda name: times[name])
        print(f"worst of {by}: {worst.chosen[by]}, {worst.loss(by, model):.2f} times as long as "
              f"{best}, {point.collective} of {native.format_bytes(point.size_bytes)} on "
              f"{point.ranks} ranks of {point.cluster}")  # fmt: skip


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", default=",".join(builtin_clusters()))
    parser.add_argument("--ranks", type=numbers, default=[4, 16, 64])
    parser.add_argument("--sizes", type=numbers, default=SIZES)
    parser.add_argument("--protocols", type=lambda text: text.split(","), default=["simple"])
    parser.add_argument("--flows", type=int, default=4, help="at most so many ranks")
    given = parser.parse_args()
    names = given.clusters.split(",")
    found: list[Plans] = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name, points in groupby(
            points_of(names, given.ranks, given.sizes), key=lambda point: point.cluster
        ):
            cluster = load_cluster(name)
            most = cluster.machine.max_ranks
            take_rows(cluster, [one for one in given.ranks if one <= most], given.protocols)
            found += pool.map(
                lambda one, on=cluster: examine(on, one, given.protocols, given.flows), points
            )
    print(f"$ python studies/simulator/choices.py {' '.join(sys.argv[1:])}".rstrip())
    sizes = ", ".join(native.format_bytes(size) for size in given.sizes)
    print(f"ranks {given.ranks}, protocols {given.protocols}, sizes {sizes}")
    report_costs(found)
    for model in MODELS:
        report_choices(found, model)


if __name__ == "__main__":
    main()
