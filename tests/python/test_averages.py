"""Averages of every type at its limits, beside NumPy's float64, on ranks that are threads."""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import unisono
from numpy.typing import NDArray
from python.tiers import quick
from unisono import Communicator
from unisono import _unisono as native
from unisono.bench.elements import element
from unisono.testing import run_ranks

Array = NDArray[Any]


class Format(NamedTuple):
    """A floating type: its significant bits, largest and smallest numbers."""

    significant_bits: int
    largest: float
    smallest: float


FLOATS = {
    "float8_e4m3": Format(4, 448, 2.0**-9),
    "float8_e5m2": Format(3, 57344, 2.0**-16),
    "bfloat16": Format(8, (2 - 2.0**-7) * 2.0**127, 2.0**-133),
    "float16": Format(11, 65504, 2.0**-24),
    "float32": Format(24, float(np.finfo(np.float32).max), 2.0**-149),
    "float64": Format(53, float(np.finfo(np.float64).max), 2.0**-1074),
}
RANKS = quick([2, 3, 4, 5], kept={3})
# One tile and many; small calls repeat on a path of their own.
COUNTS = [11, 60_000]


def encode(values: Array, name: str) -> Array:
    """Numbers as elements; what NumPy lacks as unsigned integers."""
    codes = element(name).encode(values)
    return np.where(np.isnan(values), np.uint8(0x7F), codes) if "float8" in name else codes


