"""Types that the core does not have: moved bit for bit, combined in parts, or refused by name."""

import numpy as np
import pytest
import unisono
from python.tiers import quick
from unisono.testing import run_ranks

RANKS = quick(range(2, 10), (2, 3, 5))
RECORD = np.dtype([("id", "<i4"), ("name", "S5"), ("at", ">f8"), ("flags", "?", (2,))])
TYPES = {
    "bool": np.dtype(bool),
    "complex64": np.dtype("c8"),
    "complex128": np.dtype("c16"),
    "datetime": np.dtype("M8[us]"),
    "timedelta": np.dtype("m8[D]"),
    "structured": RECORD,
    "aligned": np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"]}, align=True),
    "big endian float": np.dtype(">f8"),
    "big endian complex": np.dtype(">c8"),
    "big endian int": np.dtype(">i2"),
    "bytes": np.dtype("S3"),
    "text": np.dtype("U2"),
    "raw": np.dtype("V7"),
}
TRANSPORTS = ["", "socket"]


def values(dtype: np.dtype, seed: int, *shape: int) -> np.ndarray:
    """Random bits, but for booleans, which are 0 or 1."""
    random = np.random.default_rng([seed, dtype.itemsize])
    count = int(np.prod(shape))
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    return np.frombuffer(random.bytes(count * dtype.itemsize), dtype).reshape(shape).copy()


def joined(arrays: list[np.ndarray]) -> np.ndarray:
    """np.concatenate, which changes the byte order and leaves padding out, bit for bit."""
    whole = np.frombuffer(b"".join(one.tobytes() for one in arrays), arrays[0].dtype)
    return whole.reshape(-1, *arrays[0].shape[1:])


def check_same(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("dtype", TYPES.values(), ids=TYPES)
def test_calls_that_move_take_every_type_bit_for_bit(dtype, transport):
    ranks, root = 3, 1
    xs = [values(dtype, rank, 5, 2) for rank in range(ranks)]
    blocks = [values(dtype, 10 + rank, ranks, 2) for rank in range(ranks)]
    whole = joined(xs)

    def check(comm):
        me = comm.rank
        x, mine = xs[me], blocks[me]
        x.flags.writeable = False
        check_same(comm.all_gather(x), whole)
        gathered = comm.gather(x, root)
        if me == root:
            check_same(gathered, whole)
        check_same(comm.broadcast(x, root, out=np.zeros_like(x)), xs[root])
        part = comm.scatter(mine if me == root else None, root, out=np.zeros((1, 2), dtype))
        check_same(part, blocks[root][me : me + 1])
        check_same(comm.all_to_all(mine), joined([block[me : me + 1] for block in blocks]))
        right, left = (me + 1) % ranks, (me - 1) % ranks
        check_same(comm.sendrecv(x, right, np.zeros_like(x), left), xs[left])

    run_ranks(ranks, check, transport=transport)


@pytest.mark.parametrize(
    "dtype", [TYPES["complex128"], TYPES["structured"], TYPES["bool"]], ids=str
)
@pytest.mark.parametrize("ranks", RANKS)
def test_counts_and_displacements_are_in_elements(ranks, dtype):
    counts = np.random.default_rng(ranks).integers(0, 5, (ranks, ranks))  # from, to

    def check(comm):
        send, recv = counts[comm.rank], counts[:, comm.rank]
        x = values(dtype, comm.rank, int(send.sum()) + 1)
        starts = np.cumsum([1, *recv + 1])[:-1]  # an element is left alone before each part
        out = np.zeros(int(recv.sum()) + ranks, dtype)
        comm.all_to_all_v(
            x, send, recv, send_displacements=np.cumsum([1, *send])[:-1],
            recv_displacements=starts, out=out,
        )  # fmt: skip
        expected = np.zeros_like(out)
        for other in range(ranks):
            sent = values(dtype, other, int(counts[other].sum()) + 1)
            first = 1 + counts[other, : comm.rank].sum()
            part = sent[first : first + recv[other]]
            expected[starts[other] : starts[other] + recv[other]] = part
        check_same(out, expected)

    run_ranks(ranks, check)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.dtype("f4"), *TYPES.values()], ids=["float32", *TYPES])
def test_arrays_of_any_shape(shape, dtype):
    def check(comm):
        x = values(dtype, comm.rank, *shape)
        everyone = [values(dtype, rank, *shape) for rank in range(2)]
        gathered = comm.all_gather(x)
        assert gathered.shape == ((2,) if shape == () else (2 * shape[0], *shape[1:]))
        assert gathered.tobytes() == everyone[0].tobytes() + everyone[1].tobytes()
        comm.broadcast(x, 1)
        check_same(x, everyone[1])

    run_ranks(2, check)


