"""Inputs with one exact result: what is predicted is what any order of reduction gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from unisono import _unisono as native
from unisono.bench.cases import Case
from unisono.bench.elements import element
from unisono.bench.inputs import PERIOD, Inputs, Segment, starts_of

TYPES = [name for name, _ in native.data_types()]
OPERATIONS = native.reduce_operations()


def random_seed() -> int:
    return int(np.random.default_rng().integers(1 << 62))


def gathered(case: Case, ranks: int, seed: int) -> list[np.ndarray]:
    """Every rank's input."""
    out = []
    for rank in range(ranks):
        segment = Inputs(case, ranks, rank, seed).input()
        out.append(np.empty(segment.count, segment.table.dtype))
        segment.fill(out[-1])
    return out


def expected(case: Case, ranks: int, rank: int, seed: int) -> np.ndarray:
    parts = []
    for segment in Inputs(case, ranks, rank, seed).expected():
        parts.append(np.empty(segment.count, segment.table.dtype))
        segment.fill(parts[-1])
    return np.concatenate(parts) if parts else np.empty(0)


@pytest.mark.parametrize("name", TYPES)
def test_sizes_of_elements_are_the_library_s(name: str) -> None:
    assert element(name).bytes == dict(native.data_types())[name]


@pytest.mark.parametrize(
    ("name", "value", "bits"),
    [
        ("bfloat16", 1.0, 0x3F80),
        ("bfloat16", 1 + 2**-8, 0x3F80),  # halfway: to even
        ("bfloat16", 1 + 3 * 2**-8, 0x3F82),
        ("bfloat16", -2.5, 0xC020),
        ("float8_e4m3", 1.0, 0x38),
        ("float8_e4m3", 448.0, 0x7E),
        ("float8_e4m3", 17.0, 0x58),  # halfway between 16 and 18: to even
        ("float8_e4m3", 2.0**-9, 0x01),
        ("float8_e5m2", 1.0, 0x3C),
        ("float8_e5m2", -57344.0, 0xFB),
        ("float8_e5m2", 1.125, 0x3C),  # halfway between 1 and 1.25: to even
        ("float8_e5m2", 0.0, 0x00),
        ("float16", 2049.0, 0x6800),
    ],
)
def test_values_are_rounded_to_nearest_even(name: str, value: float, bits: int) -> None:
    encoded = element(name).encode(np.array([value]))
    assert int(encoded.view(f"u{encoded.itemsize}")[0]) == bits


@pytest.mark.parametrize("name", ["int32", "float16", "float32", "float64", "uint8"])
@pytest.mark.parametrize("operation", ["sum", "product", "min", "max"])
@pytest.mark.parametrize("ranks", [1, 2, 5, 13])
def test_every_order_gives_the_predicted_result(name: str, operation: str, ranks: int) -> None:
    case = Case("all_reduce", 257, name, ranks, operation=operation)
    seed = random_seed()
    inputs = [array.view(element(name).storage) for array in gathered(case, ranks, seed)]
    combine = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}
    for order in (range(ranks), reversed(range(ranks)), np.random.permutation(ranks)):
        chosen = [inputs[rank] for rank in order]
        found = list(itertools.accumulate(chosen, combine[operation]))[-1]
        assert (found == expected(case, ranks, 0, seed).view(found.dtype)).all()


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("ranks", [2, 8, 13, 64])
def test_sums_stay_within_what_is_exact(name: str, ranks: int) -> None:
    case = Case("all_reduce", 999, name, ranks)
    values = Inputs(case, ranks, 0, random_seed())._contributions(999)
    assert np.abs(values).sum(axis=0).max() <= element(name).exact_limit
    assert np.abs(values).max() > 0


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_rank_matters_in_every_reduction(operation: str) -> None:
    ranks, case = 4, Case("all_reduce", 4096, "float32", 4, operation=operation)
    inputs = Inputs(case, ranks, 0, random_seed())
    values = inputs._contributions(4096)
    result = inputs._reduce(values)
    for rank in range(ranks):
        without = np.roll(values, 1, axis=1)
        without[np.arange(ranks) != rank] = values[np.arange(ranks) != rank]
        assert (inputs._reduce(without) != result).any()


