"""Reductions that ranks fold, against a left fold of the same contributions by NumPy."""

import functools

import numpy as np
import pytest
import unisono
from python.tiers import quick
from unisono.fold_calls import MOST_WHOLE_BYTES
from unisono.testing import run_ranks

RANKS = quick(range(1, 10), (1, 2, 3, 5))
# Elements: none, one, a few, and so many that arrays are cut into parts, unevenly.
COUNTS = (0, 1, 7, MOST_WHOLE_BYTES // 2 + 5)
LOCATED = np.dtype([("value", "f8"), ("index", "i4")])
INTEGERS = ["bool", "int8", "uint16", "int64"]
POISON = 77


def inputs(ranks, count, dtype):
    random = np.random.default_rng([ranks, count])
    if dtype == LOCATED:
        xs = np.empty((ranks, count), LOCATED)
        xs["value"] = random.integers(0, 3, (ranks, count))
        xs["index"] = random.permutation(ranks * count).reshape(ranks, count)
        return xs
    return random.integers(0, 5, (ranks, count)).astype(dtype)


def left_fold(function, xs):
    return functools.reduce(lambda a, b: function(a, b).astype(a.dtype), xs)


def least(a, b):
    """What MPI_MINLOC gives, element by element."""
    pairs = [
        min((p, q), key=lambda one: (one["value"], one["index"])) for p, q in zip(a, b, strict=True)
    ]
    return np.array(pairs, a.dtype)


def greatest(a, b):
    pairs = [
        min((p, q), key=lambda one: (-one["value"], one["index"]))
        for p, q in zip(a, b, strict=True)
    ]
    return np.array(pairs, a.dtype)


def check_all_calls(ranks, op, function, xs, root=0):
    """Compares every reduction by `op` with a left fold by `function`."""
    folds = [left_fold(function, xs[: rank + 1]) for rank in range(ranks)]
    count = xs.shape[1]
    blocks = np.concatenate([xs] * ranks, axis=1)
    counts = [count // ranks + (rank < count % ranks) for rank in range(ranks)]

    def check(comm):
        me = comm.rank
        x = xs[me].copy()
        equal(comm.all_reduce(x, op), folds[-1])
        equal(x, xs[me])
        equal(comm.all_reduce(x, op, out=x), folds[-1])
        reduced = comm.reduce(xs[me], op, root)
        if me == root:
            equal(reduced, folds[-1])
        else:
            assert reduced is None
        equal(comm.reduce_scatter(blocks[me], op), folds[-1])
        part = slice(sum(counts[:me]), sum(counts[: me + 1]))
        equal(comm.reduce_scatter_v(xs[me], counts, op), folds[-1][part])
        equal(comm.scan(xs[me], op), folds[me])
        out = np.full_like(xs[me], POISON)
        comm.exscan(xs[me], op, out=out)
        equal(out, folds[me - 1] if me else np.full_like(out, POISON))

    run_ranks(ranks, check)


def equal(found, expected):
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["and", "or", "xor"])
@pytest.mark.parametrize("dtype", [*INTEGERS, "float32"])
@pytest.mark.parametrize("ranks", RANKS)
def test_logical_and_bitwise_operations(ranks, dtype, name):
    for count in COUNTS:
        xs = inputs(ranks, count, dtype)
        check_all_calls(ranks, f"logical_{name}", getattr(np, f"logical_{name}"), xs)
        if dtype in INTEGERS:
            check_all_calls(ranks, f"bitwise_{name}", getattr(np, f"bitwise_{name}"), xs)


@pytest.mark.parametrize(("op", "function"), [("minloc", least), ("maxloc", greatest)])
@pytest.mark.parametrize("ranks", RANKS)
def test_the_least_and_the_greatest_value_and_where_it_is(ranks, op, function):
    for count in (1, 7, MOST_WHOLE_BYTES // LOCATED.itemsize + 5):
        check_all_calls(ranks, op, function, inputs(ranks, count, LOCATED), root=ranks - 1)


def test_nan_is_the_least_and_the_greatest_value():
    values = [1.0, np.nan, 0.0, np.nan]

    def check(comm):
        x = np.array((values[comm.rank], 9 - comm.rank), LOCATED)
        for op in ("minloc", "maxloc"):
            found = comm.all_reduce(x, op)
            assert found.shape == ()
            assert np.isnan(found["value"])
            assert found["index"] == 6

    run_ranks(4, check)


def rotated(a, b):
    """Associative, but not commutative: b where it is not 0, else a."""
    return np.where(b != 0, b, a)


OPERATIONS = {
    "ufunc": (np.hypot, np.hypot),
    "ufunc of another order": (np.subtract, np.subtract),
    "function": (rotated, rotated),
    "element-wise function": (unisono.Operation(rotated, elementwise=True), rotated),
    "sum in the order of ranks": (np.add, np.add),
    "sum in any order": (unisono.Operation(np.add, commutative=True), np.add),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("ranks", RANKS)
def test_functions_of_the_user(ranks, name):
    op, function = OPERATIONS[name]
    for count in COUNTS[1:]:
        check_all_calls(ranks, op, function, inputs(ranks, count, "float64"))


@pytest.mark.parametrize("shape", [(3, 2, 2), (4000, 2, 2)])
def test_a_function_that_needs_whole_arrays_gets_them(shape):
    """Products of matrices do not commute, and rank 0's is the first factor."""
    xs = np.random.default_rng(1).integers(0, 3, (3, *shape)).astype(np.int64)

    def check(comm):
        for op in (np.matmul, lambda a, b: a @ b):
            equal(comm.all_reduce(xs[comm.rank], op), xs[0] @ xs[1] @ xs[2])
            equal(comm.scan(xs[comm.rank], op), left_fold(np.matmul, xs[: comm.rank + 1]))

    run_ranks(3, check)


def test_a_sum_in_the_order_of_ranks_has_the_bits_of_a_left_fold():
    """A plan's order differs from it: 1e16 + 1 - 1e16 depends on the order."""
    xs = np.array([[1.0], [1e16], [-1e16], [1.0]]) * np.ones(MOST_WHOLE_BYTES)

    def check(comm):
        found = comm.all_reduce(xs[comm.rank], np.add)
        assert found.tobytes() == left_fold(np.add, xs).tobytes()
        assert found.tobytes() == comm.broadcast(found.copy(), 3).tobytes()
        last = comm.scan(xs[comm.rank], np.add)
        assert comm.rank != 3 or last.tobytes() == found.tobytes()

    run_ranks(4, check)


def test_a_commutative_sum_is_the_core_s_own():
    def check(comm):
        comm.all_reduce(np.ones(4, np.float32), unisono.Operation(np.add, commutative=True))
        comm.all_reduce(np.ones(4, bool), "logical_or")
        comm.all_reduce(np.ones(4, np.int32), "logical_or")
        return [call["collective"] for call in comm.record()["collectives"]]

    assert run_ranks(2, check)[0] == ["all_reduce", "all_reduce", "all_gather"]


def test_started_reductions_are_folded_when_they_are_waited_for():
    def check(comm):
        x = np.array([comm.rank + 1])
        works = [
            comm.all_reduce(x, "bitwise_or", async_op=True),
            comm.reduce(x, "bitwise_xor", 1, async_op=True),
            comm.reduce_scatter(np.tile(x, 3), np.subtract, async_op=True),
            comm.exscan(x, "bitwise_or", async_op=True, out=np.array([POISON])),
        ]
        everywhere, at_root, block, before = unisono.wait_all(works)
        assert everywhere.tolist() == [3]
        assert at_root is None if comm.rank != 1 else at_root.tolist() == [0]
        assert block.tolist() == [1 - 2 - 3]
        assert before.tolist() == [[POISON], [1], [3]][comm.rank]

    run_ranks(3, check)


def test_started_reductions_in_parts():
    """Ranks wait for them in different orders, and call others in between."""
    xs = np.random.default_rng(3).integers(0, 1000, (3, MOST_WHOLE_BYTES))

    def check(comm):
        x = xs[comm.rank]
        works = [
            comm.all_reduce(x, "bitwise_or", async_op=True),
            comm.reduce(x, "bitwise_xor", 1, async_op=True),
            comm.scan(x, np.subtract, async_op=True),
        ]
        counts = [len(x), 0, 0]
        core = comm.reduce_scatter_v(x, counts, "sum", async_op=True)
        part = comm.reduce_scatter_v(x, counts, "bitwise_or", async_op=True)
        assert comm.all_reduce(np.ones(1)).tolist() == [3]
        for index in np.roll(range(3), comm.rank):
            works[index].wait()
        everywhere, at_root, prefix = unisono.wait_all(works)
        equal(everywhere, np.bitwise_or.reduce(xs))
        assert (at_root is None) == (comm.rank != 1)
        if at_root is not None:
            equal(at_root, np.bitwise_xor.reduce(xs))
        equal(prefix, left_fold(np.subtract, xs[: comm.rank + 1]))
        equal(core.wait(), xs.sum(axis=0)[: counts[comm.rank]])
        equal(part.wait(), everywhere[: counts[comm.rank]])

    run_ranks(3, check)


def test_an_output_of_another_shape():
    def check(comm):
        x = np.array([[comm.rank + 1, 4]])
        out = np.zeros((2, 1), x.dtype)
        assert comm.all_reduce(x, "bitwise_or", out=out) is out
        assert out.tolist() == [[3], [4]]

    run_ranks(2, check)


def test_a_started_reduction_raises_what_its_function_raises():
    def check(comm):
        def fails(a, b):
            raise ZeroDivisionError(f"on rank {comm.rank}")

        work = comm.all_reduce(np.ones(2), fails, async_op=True)
        with pytest.raises(ZeroDivisionError, match=f"on rank {comm.rank}"):
            work.wait()
        assert comm.all_reduce(np.ones(1)).tolist() == [2]

    run_ranks(2, check)


def test_no_rank_waits_for_a_part_that_a_function_does_not_make():
    """The function fails on rank 1 alone; the others wait for its part."""

    def check(comm):
        def fails(a, b):
            if comm.rank == 1:
                raise ZeroDivisionError
            return a

        op = unisono.Operation(fails, elementwise=True)
        expected = ZeroDivisionError if comm.rank == 1 else unisono.AbortedError
        with pytest.raises(expected):
            comm.all_reduce(np.ones(MOST_WHOLE_BYTES), op)

    run_ranks(3, check)


def test_a_started_reduction_that_fails_leaves_other_calls_alone():
    def check(comm):
        def fails(a, b):
            if comm.rank == 1:
                raise ZeroDivisionError
            return a

        op = unisono.Operation(fails, elementwise=True)
        work = comm.all_reduce(np.ones(MOST_WHOLE_BYTES), op, async_op=True)
        expected = ZeroDivisionError if comm.rank == 1 else unisono.AbortedError
        with pytest.raises(expected):
            work.wait()
        assert comm.all_reduce(np.ones(1)).tolist() == [3]
        with pytest.raises(unisono.AbortedError):
            comm.all_gather_object(1, async_op=True).wait()

    run_ranks(3, check)


def test_buffers_of_python():
    def check(comm):
        out = bytearray(1)
        comm.all_reduce(bytes([comm.rank + 1]), "bitwise_or", out=out)
        assert out == b"\3"

    run_ranks(2, check)


def test_tensors():
    torch = pytest.importorskip("torch")

    def check(comm):
        found = comm.all_reduce(torch.tensor([comm.rank + 1]), "bitwise_or")
        assert torch.equal(found, torch.tensor([3]))

    run_ranks(2, check)


@pytest.mark.parametrize(
    ("x", "op", "text"),
    [
        (np.ones(2), "bitwise_and", "input of all_reduce .* type float64, .* no bitwise_and"),
        (np.ones(2, int), np.hypot, "type int64, for which there is no hypot"),
        (np.ones(2), "minloc", "type float64; minloc takes a structured type of two fields"),
        (np.ones(2), np.exp, "exp is a ufunc of 1 arguments and 1 results"),
        (np.ones(2), lambda a, b: a[:1], r"<lambda> returned shape \(1,\) and type float64; for"),
        (np.ones(2), lambda a, b: None, "<lambda> returned None; for two arrays of shape"),
        (np.ones(2), 3, "op of .*all_reduce is 3, of type int"),
        (np.ones(2), "bitwise_nand", "there is no reduction 'bitwise_nand'"),
    ],
)
def test_what_cannot_be_combined_is_refused_by_name(x, op, text):
    def check(comm):
        with pytest.raises(unisono.MisuseError, match=text):
            comm.all_reduce(x, op)
        assert comm.all_reduce(np.ones(1)).tolist() == [2]

    run_ranks(2, check)


def test_options_of_a_plan_are_refused():
    def check(comm):
        with pytest.raises(unisono.MisuseError, match="algorithm is 'ring' in all_reduce by hypot"):
            comm.all_reduce(np.ones(2), np.hypot, algorithm="ring")

    run_ranks(2, check)