# Reductions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("ranks", RANKS)
def test_sums_of_complex_numbers(ranks, dtype):
    random = np.random.default_rng(ranks)
    shape = (ranks, 3 * ranks, 2)
    # Whole numbers, so that sums in any order are exact.
    xs = (random.integers(-9, 9, shape) + 1j * random.integers(-9, 9, shape)).astype(dtype)
    total = xs.sum(axis=0)

    def check(comm):
        x = xs[comm.rank].copy()
        check_same(comm.all_reduce(x), total)
        check_same(comm.reduce_scatter(x), total[3 * comm.rank : 3 * comm.rank + 3])
        at_root = comm.reduce(x, root=ranks - 1)
        if comm.rank == ranks - 1:
            check_same(at_root, total)
        mean = comm.all_reduce(x, "average")
        assert mean.dtype == dtype
        np.testing.assert_allclose(mean, total / ranks, rtol=1e-6, atol=1e-6)
        weighted = comm.all_reduce(x, "pre_multiplied_sum", multiplier=comm.rank)
        check_same(weighted, np.tensordot(np.arange(ranks), xs, 1).astype(dtype))
        comm.all_reduce(x, out=x)
        check_same(x, total)

    run_ranks(ranks, check)


@pytest.mark.parametrize("ranks", RANKS)
def test_or_and_and_of_booleans(ranks):
    xs = np.random.default_rng(ranks).random((ranks, 40)) < 0.5

    def check(comm):
        check_same(comm.all_reduce(xs[comm.rank], "max"), xs.any(axis=0))
        check_same(comm.all_reduce(xs[comm.rank], "min"), xs.all(axis=0))

    run_ranks(ranks, check)


@pytest.mark.parametrize(
    ("dtype", "op", "text"),
    [
        (bool, "sum", "type bool, for which there is no sum; there are min, max"),
        ("c8", "max", "type complex64, for which there is no max; there are sum, average, pre_"),
        ("c16", "product", "type complex128, for which there is no product"),
        ("M8[s]", "max", r"type datetime64\[s\], for which there is no max"),
        (">f4", "sum", "type >f4, for which there is no sum; .* in the machine's byte order"),
        (RECORD, "sum", r"type \[\('id', '<i4'\).*, for which there is no sum"),
        ("S3", "min", r"type \|S3, for which there is no min"),
    ],
    ids=["bool", "complex64", "complex128", "datetime", "byte order", "structured", "bytes"],
)
def test_what_cannot_be_combined_is_refused_by_name(dtype, op, text):
    def check(comm):
        x = np.zeros(2, dtype)
        for call in (comm.all_reduce, comm.reduce, comm.reduce_scatter):
            what = f"the input of {call.__name__} on rank {comm.rank}"
            with pytest.raises(unisono.MisuseError, match=f"{what} .*{text}"):
                call(x, op)
        comm.barrier()

    run_ranks(2, check)


# What is refused whatever the call ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.dtype("f8"), *TYPES.values()], ids=["float64", *TYPES])
def test_strides_fortran_order_and_read_only_outputs_are_refused(dtype):
    def check(comm):
        x = np.zeros((4, 6), dtype)
        fixed = np.zeros((8, 6), dtype)
        fixed.flags.writeable = False
        with pytest.raises(
            unisono.MisuseError, match=r"not contiguous: shape \(4, 3\), strides \(6, 2\)"
        ):
            comm.all_gather(x[:, ::2])
        with pytest.raises(unisono.MisuseError, match=r"not contiguous: shape \(6, 4\)"):
            comm.all_gather(x.T)
        with pytest.raises(unisono.MisuseError, match="not contiguous"):
            comm.all_gather(x, out=np.zeros((8, 6), dtype, order="F"))
        with pytest.raises(unisono.MisuseError, match="is read-only"):
            comm.all_gather(x, out=fixed)
        column = np.asfortranarray(x[:, :1])  # both orders at once
        check_same(comm.all_gather(column), joined([column, column]))

    run_ranks(2, check)


@pytest.mark.parametrize(
    "dtype", [object, [("a", "f4"), ("b", "O")]], ids=["object", "in a record"]
)
def test_references_are_refused_with_the_calls_that_take_objects(dtype):
    def check(comm):
        with pytest.raises(unisono.MisuseError, match="references to Python objects; send_object"):
            comm.all_gather(np.zeros(3, dtype))

    run_ranks(2, check)


def test_an_output_of_another_type_is_refused():
    def check(comm):
        with pytest.raises(unisono.MisuseError, match="has type <f8 and the input >f8|float64"):
            comm.all_gather(np.zeros(3, ">f8"), out=np.zeros(6))
        with pytest.raises(unisono.MisuseError, match="has type uint8 and the input bool"):
            comm.all_gather(np.zeros(3, bool), out=np.zeros(6, np.uint8))
        with pytest.raises(unisono.MisuseError, match="which dtype= does not read"):
            comm.all_gather(np.zeros(3, ">f8"), dtype="float64")

    run_ranks(2, check)
