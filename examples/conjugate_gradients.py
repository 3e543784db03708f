"""Conjugate gradients: ranks solve a linear system whose rows they have divided up.

    unisono run -n 4 examples/conjugate_gradients.py

The system is Poisson's equation in one dimension: -u'' = f, with u = 0 at both ends. A row needs
the unknowns next to its own, so that a rank exchanges one number with each neighbour. Dot products
are all-reduces; since all ranks receive the same bits, they end in the same round.
"""

import argparse
import sys

import numpy as np
import unisono
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def multiply(grid: unisono.Grid, x: Vector) -> Vector:
    """This rank's rows of the matrix with 2 on its diagonal and -1 next to it, times x."""
    around = grid.all_to_all(x[[0, -1]])
    wide = np.concatenate([around[:1], x, around[1:]])
    return 2 * x - wide[:-2] - wide[2:]


def dot(comm: unisono.Communicator, x: Vector, y: Vector) -> float:
    """The dot product of vectors that are divided among ranks."""
    return float(comm.all_reduce(np.array(x @ y)))


def conjugate_gradients(
    grid: unisono.Grid, right: Vector, tolerance: float = 1e-10
) -> tuple[Vector, int]:
    """Solves the system.

    Args:
        grid: The ranks along one dimension.
        right: This rank's part of the right-hand side, at least one number.
        tolerance: The norm of the residual at the end, as a part of that of the right-hand side.

    Returns:
        This rank's part of the solution, and the rounds.
    """
    comm = grid.comm
    x, residual = np.zeros_like(right), right.copy()
    direction, square = residual.copy(), dot(comm, residual, residual)
    enough = tolerance**2 * square
    rounds = 0
    # Without rounding, as many rounds as there are unknowns would be enough.
    most = 2 * int(comm.all_reduce(np.array(len(right))))
    while square > enough and rounds < most:
        product = multiply(grid, direction)
        length = square / dot(comm, direction, product)
        x += length * direction
        residual -= length * product
        before, square = square, dot(comm, residual, residual)
        direction = residual + square / before * direction
        rounds += 1
    return x, rounds


def main() -> int:
    parser = argparse.ArgumentParser(description="Solves Poisson's equation, divided among ranks.")
    parser.add_argument("--unknowns", type=int, default=200)
    arguments = parser.parse_args()

    with unisono.init() as comm:
        grid = comm.cartesian((comm.size,))
        whole = np.random.default_rng(0).standard_normal(arguments.unknowns)
        mine = np.array_split(whole, comm.size)[comm.rank]
        x, rounds = conjugate_gradients(grid, mine)
        miss = mine - multiply(grid, x)
        error = (dot(comm, miss, miss) / float(whole @ whole)) ** 0.5
        if comm.rank == 0:
            print(f"conjugate gradients: {comm.size} ranks, {rounds} rounds, residual {error:.0e}")
    return 0 if error < 1e-8 else 1


if __name__ == "__main__":
    sys.exit(main())
