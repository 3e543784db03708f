"""Sample sort: ranks sort numbers that none of them holds all of.

    unisono run -n 4 examples/sample_sort.py

Every rank sorts its own numbers and takes samples of them at equal distances. The samples of all
ranks, sorted, give the bounds between ranks. Rank r receives all numbers from its bound on, up to
the next one, and merges what it receives.
"""

import argparse
import sys

import numpy as np
import unisono
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

# Samples of each rank for each rank: more make the ranks' parts more alike.
SAMPLES = 8


def bounds(comm: unisono.Communicator, ordered: Numbers) -> Numbers:
    """What divides the numbers among ranks: the least number of each rank but the first."""
    wanted = SAMPLES * comm.size
    places = np.linspace(0, len(ordered), wanted, endpoint=False).astype(int)
    mine = ordered[places] if len(ordered) else ordered
    counts = comm.all_gather(np.array(len(mine)))
    samples = np.sort(comm.all_gather_v(mine, counts))
    at = len(samples) * np.arange(1, comm.size) // comm.size
    return samples[at] if len(samples) else np.zeros(comm.size - 1)


def sample_sort(comm: unisono.Communicator, numbers: Numbers) -> Numbers:
    """Sorts the numbers of all ranks.

    Args:
        comm: The communicator.
        numbers: This rank's, of any length on each rank.

    Returns:
        This rank's part of the sorted numbers: none is less than one of a lower rank.
    """
    ordered = np.sort(numbers)
    cuts = np.searchsorted(ordered, bounds(comm, ordered))
    sent = np.diff(cuts, prepend=0, append=len(ordered))
    received = comm.all_to_all(sent)
    return np.sort(comm.all_to_all_v(ordered, sent, received))


def main() -> int:
    parser = argparse.ArgumentParser(description="Sorts numbers that are divided among ranks.")
    parser.add_argument("--numbers", type=int, default=1_000_000)
    arguments = parser.parse_args()

    with unisono.init() as comm:
        whole = np.random.default_rng(0).standard_normal(arguments.numbers)
        part = sample_sort(comm, np.array_split(whole, comm.size)[comm.rank])
        counts = comm.all_gather(np.array(len(part)))
        together = comm.gather_v(part, counts)
        is_right = comm.rank != 0 or np.array_equal(together, np.sort(whole))
        if comm.rank == 0:
            print(
                f"sample sort: {comm.size} ranks have {counts.tolist()} numbers: "
                f"{'sorted' if is_right else 'WRONG'}"
            )
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
