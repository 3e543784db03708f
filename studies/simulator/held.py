"""How far the simulator is off on the points of benches that no cluster's number was fitted to.

    python studies/simulator/held.py hgx_h200_4 studies/results/gpu_bench_interpreted_4.txt ...

`unisono calibrate` fits every second point, by size within each algorithm; this shows the errors of
the others with the cluster's file as it is, by decade of size. With --all, of all points: for a
table of which nothing was fitted.
"""

import argparse
from pathlib import Path

from unisono.bench.peers import OURS
from unisono.simulate import Predictor, errors_by_decade, load_cluster, read_measurements
from unisono.simulate.calibrate import split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cluster")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--implementation", default=OURS)
    parser.add_argument("--model", default="flows")
    parser.add_argument("--skip", action="append", default=[], help="an algorithm")
    parser.add_argument("--all", action="store_true", help="every point, not every second")
    given = parser.parse_args()
    points = [
        one
        for file in given.files
        for one in read_measurements(file, given.implementation)
        if one.algorithm not in given.skip
    ]
    held = points if given.all else split(points)[1]
    errors = Predictor(load_cluster(given.cluster).file, given.model).errors(held)
    print(f"{'size':<14}{'points':>6}{'median':>8}{'90th percentile':>17}{'worst':>8}")
    for row in errors_by_decade(errors):
        print(
            f"{row.decade:<14}{row.points:>6}{row.median:>8.1%}{row.ninetieth:>17.1%}"
            f"{row.worst:>8.1%}"
        )


if __name__ == "__main__":
    main()
