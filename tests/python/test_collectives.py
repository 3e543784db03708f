"""Every collective against NumPy, on ranks that are threads."""

import numpy as np
import pytest
import unisono
from unisono.testing import run_ranks

RANKS = [2, 3, 5]
TYPES = ["int8", "uint16", "int32", "uint64", "float16", "float32", "float64"]
OPERATIONS = {"sum": np.sum, "product": np.prod, "min": np.min, "max": np.max}


def inputs(ranks, count, dtype, seed):
    """Whole numbers so small that every sum and product of them is exact in every type."""
    generator = np.random.default_rng(seed)
    return generator.integers(1, 3, (ranks, count)).astype(dtype)


def poisoned(count, dtype):
    return np.full(count, 77, dtype)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", TYPES)
def test_reductions(ranks, dtype):
    count = 4 * ranks + 1
    xs = inputs(ranks, count, dtype, seed=ranks)
    blocks = inputs(ranks, 3 * ranks, dtype, seed=ranks + 100)
    root = ranks - 1

    def check(comm):
        x = xs[comm.rank]
        for op, reduce in OPERATIONS.items():
            expected = reduce(xs, axis=0).astype(dtype)
            out = poisoned(count, dtype)
            assert comm.all_reduce(x, op, out=out) is out
            np.testing.assert_array_equal(out, expected)
            at_root = comm.reduce(x, op, root)
            if comm.rank == root:
                np.testing.assert_array_equal(at_root, expected)
            else:
                assert at_root is None
            mine = comm.reduce_scatter(blocks[comm.rank], op)
            whole = reduce(blocks, axis=0).astype(dtype)
            np.testing.assert_array_equal(mine, whole[3 * comm.rank : 3 * comm.rank + 3])
        in_place = x.copy()
        assert comm.all_reduce(in_place, out=in_place) is in_place
        np.testing.assert_array_equal(in_place, xs.sum(axis=0).astype(dtype))

    run_ranks(ranks, check)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_data_movement(ranks, dtype, nodes):
    xs = np.arange(ranks * 7).reshape(ranks, 7).astype(dtype)
    blocks = np.arange(ranks * ranks * 3).reshape(ranks, ranks * 3).astype(dtype)
    root = 1

    def check(comm):
        x, mine = xs[comm.rank], blocks[comm.rank]
        np.testing.assert_array_equal(comm.all_gather(x), xs.ravel())
        here = poisoned(7 * ranks, dtype)
        own = here[7 * comm.rank : 7 * comm.rank + 7]
        own[:] = x
        comm.all_gather(own, out=here)
        np.testing.assert_array_equal(here, xs.ravel())

        everywhere = x.copy() if comm.rank == root else poisoned(7, dtype)
        assert comm.broadcast(everywhere, root) is everywhere
        np.testing.assert_array_equal(everywhere, xs[root])
        np.testing.assert_array_equal(comm.broadcast(x, root, out=poisoned(7, dtype)), xs[root])

        gathered = comm.gather(x, root)
        if comm.rank == root:
            np.testing.assert_array_equal(gathered, xs.ravel())
        else:
            assert gathered is None
        out = None if comm.rank == root else poisoned(3, dtype)
        part = comm.scatter(mine if comm.rank == root else None, root, out=out)
        np.testing.assert_array_equal(part, blocks[root][3 * comm.rank : 3 * comm.rank + 3])

        expected = blocks.reshape(ranks, ranks, 3)[:, comm.rank].ravel()
        np.testing.assert_array_equal(comm.all_to_all(mine), expected)
        comm.barrier()

    run_ranks(ranks, check, nodes=min(nodes, ranks))


@pytest.mark.parametrize("ranks", RANKS)
def test_all_to_all_of_uneven_parts(ranks):
    counts = np.random.default_rng(ranks).integers(0, 9, (ranks, ranks))  # from, to

    def check(comm):
        send, recv = counts[comm.rank], counts[:, comm.rank]
        x = np.arange(send.sum(), dtype=np.int32) + 1000 * comm.rank
        expected = np.concatenate(
            [
                1000 * other + counts[other, : comm.rank].sum() + np.arange(recv[other])
                for other in range(ranks)
            ]
        )
        np.testing.assert_array_equal(comm.all_to_all_v(x, send, recv), expected)
        # In reverse order, with holes between.
        starts = [int(20 * (ranks - 1 - other)) for other in range(ranks)]
        out = poisoned(20 * ranks, np.int32)
        comm.all_to_all_v(x, send, recv, recv_displacements=starts, out=out)
        untouched = np.ones(20 * ranks, bool)
        for other in range(ranks):
            part = slice(starts[other], starts[other] + recv[other])
            first = recv[:other].sum()
            np.testing.assert_array_equal(out[part], expected[first : first + recv[other]])
            untouched[part] = False
        assert (out[untouched] == 77).all()

    run_ranks(ranks, check)


