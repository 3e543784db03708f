"""How often plans are chosen right on the shipped clusters: by stated cost, and by the simulator.

    python bench/simulate_accuracy/choices.py [--clusters NAMES] [--ranks 4,16,64] [--sizes ...]

Of every point (a cluster, a collective, ranks, a size) all plans are simulated to their end. A
choice is right where it is within 10 % of the best of these. Two things choose: the least stated
cost (alpha a step, beta a byte), and `choose_plan`, which asks the simulator in `loggops`. Both are
judged by `loggops`, and up to --flows ranks by `flows`, too, where many messages at once take long
to simulate. Judged by the model that chose, the table shows whether cutting slow runs and leaving
out large ones costs anything. Also printed: how far stated costs are off the simulated times.
"""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

from unisono import _unisono as native
from unisono.simulate import Cluster, builtin_clusters, choose_plan, load_cluster, simulate

LOG_GOPS, FLOWS = "loggops", "flows"
MODELS = (LOG_GOPS, FLOWS)
COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
    "all_to_all",
)  # fmt: skip
AS_GOOD, CLOSE = 1.10, 0.15
STATED, ASKED = "stated cost", "choose_plan"


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
        times: By model, then by algorithm: simulated to the end.
        stated: By algorithm.
        chosen: By what chose: the algorithm.
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
                for collective in COLLECTIVES:
                    yield from (Point(name, collective, count, size) for size in sizes)


def examine(cluster: Cluster, point: Point, flows_ranks: int) -> Plans:
    found = choose_plan(cluster, point.collective, size_bytes=point.size_bytes, ranks=point.ranks)
    stated = {one.algorithm: one.stated_us for one in found}

    def time_us(algorithm: str, model: str) -> float:
        return simulate(
            cluster, point.collective, algorithm, size_bytes=point.size_bytes, ranks=point.ranks,
            model=model,
        ).time_us  # fmt: skip

    times = {
        model: {one.algorithm: time_us(one.algorithm, model) for one in found}
        for model in (MODELS if point.ranks <= flows_ranks else [LOG_GOPS])
    }
    chosen = {ASKED: found[0].algorithm, STATED: min(stated, key=lambda name: stated[name])}
    print(f"{point}: {chosen}", file=sys.stderr)
    return Plans(point, times, stated, chosen)


def report_costs(found: list[Plans]) -> None:
    """How far stated costs are off, by cluster."""
    print(f"\n{'stated cost, judged by loggops':<34}{'plans':>7}{'median':>10}{'within 15 %':>13}")
    for name in [*dict.fromkeys(one.point.cluster for one in found), ""]:
        off = [
            abs(one.stated[algorithm] / time - 1)
            for one in found
            if name in ("", one.point.cluster)
            for algorithm, time in one.times[LOG_GOPS].items()
        ]
        close = sum(error <= CLOSE for error in off) / len(off)
        print(f"{name or 'all':<34}{len(off):>7}{median(off):>10.1%}{close:>13.1%}")


def report_choices(found: list[Plans], model: str) -> None:
    """How often choices are right, by cluster and by collective."""
    judged = [one for one in found if model in one.times]
    if not judged:
        return
    title = f"within 10 % of the best, by {model}"
    print(f"\n{title:<34}{'points':>7}{STATED:>13}{ASKED:>13}")
    groups: dict[str, list[Plans]] = defaultdict(list)
    for one in judged:
        for key in (one.point.cluster, one.point.collective, "all"):
            groups[key].append(one)
    for key in sorted(groups, key=lambda key: (key == "all", key in COLLECTIVES, key)):
        row = ""
        for by in (STATED, ASKED):
            right = [one.loss(by, model) <= AS_GOOD for one in groups[key]]
            row += f"{sum(right) / len(right):>13.1%}"
        print(f"{key:<34}{len(groups[key]):>7}{row}")
    for by in (STATED, ASKED):
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
    parser.add_argument("--sizes", type=numbers, default=[4 << 10, 256 << 10, 16 << 20])
    parser.add_argument("--flows", type=int, default=4, help="at most so many ranks")
    given = parser.parse_args()
    names = given.clusters.split(",")
    clusters = {name: load_cluster(name) for name in names}
    points = list(points_of(names, given.ranks, given.sizes))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(lambda one: examine(clusters[one.cluster], one, given.flows), points))
    print("$ python bench/simulate_accuracy/choices.py")
    print(f"ranks {given.ranks}, sizes {[native.format_bytes(size) for size in given.sizes]}")
    report_costs(found)
    for model in MODELS:
        report_choices(found, model)


if __name__ == "__main__":
    main()
