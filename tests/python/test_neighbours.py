"""Neighbourhoods and Cartesian grids against NumPy's roll and against lists."""

import itertools

import numpy as np
import pytest
import unisono
from python.tiers import quick
from unisono.testing import run_ranks

TRANSPORTS = ["", "socket"]
SHAPES = [(2,), (3,), (2, 2), (3, 2), (1, 3), (2, 2, 2), (9,), (3, 3), (5, 1)]
QUICK_SHAPES = [(2,), (3, 2), (1, 3), (2, 2, 2)]
POISON = 77


def beyond(place: int, length: int, is_periodic: bool) -> int | None:
    if is_periodic:
        return place % length
    return place if 0 <= place < length else None


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("shape", quick(SHAPES, QUICK_SHAPES), ids=str)
def test_a_grid_moves_data_as_numpy_rolls_it(shape, periodic, transport):
    numbers = np.arange(np.prod(shape)).reshape(shape)

    def check(comm):
        grid = comm.cartesian(shape, periodic)
        assert numbers[grid.coordinates] == grid.comm.rank == comm.rank
        # To each direction another value, so that a mix-up of two messages of one pair is seen.
        directions = 2 * len(shape)
        x = np.array([[100 * comm.rank + i, i] for i in range(directions)])
        found = grid.all_to_all(x, out=np.full_like(x, POISON))
        gathered = grid.all_gather(np.array([comm.rank, 5]))
        for dimension, (step, side) in itertools.product(range(len(shape)), [(-1, 0), (1, 1)]):
            index = 2 * dimension + side
            place = list(grid.coordinates)
            there = beyond(place[dimension] + step, shape[dimension], periodic)
            if there is None:
                assert found[index].tolist() == [POISON, POISON]
                assert gathered[index].tolist() == [0, 0]
                continue
            place[dimension] = there
            neighbour = numbers[tuple(place)]
            opposite = index ^ 1
            assert found[index].tolist() == [100 * neighbour + opposite, opposite]
            assert gathered[index].tolist() == [neighbour, 5]

    run_ranks(int(np.prod(shape)), check, transport=transport)


def test_places_ranks_and_shifts():
    def check(comm):
        grid = comm.cartesian((2, 3), (False, True))
        for rank in range(6):
            assert grid.coordinates_of(rank) == divmod(rank, 3)
            assert grid.rank_at(divmod(rank, 3)) == rank
        assert grid.rank_at((0, -1)) == 2
        assert grid.rank_at((0, 5)) == 2
        assert grid.rank_at((-1, 0)) is None
        assert grid.rank_at((2, 0)) is None
        row, column = grid.coordinates
        assert grid.shift(0) == (comm.rank - 3 if row else None, None if row else comm.rank + 3)
        assert grid.shift(1, 2) == (3 * row + (column - 2) % 3, 3 * row + (column + 2) % 3)
        assert grid.shift(0, -1) == grid.shift(0)[::-1]

    run_ranks(6, check)


def test_ranks_without_a_place_are_in_no_grid():
    def check(comm):
        grid = comm.cartesian((2, 2))
        assert (grid is None) == (comm.rank == 4)
        if grid is not None:
            assert grid.comm.size == 4
            grid.comm.barrier()

    run_ranks(5, check)


@pytest.mark.parametrize("ranks", quick(range(2, 10), (2, 4)))
@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_with_arrays_of_random_lengths(ranks, seed):
    """Each edge may be there up to twice, and may lead from a rank to itself."""
    random = np.random.default_rng([ranks, seed])
    edges = [
        (a, b)
        for a, b in itertools.product(range(ranks), repeat=2)
        for _ in range(random.integers(0, 3))
    ]
    lengths = {index: int(random.integers(0, 6)) for index in range(len(edges))}

    def check(comm):
        leaving = [i for i, (a, _) in enumerate(edges) if a == comm.rank]
        coming = [i for i, (_, b) in enumerate(edges) if b == comm.rank]
        around = comm.neighbourhood([edges[i][0] for i in coming], [edges[i][1] for i in leaving])
        sent = [np.full(lengths[i], i) for i in leaving]
        received = [np.zeros(lengths[i], np.int64) for i in coming]
        assert around.exchange(sent, received) is received
        for i, found in zip(coming, received, strict=True):
            assert found.tolist() == [i] * lengths[i]
        work = around.exchange(sent, received, async_op=True)
        assert work.wait() is received

    run_ranks(ranks, check)


def test_what_cannot_be_is_refused():
    def check(comm):
        for shape, text in (
            ((3,), r"shape is \[3\] for 2 ranks"),
            ((), r"shape is \[\] for 2 ranks"),
            ((2, 0), "1 or more, for each dimension"),
        ):
            with pytest.raises(unisono.MisuseError, match=text):
                comm.cartesian(shape)
        with pytest.raises(unisono.MisuseError, match="periodic has 2 entries"):
            comm.cartesian((2,), (True, False))
        with pytest.raises(
            unisono.MisuseError, match=r"sources is \[2\] .* must be 0 to 1, or None"
        ):
            comm.neighbourhood([2], [0])
        grid = comm.cartesian((2,))
        with pytest.raises(unisono.MisuseError, match="dimension is 1; it must be 0 to 0"):
            grid.shift(1)
        with pytest.raises(unisono.MisuseError, match="coordinates is .* must have 1 numbers"):
            grid.rank_at((0, 0))
        with pytest.raises(unisono.MisuseError, match="rank is 2; it must be 0 to 1"):
            grid.coordinates_of(2)
        with pytest.raises(
            unisono.MisuseError, match="sent has 1 arrays .* each of 2 destinations"
        ):
            grid.exchange([None], [None, None])
        with pytest.raises(
            unisono.MisuseError, match=r"shape \(3,\); its first dimension must be 2"
        ):
            grid.all_to_all(np.zeros(3))
        with pytest.raises(unisono.MisuseError, match=r"for 2 sources it must have shape \(2, 3\)"):
            grid.all_gather(np.zeros(3), out=np.zeros((2, 4)))
        grid.comm.barrier()

    run_ranks(2, check)


def test_a_duplicate_has_calls_of_its_own():
    def check(comm):
        other = comm.dup()
        assert (other.rank, other.size) == (comm.rank, comm.size)
        assert other.id != comm.id
        # The messages of one communicator do not match receives of the other.
        out, also = np.zeros(1), np.zeros(1)
        peer = 1 - comm.rank
        works = [
            other.recv(out, peer, async_op=True),
            comm.recv(also, peer, async_op=True),
            comm.send(np.array([1.0]), peer, async_op=True),
            other.send(np.array([2.0]), peer, async_op=True),
        ]
        unisono.wait_all(works)
        assert (out[0], also[0]) == (2, 1)

    run_ranks(2, check)
