"""How often plans are chosen right on the shipped clusters: by stated cost, and by the simulator.

    python bench/simulate_accuracy/choices.py [--clusters NAMES] [--ranks 4,16,64] [--sizes ...]

Of every point (a cluster, a collective, ranks, a size) all plans are simulated to their end, in
both models of the network. A choice is right where it is within 10 % of the best of these. Three
things choose: the least stated cost (alpha a step, beta a byte), and `choose_plan`, which asks the
simulator, in either model. Each is judged by either model: where a choice is judged by the model
that made it, the table shows whether cutting slow runs and leaving out large ones costs anything.
Also printed: how far stated costs are off the simulated times. Some minutes on two cores.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

from unisono import _unisono as native
from unisono.simulate import Cluster, builtin_clusters, choose_plan, load_cluster, simulate

MODELS = ("loggops", "flows")
COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
    "all_to_all",
)  # fmt: skip
AS_GOOD, CLOSE = 1.10, 0.15
STATED = "stated cost"


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


def examine(cluster: Cluster, point: Point) -> Plans:
    size = {"size_bytes": point.size_bytes, "ranks": point.ranks}
    chosen, stated = {}, {}
    times: dict[str, dict[str, float]] = {}
    for model in MODELS:
        found = choose_plan(cluster, point.collective, model=model, **size)
        chosen[model] = found[0].algorithm
        stated = {one.algorithm: one.stated_us for one in found}
        times[model] = {
            one.algorithm: simulate(
                cluster, point.collective, one.algorithm, model=model, **size
            ).time_us
            for one in found
        }
    chosen[STATED] = min(stated, key=lambda name: stated[name])
    return Plans(point, times, stated, chosen)


def report_costs(found: list[Plans]) -> None:
    """How far stated costs are off, by cluster."""
    print(f"\n{'stated cost beside simulated time':<34}{'plans':>7}", end="")
    print("".join(f"{model + ': median':>18}{'within 15 %':>13}" for model in MODELS))
    for name in [*dict.fromkeys(one.point.cluster for one in found), ""]:
        row, plans = "", 0
        for model in MODELS:
            off = [
                abs(one.stated[algorithm] / time - 1)
                for one in found
                if name in ("", one.point.cluster)
                for algorithm, time in one.times[model].items()
            ]
            plans = len(off)
            close = sum(error <= CLOSE for error in off) / plans
            row += f"{median(off):>18.1%}{close:>13.1%}"
        print(f"{name or 'all':<34}{plans:>7}{row}")


def report_choices(found: list[Plans]) -> None:
    """How often choices are right, by cluster and by collective."""
    pairs = [(by, model) for model in MODELS for by in (STATED, *MODELS)]
    head = "".join(f"{by:>13}" for by, _ in pairs)
    judges = "".join(f"{'judged by ' + model:^39}" for model in MODELS)
    print(f"\n{'choices within 10 % of the best':<27}{'points':>7}{judges}\n{'':<34}{head}")
    groups: dict[str, list[Plans]] = defaultdict(list)
    for one in found:
        for key in (one.point.cluster, one.point.collective, "all"):
            groups[key].append(one)
    order = sorted(groups, key=lambda key: (key == "all", key in COLLECTIVES, key))
    for key in order:
        row = ""
        for by, model in pairs:
            right = [one.loss(by, model) <= AS_GOOD for one in groups[key]]
            row += f"{sum(right) / len(right):>13.1%}"
        print(f"{key:<27}{len(groups[key]):>7}{row}")
    for by, model in pairs:
        one = max(found, key=lambda plans: plans.loss(by, model))
        point, times = one.point, one.times[model]
        best = min(times, key=lambda name: times[name])
        print(f"worst of {by}, judged by {model}: {one.loss(by, model):.2f} times {best}'s time, "
              f"{one.chosen[by]}, {point.collective} of {native.format_bytes(point.size_bytes)} on "
              f"{point.ranks} ranks of {point.cluster}")  # fmt: skip


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", default=",".join(builtin_clusters()))
    parser.add_argument("--ranks", type=numbers, default=[4, 16, 64])
    parser.add_argument("--sizes", type=numbers, default=[4 << 10, 256 << 10, 16 << 20, 256 << 20])
    given = parser.parse_args()
    names = given.clusters.split(",")
    clusters = {name: load_cluster(name) for name in names}
    points = list(points_of(names, given.ranks, given.sizes))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(lambda one: examine(clusters[one.cluster], one), points))
    print("$ python bench/simulate_accuracy/choices.py")
    print(f"ranks {given.ranks}, sizes {[native.format_bytes(size) for size in given.sizes]}")
    report_costs(found)
    report_choices(found)


if __name__ == "__main__":
    main()