def test_integer_averages_round_towards_zero() -> None:
    inputs = Inputs(Case("all_reduce", 3, "int32", 2, operation="average"), 2, 0, random_seed())
    assert inputs._reduce(np.array([[-7, 7, 3], [0, 0, 3]])).tolist() == [-3, 3, 3]


@pytest.mark.parametrize("name", ["float8_e4m3", "bfloat16", "float32", "float64"])
def test_contributions_to_averages_of_floats_are_exact_when_they_are_scaled(name: str) -> None:
    for ranks in (2, 3, 5, 7):
        inputs = Inputs(
            Case("all_reduce", 4096, name, ranks, operation="average"), ranks, 0, random_seed()
        )
        values = inputs._contributions(4096)
        wide = np.float64 if name == "float64" else np.float32
        scaled = values.astype(wide) * wide(1 / ranks)
        encode = element(name).encode
        assert (encode(scaled) == encode(values / ranks)).all()
        assert (values != 0).any(axis=1).all()


def test_moved_data_is_where_the_collective_puts_it() -> None:
    ranks, count, seed = 3, 5, random_seed()
    for collective, build in {
        "all_gather": lambda inputs, me: np.concatenate(inputs),
        "all_to_all": lambda inputs, me: np.concatenate(
            [array[me * count : (me + 1) * count] for array in inputs]
        ),
        "broadcast": lambda inputs, me: inputs[1],
        "scatter": lambda inputs, me: inputs[1][me * count : (me + 1) * count],
    }.items():
        root = 1 if collective in ("broadcast", "scatter") else 0
        case = Case(collective, count, "float64", ranks, root=root)
        inputs = gathered(case, ranks, seed)
        for me in range(ranks):
            assert (expected(case, ranks, me, seed) == build(inputs, me)).all()


def test_parts_of_all_to_all_v_match_between_ranks() -> None:
    case = Case("all_to_all_v", 7, "int32", 5)
    counts = [case.part_counts(rank) for rank in range(5)]
    assert all(counts[a][b] == counts[b][a] for a in range(5) for b in range(5))
    assert len({tuple(row) for row in counts}) == 5
    seed = random_seed()
    inputs = gathered(case, 5, seed)
    starts = [starts_of(row) for row in counts]
    found = [inputs[r][starts[r][2] : starts[r][2] + counts[r][2]] for r in range(5)]
    assert (expected(case, 5, 2, seed) == np.concatenate(found)).all()


def test_a_single_wrong_bit_is_found() -> None:
    table = np.random.default_rng().integers(0, 1 << 32, PERIOD, dtype=np.uint32)
    segment = Segment(table, 17, 3 * PERIOD + 11)
    found = np.empty(segment.count, np.uint32)
    segment.fill(found)
    assert segment.wrong(found) == 0
    for place in (0, PERIOD - 18, 2 * PERIOD, segment.count - 1):
        found[place] ^= 1 << 31
    assert segment.wrong(found) == 4


def test_chunks_in_the_wrong_order_are_found() -> None:
    case = Case("all_reduce", 1 << 18, "int8", 2, operation="max")
    segment = Inputs(case, 2, 0, random_seed()).expected()[0]
    found = np.empty(segment.count, np.uint8)
    segment.fill(found)
    quarters = np.split(found, 4)
    assert segment.wrong(np.concatenate([quarters[i] for i in (1, 0, 2, 3)])) > 1000


def test_inputs_are_fresh_for_every_seed() -> None:
    case = Case("all_reduce", 1000, "float32", 2)
    first, second = (gathered(case, 2, random_seed())[0] for _ in range(2))
    assert (first != second).any()
