"""Collectives of uneven parts, and prefix reductions, against NumPy."""

import numpy as np
import pytest
import unisono
from python.tiers import quick
from unisono.scan_calls import exclusive_scan, inclusive_scan
from unisono.testing import run_ranks

RANKS = quick(range(2, 10), (2, 3, 5))
TRANSPORTS = ["", "socket"]
OPERATIONS = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}
POISON = 77


def random_counts(ranks: int, seed: int) -> list[int]:
    """About every third is 0."""
    random = np.random.default_rng([ranks, seed])
    return (random.integers(1, 9, ranks) * (random.random(ranks) < 0.7)).tolist()


def placed(counts: list[int]) -> list[int]:
    """Where parts start that lie in reverse order, with an element between them."""
    ends = np.cumsum([1, *[count + 1 for count in counts[::-1]]])
    return ends[:-1][::-1].tolist()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("ranks", RANKS)
def test_parts_of_random_lengths(ranks, dtype, transport):
    def check(comm):
        me = comm.rank
        for seed in range(4):
            counts, root = random_counts(ranks, seed), seed % ranks
            parts = [(np.arange(count) + 100 * r).astype(dtype) for r, count in enumerate(counts)]
            whole = np.concatenate(parts)
            np.testing.assert_array_equal(comm.all_gather_v(parts[me], counts), whole)
            gathered = comm.gather_v(parts[me], counts, root)
            if me == root:
                np.testing.assert_array_equal(gathered, whole)
            else:
                assert gathered is None
            out = np.full(counts[me], POISON, dtype)
            given = whole if me == root else None
            assert comm.scatter_v(given, counts, root, out=out) is out
            np.testing.assert_array_equal(out, parts[me])

    run_ranks(ranks, check, transport=transport)


@pytest.mark.parametrize("ranks", RANKS)
def test_parts_at_displacements(ranks):
    def check(comm):
        me = comm.rank
        counts = random_counts(ranks, 9)
        starts = placed(counts)
        expected = np.full(sum(counts) + ranks + 1, POISON)
        for rank, (start, count) in enumerate(zip(starts, counts, strict=True)):
            expected[start : start + count] = np.arange(count) + 100 * rank
        mine = np.arange(counts[me]) + 100 * me
        out = np.full_like(expected, POISON)
        comm.all_gather_v(mine, counts, displacements=starts, out=out)
        np.testing.assert_array_equal(out, expected)
        out[:] = POISON
        comm.gather_v(mine, counts, 1, displacements=starts, out=out if me == 1 else None)
        np.testing.assert_array_equal(out, expected if me == 1 else np.full_like(out, POISON))
        given = expected if me == 1 else None
        part = comm.scatter_v(given, counts, 1, displacements=starts, out=np.zeros_like(mine))
        np.testing.assert_array_equal(part, mine)

    run_ranks(ranks, check)