@pytest.mark.parametrize("ranks", RANKS)
def test_average_and_multiplied_sum(ranks):
    def check(comm):
        x = np.full(6, 10 * (comm.rank + 1), np.int32)
        total = 10 * ranks * (ranks + 1) // 2
        np.testing.assert_array_equal(comm.all_reduce(x, "average"), [total // ranks] * 6)
        mean = comm.all_reduce(x.astype(np.float64), "average")
        np.testing.assert_allclose(mean, total / ranks)
        weighted = comm.all_reduce(x, "pre_multiplied_sum", multiplier=comm.rank)
        assert set(weighted) == {sum(10 * (rank + 1) * rank for rank in range(ranks))}
        halved = comm.all_reduce(x.astype(np.float32), "pre_multiplied_sum", multiplier=0.5)
        np.testing.assert_array_equal(halved, np.full(6, total / 2, np.float32))

    run_ranks(ranks, check)


def test_blocks_lie_along_the_first_dimension():
    def check(comm):
        assert comm.all_gather(np.zeros((2, 3))).shape == (6, 3)
        assert comm.all_gather(np.float32(1)[()]).shape == (3,)
        assert comm.all_gather(np.array(1.0)).shape == (3,)
        assert comm.reduce_scatter(np.zeros((6, 2))).shape == (2, 2)
        assert comm.all_to_all(np.zeros((3, 4))).shape == (3, 4)
        out = np.zeros((3, 2, 3))
        assert comm.all_gather(np.ones((2, 3)), out=out) is out
        return out

    for out in run_ranks(3, check):
        assert (out == 1).all()


@pytest.mark.parametrize("count", [0, 1])
def test_no_elements_and_one(count):
    def check(comm):
        x = np.full(count, comm.rank + 1.0)
        np.testing.assert_array_equal(comm.all_reduce(x), np.full(count, 6.0))
        assert comm.all_gather(x).shape == (3 * count,)
        comm.broadcast(x, 2)
        np.testing.assert_array_equal(x, np.full(count, 3.0))

    run_ranks(3, check)


def test_every_algorithm_and_protocol_by_name():
    """A call by name runs that plan: the record says so, and the result is right."""

    def check(comm):
        x = np.arange(11, dtype=np.float32) + comm.rank
        expected = np.arange(11) * 4 + 6
        names = []
        placement = unisono._unisono.Placement(4, 2)
        for algorithm in unisono._unisono.algorithms("all_reduce"):
            for protocol in unisono.protocols():
                if algorithm.why_not(placement, protocol=protocol):
                    continue
                out = comm.all_reduce(x, algorithm=algorithm.name, protocol=protocol)
                np.testing.assert_array_equal(out, expected)
                names.append((algorithm.name, protocol))
        entries = comm.record()["collectives"]
        assert [(entry["plan"], entry["protocol"]) for entry in entries] == names
        return len(names)

    counts = run_ranks(4, check, nodes=2)
    assert min(counts) >= 9


def test_large_messages():
    """Larger than all slots together, so that they go in tiles and by zero-copy."""
    count = 3_000_017

    def check(comm):
        x = np.arange(count, dtype=np.float32) % 1000 + comm.rank
        out = comm.all_reduce(x, algorithm="ring", protocol="simple")
        np.testing.assert_array_equal(out, 2 * (np.arange(count) % 1000) + 1)
        gathered = comm.all_gather(x)
        np.testing.assert_array_equal(gathered[count:], np.arange(count) % 1000 + 1)

    run_ranks(2, check)


def test_one_rank_alone():
    def check(comm):
        x = np.arange(5.0)
        np.testing.assert_array_equal(comm.all_reduce(x), x)
        np.testing.assert_array_equal(comm.all_gather(x), x)
        np.testing.assert_array_equal(comm.all_to_all(x), x)
        comm.barrier()

    run_ranks(1, check)
