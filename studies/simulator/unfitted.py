"""How far the model of NCCL is off on machines that nothing was fitted to.

    python studies/simulator/unfitted.py [--write] [--events] [--points]

Of every site of tables.yaml: fits the model to all others, predicts this one. Prints the errors by
site, by size and by collective; how many of the measured times the 80 % intervals hold, each made
of the errors of other sites alone; and the errors after `unisono calibrate` with eight points of a
machine. --write puts the parameters that fit all sites into clusters/nccl/model.yaml. --events:
instead, the event simulator with the shipped clusters as they are. --points: each point, too.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import yaml
from unisono import _unisono as native
from unisono.simulate import Predictor, load_cluster, nccl, read_measurements
from unisono.simulate.measurements import Measurement
from unisono.simulate.nccl.intervals import Errors, Site, widths_of
from unisono.simulate.nccl.model import to_yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
DECADES = ((0, 8 << 10), (8 << 10, 1 << 20), (1 << 20, 64 << 20), (64 << 20, 1 << 60))
# What `calibrate` is given of a machine.
OWN_POINTS = 8
# The event simulator needs too long for more.
MOST_RANKS = 64
Found = list[tuple[str, nccl.Point, float]]
Values = dict[str, float]
# By the names of the sites that are left out.
Fits = dict[frozenset[str], Values]


@cache
def read_sites() -> tuple[list[Site], dict[str, list[Measurement]], dict[str, str]]:
    """The sites, their measurements, and the clusters of the event simulator."""
    sites, measured, clusters = [], {}, {}
    for name, machines in yaml.safe_load((HERE / "tables.yaml").read_text()).items():
        clusters[name] = machines.pop("cluster", "")
        points: list[nccl.Point] = []
        measured[name] = []
        for machine, tables in machines.items():
            described = nccl.load_machine(HERE / "machines" / f"{machine}.yaml")
            for table in tables:
                path = HERE / table
                rows = read_measurements(path, "nccl", point_to_point=True)
                rows = [row for row in rows if row.collective in COLLECTIVES]
                measured[name] += rows
                points += [point_of(described, row) for row in rows]
        sites.append(Site(name, points))
    return sites, measured, clusters


def point_of(machine: nccl.MachineFile, row: Measurement) -> nccl.Point:
    """Without what a table says of the algorithm: some have it from the times."""
    return nccl.Point(
        machine, nccl.Call(row.collective, row.bytes, row.ranks, row.nodes), row.time_us
    )


def quantile(values: list[float], weights: list[float], part: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(np.array(weights)[order])
    return float(np.array(values)[order][np.searchsorted(reached, part * reached[-1])])


def line(title: str, found: Found) -> str:
    """Errors without sign, sites weighted alike."""
    if not found:
        return f"{title:<34}{'-':>8}"
    names = [name for name, _, _ in found]
    weights = [1 / names.count(name) for name in names]
    off = [abs(time / point.time_us - 1) for _, point, time in found]
    signed = [time / point.time_us - 1 for _, point, time in found]
    return (
        f"{title:<34}{len(set(names)):>6}{len(found):>8}{quantile(off, weights, 0.5):>9.1%}"
        f"{quantile(off, weights, 0.9):>9.1%}{quantile(signed, weights, 0.5):>+9.1%}"
    )


def report(found: Found) -> None:
    head = f"{'':<34}{'sites':>6}{'points':>8}{'median':>9}{'90th':>9}{'bias':>9}"
    print(head)

    def show(title: str, keep: Callable[[nccl.Call], bool]) -> None:
        print(line(title, [one for one in found if keep(one[1].call)]))

    show("one node, 8 KiB and more", lambda call: call.nodes == 1 and call.bytes >= 8 << 10)
    show("several nodes, 8 KiB and more", lambda call: call.nodes > 1 and call.bytes >= 8 << 10)
    show("below 8 KiB", lambda call: call.bytes < 8 << 10)
    for nodes in ("one node", "several nodes"):
        many = nodes != "one node"
        for low, high in DECADES:
            title = f"{nodes}, {size(low)} to {size(high)}"
            show(title, lambda c, m=many, a=low, b=high: (c.nodes > 1) == m and a <= c.bytes < b)
        for one in COLLECTIVES:
            show(
                f"{nodes}, {one}", lambda c, m=many, k=one: (c.nodes > 1) == m and c.collective == k
            )
    print()
    for name in dict.fromkeys(name for name, _, _ in found):
        print(line(name, [one for one in found if one[0] == name]))


def size(count: int) -> str:
    return "any" if count >= 1 << 60 else native.format_bytes(count)


def fit_without(names: frozenset[str]) -> Values:
    """The parameters that fit all other sites."""
    sites, _, _ = read_sites()
    return nccl.fit_all([p for one in sites if one.name not in names for p in one.points])


def fits_without(sites: list[Site]) -> Fits:
    """Without each site, and without each two."""
    left_out = [frozenset((one.name, other.name)) for one in sites for other in sites]
    return fits_of(list(dict.fromkeys(left_out)))


def fits_of(left_out: list[frozenset[str]]) -> Fits:
    """On all cores."""
    # The matrices are too small for threads.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return dict(zip(left_out, pool.map(fit_without, left_out), strict=True))


def leave_out(sites: list[Site], fits: Fits, without: str = "") -> tuple[Found, Errors]:
    """Each site's predictions by the others, and all pairs' for the intervals."""
    found: Found = []
    errors = Errors()
    for site in sites:
        times = nccl.predict_us(site.points, fits[frozenset((site.name, without or site.name))])
        found += [(site.name, p, float(t)) for p, t in zip(site.points, times, strict=True)]
        errors.add(site, times)
    return found, errors


def cover(sites: list[Site], fits: Fits) -> None:
    """How many times lie in intervals that were made without their site."""
    inside: dict[str, list[float]] = {}
    for site in sites:
        others = [one for one in sites if one is not site]
        _, errors = leave_out(others, fits, site.name)
        widths = widths_of(errors)
        times = nccl.predict_us(site.points, fits[frozenset((site.name,))])
        held = [
            widths.holds(point, time / point.time_us)
            for point, time in zip(site.points, times, strict=True)
        ]
        for kind in ("all", "one node", "several nodes"):
            chosen = [
                yes for yes, point in zip(held, site.points, strict=True)
                if kind == "all" or (point.call.nodes > 1) == (kind == "several nodes")
            ]  # fmt: skip
            if chosen:
                inside.setdefault(kind, []).append(sum(chosen) / len(chosen))
    print("\nMeasured times within the 80 % intervals, sites weighted alike")
    for kind, parts in inside.items():
        print(f"{kind:<34}{len(parts):>6}{np.mean(parts):>17.1%}")


def own(sites: list[Site], fits: Fits) -> None:
    """Errors after `calibrate`, on the points that it was not given."""
    found: Found = []
    for site in sites:
        elsewhere = fits[frozenset((site.name,))]
        if len(site.points) < 2 * OWN_POINTS:
            continue
        given = spread_out(site.points)
        fitted = nccl.fit_one(given, elsewhere)
        held = [point for point in site.points if point not in given]
        times = nccl.predict_us(held, {**elsewhere, **fitted.values})
        found += [(site.name, p, float(t)) for p, t in zip(held, times, strict=True)]
    print(f"\nAfter calibrate with {OWN_POINTS} points of the machine, on its other points")
    report(found)


def spread_out(points: Iterable[nccl.Point]) -> list[nccl.Point]:
    """Eight, spread evenly over the points by collective, ranks and size."""
    ordered = sorted(
        points, key=lambda p: (p.call.collective, p.call.ranks, p.machine.name, p.call.bytes)
    )
    places = np.linspace(0, len(ordered) - 1, min(OWN_POINTS, len(ordered)))
    return [ordered[int(place)] for place in places]


def events(measured: dict[str, list[Measurement]], clusters: dict[str, str]) -> None:
    """The event simulator with the shipped clusters."""
    found: Found = []
    for name, rows in measured.items():
        if not clusters[name]:
            continue
        predictor = Predictor(load_cluster(clusters[name]).file, "loggops")
        rows = [row for row in rows if row.collective != "all_to_all" and row.ranks <= MOST_RANKS]
        known, refused = predictor.check(rows)
        machine = nccl.load_machine(HERE / "machines" / f"{name}.yaml")
        found += [(name, point_of(machine, e.measurement), e.simulated_us) for e in known]
        print(f"{name}: {clusters[name]}" + "".join(f"\n  {why}" for why in refused))
    report(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--points", action="store_true")
    given = parser.parse_args()
    sites, measured, clusters = read_sites()
    if given.events:
        events(measured, clusters)
        return
    print(f"$ python studies/simulator/unfitted.py {' '.join(sys.argv[1:])}".rstrip() + "\n")
    fits = fits_without(sites)
    found, errors = leave_out(sites, fits)
    report(found)
    cover(sites, fits)
    own(sites, fits)
    if given.points:
        for name, point, time in found:
            call, choice = point.call, point.terms.choice
            print(
                f"{name:<18}{call.collective:<16}{call.ranks:>6}{size(call.bytes):>10} "
                f"{choice.algorithm}/{choice.protocol:<8}"
                f"{point.time_us:>12.2f}{time:>12.2f}{time / point.time_us - 1:>+8.1%}"
            )
    if given.write:
        values = nccl.fit_all([point for site in sites for point in site.points])
        path = ROOT / "clusters" / "nccl" / "model.yaml"
        path.write_text(to_yaml(values, widths_of(errors), [site.name for site in sites]))


if __name__ == "__main__":
    main()
