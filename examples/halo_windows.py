"""Heat that spreads along a ring of cells, by windows: neighbours write into each other's borders.

    unisono run -n 4 examples/halo_windows.py

Compare halo_exchange.py, which sends and receives.
"""

import sys

import numpy as np
import unisono
from numpy.typing import NDArray


def spread(comm: unisono.Communicator, block: NDArray[np.float64], steps: int) -> None:
    """Changes this rank's block, which has a border of one cell at each end."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    with comm.window(block) as window:
        for _ in range(steps):
            window.put(block[1:2], left, -1, signal=0)
            window.put(block[-2:-1], right, 0, signal=1)
            comm.wait_signals(right, 0)
            comm.wait_signals(left, 1)
            block[1:-1] = (block[:-2] + block[1:-1] + block[2:]) / 3
            comm.signal(left, 2)  # its next put may come
            comm.signal(right, 3)
            comm.wait_signals(right, 2)
            comm.wait_signals(left, 3)


def main() -> int:
    cells, steps = 1000, 50
    with unisono.init() as comm:
        ring = np.random.default_rng(0).random(cells * comm.size)
        block = np.pad(ring[comm.rank * cells :][:cells], 1)
        spread(comm, block, steps)
        for _ in range(steps):
            ring = (np.roll(ring, 1) + ring + np.roll(ring, -1)) / 3
        is_same = np.array_equal(block[1:-1], ring[comm.rank * cells :][:cells])
        everywhere = bool(comm.all_reduce(np.array(is_same), "min"))
        if comm.rank == 0:
            result = "the same as one process's, bit for bit" if everywhere else "DIFFERENT"
            print(f"halo by windows: {comm.size} ranks, {steps} steps: {result}")
    return 0 if everywhere else 1


if __name__ == "__main__":
    sys.exit(main())
