"""K-means: ranks find the centres of clusters among points that they have divided up.

    unisono run -n 4 examples/k_means.py

Every rank assigns its own points to the nearest centre, and adds up the points of each cluster. Two
all-reduces give the sums and counts of all ranks; since all ranks receive the same bits, they
compute the same centres and end in the same round.
"""

import argparse
import sys

import numpy as np
import unisono
from numpy.typing import NDArray

Points = NDArray[np.float64]
Labels = NDArray[np.int64]


def nearest(points: Points, centres: Points) -> Labels:
    """The index of the nearest centre of each point."""
    distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    return distances.argmin(axis=1)


def sums(points: Points, labels: Labels, clusters: int) -> tuple[Points, Labels]:
    """The sum and the number of the points of each cluster."""
    totals = np.zeros((clusters, points.shape[1]))
    np.add.at(totals, labels, points)
    return totals, np.bincount(labels, minlength=clusters)


def first_centres(comm: unisono.Communicator, points: Points, clusters: int) -> Points:
    """Points of the lowest ranks that have some: as many as there are clusters."""
    offered = comm.all_gather_object(points[:clusters])
    return np.concatenate(offered)[:clusters]


def k_means(
    comm: unisono.Communicator, points: Points, clusters: int, rounds: int = 100
) -> tuple[Points, Labels, int]:
    """Finds clusters by Lloyd's algorithm.

    Args:
        comm: The communicator.
        points: This rank's points, shape (n, dimensions); n may differ, and may be 0.
        clusters: The number of clusters.
        rounds: The most rounds.

    Returns:
        The centres, the same on all ranks; the cluster of each point of this rank; the rounds.
    """
    centres = first_centres(comm, points, clusters)
    done, is_moving = 0, True
    while is_moving and done < rounds:
        totals, counts = sums(points, nearest(points, centres), clusters)
        comm.all_reduce(totals, out=totals)
        comm.all_reduce(counts, out=counts)
        # A cluster without points keeps its centre.
        moved = np.where(counts[:, None] > 0, totals / np.maximum(counts, 1)[:, None], centres)
        is_moving = not np.array_equal(moved, centres)
        centres = moved
        done += 1
    return centres, nearest(points, centres), done


def main() -> int:
    parser = argparse.ArgumentParser(description="K-means on points that are divided among ranks.")
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--clusters", type=int, default=5)
    arguments = parser.parse_args()

    with unisono.init() as comm:
        random = np.random.default_rng(0)
        truth = random.uniform(-10, 10, (arguments.clusters, 2))
        whole = truth[random.integers(0, len(truth), arguments.points)]
        whole = whole + random.normal(0, 0.3, whole.shape)
        mine = np.array_split(whole, comm.size)[comm.rank]
        centres, labels, rounds = k_means(comm, mine, arguments.clusters)
        counts = [len(part) for part in np.array_split(whole, comm.size)]
        everyone = comm.gather_v(labels, counts)
        is_right = True
        if comm.rank == 0:
            is_right = np.array_equal(everyone, nearest(whole, centres))
            sizes = np.bincount(everyone, minlength=arguments.clusters).tolist()
            print(f"k-means: {comm.size} ranks, {rounds} rounds, clusters of {sizes} points")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
