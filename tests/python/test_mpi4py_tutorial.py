"""The programs of mpi4py's tutorial, in Unisono's calls."""

import numpy as np
import pytest
import unisono
from unisono.testing import run_ranks

RANKS = (2, 3, 4)


def test_an_object_from_rank_to_rank():
    def check(comm):
        data = {"a": 7, "b": 3.14}
        if comm.rank == 0:
            comm.send_object(data, 1, tag=11)
        elif comm.rank == 1:
            assert comm.receive_object(0, tag=11) == data

    run_ranks(2, check)


def test_an_array_from_rank_to_rank_without_waiting_at_once():
    def check(comm):
        if comm.rank == 0:
            comm.send(np.arange(1000, dtype="i"), 1, tag=77, async_op=True).wait()
        else:
            received = comm.recv(np.empty(1000, "i"), 0, tag=77, async_op=True).wait()
            np.testing.assert_array_equal(received, np.arange(1000))

    run_ranks(2, check)


@pytest.mark.parametrize("ranks", RANKS)
def test_broadcasts_of_an_object_and_of_an_array(ranks):
    def check(comm):
        data = {"key1": [7, 2.72, 2 + 3j], "key2": ("abc", "xyz")}
        assert comm.broadcast_object(data if comm.rank == 0 else None) == data
        x = np.arange(100, dtype="i") if comm.rank == 0 else np.empty(100, "i")
        np.testing.assert_array_equal(comm.broadcast(x), np.arange(100))

    run_ranks(ranks, check)


@pytest.mark.parametrize("ranks", RANKS)
def test_scattered_objects_and_arrays(ranks):
    def check(comm):
        squares = [(i + 1) ** 2 for i in range(comm.size)] if comm.rank == 0 else None
        assert comm.scatter_object(squares) == (comm.rank + 1) ** 2
        rows = np.repeat(np.arange(comm.size, dtype="i"), 100).reshape(comm.size, 100)
        mine = comm.scatter(rows if comm.rank == 0 else None, out=np.empty(100, "i"))
        np.testing.assert_array_equal(mine, np.full(100, comm.rank))

    run_ranks(ranks, check)


@pytest.mark.parametrize("ranks", RANKS)
def test_gathered_objects_and_arrays(ranks):
    def check(comm):
        squares = comm.gather_object((comm.rank + 1) ** 2)
        rows = comm.gather(np.full((1, 100), comm.rank, "i"))
        if comm.rank == 0:
            assert squares == [(i + 1) ** 2 for i in range(comm.size)]
            np.testing.assert_array_equal(rows[:, 7], np.arange(comm.size))
        else:
            assert squares is None
            assert rows is None

    run_ranks(ranks, check)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_matrix_times_a_vector(ranks):
    """Each rank has a block of rows and of the vector."""
    rows = 5
    random = np.random.default_rng(2)
    matrix = random.integers(0, 9, (rows * ranks, rows * ranks)).astype(float)
    vector = random.integers(0, 9, rows * ranks).astype(float)

    def check(comm):
        mine = slice(rows * comm.rank, rows * (comm.rank + 1))
        product = matrix[mine] @ comm.all_gather(vector[mine])
        np.testing.assert_array_equal(product, (matrix @ vector)[mine])

    run_ranks(ranks, check)


@pytest.mark.parametrize("ranks", RANKS)
def test_pi_by_the_midpoint_rule(ranks):
    """The tutorial's spawned workers are ranks here; the root broadcasts the number of steps."""

    def check(comm):
        steps = comm.broadcast(np.array(100 if comm.rank == 0 else 0, "i"))
        h = 1 / int(steps)
        middles = h * (np.arange(comm.rank, int(steps), comm.size) + 0.5)
        return comm.reduce(np.array(np.sum(4 / (1 + middles**2)) * h))

    pi = run_ranks(ranks, check)
    assert abs(pi[0] - np.pi) < 1e-4
    assert pi[1:] == [None] * (ranks - 1)


def test_an_operation_of_the_user_s_own():
    def check(comm):
        longest = unisono.Operation(lambda a, b: np.where(np.abs(b) > np.abs(a), b, a))
        found = comm.all_reduce(np.array([-comm.rank, 1]), longest)
        assert found.tolist() == [-2, 1]

    run_ranks(3, check)
