"""Heat that spreads on a plate, which is divided among ranks as a grid of blocks.

    unisono run -n 4 examples/halo_exchange.py

Each rank keeps its block with a border of one cell, the halo. Before each step it fills the halo
with the outer cells of its neighbours' blocks. Beyond the plate the halo remains 0. Each cell is
computed from the same numbers in the same order as by one process, so the result is the same bit
for bit.
"""

import argparse
import sys

import numpy as np
import unisono
from numpy.typing import NDArray

Array = NDArray[np.float64]

# The part of a difference between neighbours that flows in a step; up to 1 / 4 it is stable.
FLOW = 0.2
# The outer cells that are sent to, and the halo that is received from, each neighbour of a grid of
# two dimensions, in its order: above, below, left, right.
EDGES = (np.s_[1, 1:-1], np.s_[-2, 1:-1], np.s_[1:-1, 1], np.s_[1:-1, -2])
HALO = (np.s_[0, 1:-1], np.s_[-1, 1:-1], np.s_[1:-1, 0], np.s_[1:-1, -1])


def step(cells: Array) -> Array:
    """The inner cells after a step."""
    inner = cells[1:-1, 1:-1]
    sides = cells[:-2, 1:-1] + cells[2:, 1:-1] + cells[1:-1, :-2] + cells[1:-1, 2:]
    return inner + FLOW * (sides - 4 * inner)


def alone(plate: Array, steps: int) -> Array:
    """The plate after some steps, by one process."""
    cells = np.pad(plate, 1)
    for _ in range(steps):
        cells[1:-1, 1:-1] = step(cells)
    return cells[1:-1, 1:-1].copy()


def shape_of(ranks: int) -> tuple[int, int]:
    """The most nearly square grid of so many ranks."""
    rows = next(rows for rows in range(int(ranks**0.5), 0, -1) if ranks % rows == 0)
    return rows, ranks // rows


def part(plate: Array, grid: unisono.Grid) -> Array:
    """The block of this rank."""
    row, column = grid.coordinates
    rows = np.array_split(plate, grid.shape[0], axis=0)[row]
    return np.array_split(rows, grid.shape[1], axis=1)[column]


def spread(grid: unisono.Grid, block: Array, steps: int) -> Array:
    """This rank's block after some steps."""
    cells = np.pad(block, 1)
    for _ in range(steps):
        # Columns are not contiguous, so that both sides of an exchange are copies.
        halo = [np.zeros(cells[place].shape) for place in HALO]
        grid.exchange([cells[place].copy() for place in EDGES], halo)
        for place, received in zip(HALO, halo, strict=True):
            cells[place] = received
        cells[1:-1, 1:-1] = step(cells)
    return cells[1:-1, 1:-1].copy()


def main() -> int:
    parser = argparse.ArgumentParser(description="Heat on a plate that is divided among ranks.")
    parser.add_argument("--cells", type=int, default=200, help="rows and columns of the plate")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()

    with unisono.init() as comm:
        plate = np.random.default_rng(0).random((arguments.cells, arguments.cells))
        grid = comm.cartesian(shape_of(comm.size))
        block = spread(grid, part(plate, grid), arguments.steps)
        is_same = np.array_equal(block, part(alone(plate, arguments.steps), grid))
        everywhere = bool(comm.all_reduce(np.array(is_same), "min"))
        if comm.rank == 0:
            rows, columns = grid.shape
            result = "the same as one process's, bit for bit" if everywhere else "DIFFERENT"
            print(f"halo exchange: {rows} x {columns} ranks, {arguments.steps} steps: {result}")
    return 0 if everywhere else 1


if __name__ == "__main__":
    sys.exit(main())