@pytest.mark.parametrize("dtype", ["int16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("ranks", RANKS)
def test_reductions_of_parts_of_random_lengths(ranks, dtype):
    def check(comm):
        for seed in range(3):
            counts = random_counts(ranks, seed)
            xs = np.random.default_rng([ranks, seed]).integers(1, 3, (ranks, sum(counts)))
            xs = xs.astype(dtype)
            part = slice(sum(counts[: comm.rank]), sum(counts[: comm.rank + 1]))
            for op, combine in list(OPERATIONS.items())[: 1 if dtype == "complex64" else None]:
                expected = combine.reduce(xs, axis=0)[part].astype(dtype)
                found = comm.reduce_scatter_v(xs[comm.rank], counts, op)
                assert found.dtype == dtype
                np.testing.assert_array_equal(found, expected)
            out = np.full(counts[comm.rank], POISON, dtype)
            x = xs[comm.rank]
            comm.reduce_scatter_v(x, counts, "pre_multiplied_sum", out=out, multiplier=2)
            np.testing.assert_array_equal(out, 2 * xs.sum(axis=0)[part].astype(dtype))

    run_ranks(ranks, check)


def test_started_calls_give_what_the_calls_give():
    def check(comm):
        counts = [2, 0, 3]
        mine = np.full(counts[comm.rank], comm.rank)
        works = [
            comm.all_gather_v(mine, counts, async_op=True),
            comm.gather_v(mine, counts, 2, async_op=True),
            comm.scan(np.array([comm.rank]), async_op=True),
        ]
        gathered, at_root, prefix = unisono.wait_all(works)
        assert gathered.tolist() == [0, 0, 2, 2, 2]
        assert at_root is None if comm.rank != 2 else at_root.tolist() == gathered.tolist()
        assert prefix.tolist() == [comm.rank * (comm.rank + 1) // 2]

    run_ranks(3, check)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda comm, x: comm.all_gather_v(x, [3]), r"counts is \[3\] in all_gather_v .* 2 ranks"),
        (lambda comm, x: comm.all_gather_v(x, [3, -1]), "0 or more, for each of 2 ranks"),
        (lambda comm, x: comm.all_gather_v(x, [4, 4]), "input .* has 3 elements; counts say 4"),
        (lambda comm, x: comm.gather_v(x, [3, 3], 2), "root is 2 in gather_v"),
        (
            lambda comm, x: comm.all_gather_v(x, [3, 3], out=np.zeros(5)),
            "output .* has 5 elements; counts and displacements need 6",
        ),
        (
            lambda comm, x: comm.all_gather_v(x, [3, 3], out=np.zeros(6, "f4")),
            "type float32 and the input float64",
        ),
        (
            lambda comm, x: comm.all_gather_v(x, [3, 3], displacements=[0, 2], out=np.zeros(6)),
            "overlap",
        ),
        (lambda comm, x: comm.scatter_v(None, [3, 3], 1 - comm.rank), "scatter_v .* needs out="),
        (lambda comm, x: comm.scatter_v(x, [3, 3], comm.rank), "has 3 elements; .* need 6"),
        (lambda comm, x: comm.reduce_scatter_v(x, [1, 1]), "has 3 elements; counts say 2"),
        (lambda comm, x: comm.scan(x, "average"), "operation is average in program inclusive_scan"),
        (lambda comm, x: comm.scan(np.zeros(3, bool)), "type bool, for which there is no sum"),
        (lambda comm, x: comm.exscan(x, algorithm="ring"), "the program is the algorithm"),
    ],
    ids=["too few counts", "negative", "part", "root", "room", "type", "overlap", "no output",
         "too little to scatter", "reduction", "average", "bool", "algorithm"],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_the_communicator_is_usable(call, text):
    def check(comm):
        with pytest.raises(unisono.MisuseError, match=text):
            call(comm, np.zeros(3))
        assert comm.all_reduce(np.ones(1))[0] == 2

    run_ranks(2, check)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda comm, x, n: comm.all_gather_v(x, [3, n]), "input of all_gather_v on rank 1 has 3"),
        (lambda comm, x, n: comm.gather_v(x, [3, n, 1][:2]), "input of gather_v on rank 1 has 3"),
        (lambda comm, x, n: comm.reduce_scatter_v(x, [1, n - 1]), "has 3 elements; counts say"),
        (lambda comm, x, n: comm.scan(x if n == 3 else None), "is a NoneType"),
        (lambda comm, x, n: comm.broadcast_object(1, root=0 if n == 3 else 2), "root is 2"),
        (lambda comm, x, n: comm.all_gather_object(1, max_bytes=n - 4), "max_bytes is"),
    ],
    ids=["all_gather_v", "gather_v", "reduce_scatter_v", "scan", "broadcast_object",
         "all_gather_object"],
)  # fmt: skip
def test_where_calls_are_compared_all_ranks_report_a_call_that_one_cannot_make(call, text):
    def check(comm):
        right = 3 if "max_bytes" not in text else 4
        with pytest.raises(unisono.MisuseError, match=text):
            call(comm, np.zeros(3), right if comm.rank == 0 else right - 2)
        assert comm.all_reduce(np.ones(1))[0] == 2

    run_ranks(2, check, settings={"UNISONO_CHECK_CALLS": "1"}, timeout=20)


# Prefix reductions -------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("count", [0, 1, 1000, 100_003])
@pytest.mark.parametrize("ranks", quick(range(1, 10), (1, 2, 3, 5)))
def test_scans_are_numpys_bit_for_bit(ranks, count, transport):
    """Elements are combined in the order of ranks, as NumPy accumulates."""
    xs = np.random.default_rng(ranks).standard_normal((ranks, count)).astype(np.float32)

    def check(comm):
        x = xs[comm.rank].copy()
        for op, combine in OPERATIONS.items():
            expected = combine.accumulate(xs, axis=0)
            np.testing.assert_array_equal(comm.scan(x, op), expected[comm.rank])
            out = np.full(count, POISON, np.float32)
            assert comm.exscan(x, op, out=out) is out
            before = expected[comm.rank - 1] if comm.rank > 0 else np.full_like(out, POISON)
            np.testing.assert_array_equal(out, before)
        comm.scan(x, out=x)
        np.testing.assert_array_equal(x, np.add.accumulate(xs, axis=0)[comm.rank])

    run_ranks(ranks, check, transport=transport)


def test_scans_of_integers_and_complex_numbers_on_two_nodes():
    def check(comm):
        whole = np.array([comm.rank + 1, 2**31], np.uint32)
        assert comm.scan(whole)[0] == sum(range(1, comm.rank + 2))
        assert comm.scan(whole)[1] == (2**31 * (comm.rank + 1)) % 2**32
        pair = comm.scan(np.array([1 + 2j]) * comm.rank)
        np.testing.assert_array_equal(pair, [(1 + 2j) * sum(range(comm.rank + 1))])

    run_ranks(5, check, nodes=2)


@pytest.mark.parametrize("chain", [inclusive_scan, exclusive_scan], ids=lambda one: one.name)
@pytest.mark.parametrize("ranks", range(2, 10))
def test_the_programs_of_scans_are_verified(chain, ranks):
    """Compilation has proved the sums; the plan is proved to run in order."""
    plan = chain.compile(ranks).plan
    assert plan.verify().ok
    assert (plan.collective, plan.ranks) == ("custom", ranks)