def decode(codes: Array, name: str) -> Array:
    """Elements as numbers that hold any of them, and their sums."""
    if name == "bfloat16":
        codes = (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    elif name == "float8_e5m2":
        codes = (codes.astype(np.uint16) << np.uint16(8)).view(np.float16)
    elif name == "float8_e4m3":
        exponent, mantissa = codes >> 3 & 15, codes & 7
        normal = np.ldexp(8.0 + mantissa, exponent.astype(int) - 10)
        size = np.where(exponent == 0, mantissa * 2.0**-9, normal)
        size[codes & 0x7F == 0x7F] = np.nan
        codes = np.where(codes & 0x80, -size, size)
    return codes.astype(np.longdouble)


def contributions(name: str, ranks: int, count: int, random: np.random.Generator) -> Array:
    """By rank and element: at the limits of a type, each element in another way."""
    shape = (ranks, count)
    _, largest, smallest = FLOATS[name]
    signs = random.choice([-1.0, 1.0], shape)
    finite = random.uniform(-1, 1, shape) * largest
    odd = np.arange(ranks)[:, None] == random.integers(0, ranks, count)
    infinity = largest if "float8" in name else np.inf
    kinds = [
        np.full(shape, largest),
        np.full(shape, -largest),
        signs * largest,
        np.where(odd, largest / 2, largest),
        np.where(odd, np.nan, finite),
        np.where(odd, infinity, finite),
        signs * infinity,
        np.full(shape, smallest),
        signs * smallest * random.integers(0, 8, shape),
        finite,
        np.abs(finite),
    ]
    return encode(np.choose(np.arange(count) % len(kinds), kinds), name)


def assert_are_means(found: Array, inputs: Array, name: str) -> None:
    """Holds averages against the bound of docs/reference/operations.md."""
    bits, _, smallest = FLOATS[name]
    ranks = len(inputs)
    shares = decode(inputs, name) / ranks
    got = decode(found, name)
    with np.errstate(invalid="ignore"):
        mean, size = shares.sum(axis=0), np.abs(shares).sum(axis=0)
        wrong = np.abs(got - mean)
    bound = 1.1 * (ranks + 1) * 2.0**-bits * size + np.longdouble(smallest) * ranks / 2
    is_right = np.where(np.isfinite(mean), wrong <= bound, got == mean)
    is_right |= np.isnan(mean) & np.isnan(got)
    at = np.flatnonzero(~is_right)
    assert at.size == 0, f"{got[at[0]]}, not {mean[at[0]]}, of {shares[:, at[0]] * ranks}"


def calls(comm: Communicator, x: Array, name: str) -> Iterator[tuple[str, Array | None]]:
    """What this rank has of each collective that averages, in calls that repeat."""
    for _ in range(4):
        yield "all_reduce", comm.all_reduce(x, "average", dtype=name)
        in_place = x.copy()
        yield "all_reduce", comm.all_reduce(in_place, "average", out=in_place, dtype=name)
        yield "reduce", comm.reduce(x, "average", root=1, dtype=name)
        yield "reduce_scatter", comm.reduce_scatter(x, "average", dtype=name)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("ranks", RANKS)
def test_averages_of_floats_are_in_range(ranks: int, name: str) -> None:
    random = np.random.default_rng()
    for count in COUNTS:
        inputs = contributions(name, ranks, count * ranks, random)

        def check(comm: Communicator, inputs: Array = inputs) -> None:
            for collective, found in calls(comm, inputs[comm.rank], name):
                if collective == "reduce" and comm.rank != 1:
                    assert found is None
                    continue
                assert found is not None
                own = inputs
                if collective == "reduce_scatter":
                    own = np.split(inputs, comm.size, axis=1)[comm.rank]
                assert_are_means(found, own, name)

        run_ranks(ranks, check)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("ranks", quick([1, 2, 4], kept={4}))
def test_averages_by_powers_of_two_are_exact(ranks: int, name: str) -> None:
    largest = FLOATS[name].largest
    alike = encode(np.array([largest, -largest, 1, -1.5, 0]), name)
    # With these weights of ranks, no partial sum has more than three significant bits.
    weights = {1: [1], 2: [1, 3], 4: [1, 1, 2, 4]}[ranks]
    unlike = np.array([8.0, -16.0, 32.0])
    expected = encode(unlike * sum(weights) / ranks, name)

    def check(comm: Communicator) -> None:
        np.testing.assert_array_equal(comm.all_reduce(alike, "average", dtype=name), alike)
        x = encode(unlike * weights[comm.rank], name)
        np.testing.assert_array_equal(comm.all_reduce(x, "average", dtype=name), expected)

    run_ranks(ranks, check)


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("ranks", RANKS)
def test_averages_of_integers_wrap_and_round_towards_zero(ranks: int, name: str) -> None:
    info = np.iinfo(name)
    edges = [info.min, info.min + 1, -1, 0, 1, 2, 3, info.max - 1, info.max]
    pairs = [pair for pair in product(edges, edges) if min(pair) >= info.min]
    first, other = (np.array(column, dtype=name) for column in zip(*pairs, strict=True))
    sums = [int(value) for value in first + other * np.array(ranks - 1, name)]
    means = np.array([abs(value) // ranks * (1 if value >= 0 else -1) for value in sums], name)

    def check(comm: Communicator) -> None:
        x = first if comm.rank == 0 else other
        for _ in range(4):
            np.testing.assert_array_equal(comm.all_reduce(x, "average"), means)
        in_place = x.copy()
        comm.all_reduce(in_place, "average", out=in_place)
        np.testing.assert_array_equal(in_place, means)
        blocks = comm.reduce_scatter(np.tile(x, ranks), "average")
        np.testing.assert_array_equal(blocks, means)
        at_root = comm.reduce(x, "average", root=ranks - 1)
        if at_root is not None:
            np.testing.assert_array_equal(at_root, means)

    run_ranks(ranks, check)


@pytest.mark.parametrize("ranks", quick([2, 3, 5], kept={3}))
@pytest.mark.parametrize("collective", ["all_reduce", "reduce", "reduce_scatter"])
def test_every_algorithm_scales_each_contribution_once(ranks: int, collective: str) -> None:
    names = {entry.name for entry in native.algorithms(collective)}
    assert len(names) > 1

    def check(comm: Communicator) -> int:
        x = np.full(ranks * 7, 1024.0 * ranks * 2**comm.rank, np.float32)
        carried = 0
        for algorithm in sorted(names):
            try:
                found = getattr(comm, collective)(x, "average", algorithm=algorithm)
            except unisono.MisuseError:  # not of so many ranks
                continue
            carried += 1
            if found is not None:
                np.testing.assert_array_equal(found, 1024.0 * (2**ranks - 1))
        return carried

    assert min(run_ranks(ranks, check)) > 1
