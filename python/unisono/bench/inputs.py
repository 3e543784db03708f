"""Fresh random inputs whose results are known exactly, whatever the order of the reduction.

Every rank's input is a table of random elements, repeated. The table's length is a prime, so that
no mistake in a chunk's place goes unseen, and the expected output is made of the same few tables:
making and checking cost little more than reading the memory once. What is only moved is random
bits, compared as bits. What is reduced are integers (or powers of two) so small that every partial
result, in any order, is exactly representable.
"""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from unisono.bench.cases import Case
from unisono.bench.elements import Array, element

PERIOD = 65521
# Powers of two to multiply: 2^-6 ... 2^6 is within every type's normal range, 2^6 within int8's.
_PRODUCT_FACTORS = 6


@dataclass(frozen=True)
class Segment:
    """`count` elements that repeat `table`, beginning at its element `phase`."""

    table: Array
    phase: int
    count: int

    def _rotated(self) -> Array:
        return np.roll(self.table, -(self.phase % len(self.table)))

    def fill(self, target: Array) -> None:
        """Writes the elements to `target`, which has `count` of them."""
        for part, wanted in self._parts(target):
            part[:] = wanted

    def wrong(self, found: Array) -> int:
        """How many elements of `found` differ in any bit."""
        return sum(int(np.count_nonzero(part != wanted)) for part, wanted in self._parts(found))

    def _parts(self, target: Array) -> list[tuple[Array, Array]]:
        if self.count == 0:
            return []
        table = self._rotated()
        whole = self.count // len(table) * len(table)
        rows = target[:whole].reshape(-1, len(table))
        return [(rows, table), (target[whole:], table[: self.count - whole])]


class Inputs:
    """What each rank puts in and what one rank must get out of a case.

    Arrays hold unsigned integers as wide as the elements: bits, not values.

    Args:
        case: The case.
        ranks: Number of ranks.
        rank: Whose output is predicted.
        seed: The same on all ranks, another one for every run.
    """

    def __init__(self, case: Case, ranks: int, rank: int, seed: int) -> None:
        self._case, self._ranks, self._rank = case, ranks, rank
        self._element = element(case.type)
        self._bits = np.dtype(f"u{self._element.bytes}")
        longest = max(max(case.input_count(r), case.output_count(r)) for r in range(ranks))
        length = min(PERIOD, max(1, longest))
        self._random = np.random.default_rng([seed, case.count])
        if case.is_reduction:
            values = self._contributions(length)
            self._tables = [self._element.encode(row).view(self._bits) for row in values]
            self._reduced = self._element.encode(self._reduce(values)).view(self._bits)
        else:
            shape = (ranks, length, self._element.bytes)
            random_bytes = self._random.integers(0, 256, shape, dtype=np.uint8)
            self._tables = [row.view(self._bits)[:, 0] for row in random_bytes]

    def input(self) -> Segment:
        """This rank's input."""
        return Segment(self._tables[self._rank], 0, self._case.input_count(self._rank))

    def expected(self) -> list[Segment]:
        """This rank's output."""
        case, me, tables = self._case, self._rank, self._tables
        count, ranks = case.count, range(self._ranks)
        if case.output_count(me) == 0:
            return []
        match case.collective:
            case "all_reduce" | "reduce":
                return [Segment(self._reduced, 0, count)]
            case "reduce_scatter":
                return [Segment(self._reduced, me * count, count)]
            case "broadcast":
                return [Segment(tables[case.root], 0, count)]
            case "scatter":
                return [Segment(tables[case.root], me * count, count)]
            case "send_recv":
                return [Segment(tables[(me - 1) % self._ranks], 0, count)]
            case "all_gather" | "gather":
                return [Segment(tables[r], 0, count) for r in ranks]
            case "all_to_all":
                return [Segment(tables[r], me * count, count) for r in ranks]
            case "all_to_all_v":
                starts = [starts_of(case.part_counts(r))[me] for r in ranks]
                return [Segment(tables[r], starts[r], case.part_counts(r)[me]) for r in ranks]
        return []

    def _contributions(self, length: int) -> Array:
        """Values by rank and place."""
        kind, random, shape = self._element, self._random, (self._ranks, length)
        operation, limit = self._case.operation, self._element.exact_limit
        signs = random.choice([-1, 1], shape) if kind.signed else np.ones(shape, np.int64)
        if operation in ("min", "max"):
            return signs * random.integers(0, limit, shape, endpoint=True)
        if operation == "product":
            factors = [1, 2] if kind.is_integer else [0.5, 1, 2]
            active = self._active(min(self._ranks, _PRODUCT_FACTORS), length)
            return np.where(active, signs * random.choice(factors, shape), 1)
        if operation == "pre_multiplied_sum":
            limit //= max(multiplier(rank) for rank in range(2))
        if operation == "average" and not kind.is_integer:
            limit = max(limit // self._ranks, 1)
        active_ranks = min(self._ranks, limit)
        sizes = random.integers(0, limit // active_ranks, shape, endpoint=True)
        values = np.where(self._active(active_ranks, length), signs * sizes, 0)
        if operation == "average" and not kind.is_integer:
            return np.where(kind.scales_exactly(values, self._ranks), values * self._ranks, 0)
        return values

    def _active(self, count: int, length: int) -> Array:
        """At each place, `count` ranks, another run of them at each."""
        first = self._random.integers(0, self._ranks, length)
        return (np.arange(self._ranks)[:, None] - first) % self._ranks < count

    def _reduce(self, values: Array) -> Array:
        match self._case.operation:
            case "min":
                return np.asarray(values.min(axis=0))
            case "max":
                return np.asarray(values.max(axis=0))
            case "product":
                return np.asarray(values.prod(axis=0))
            case "average":
                means = values.sum(axis=0) / self._ranks
                return np.asarray(np.trunc(means) if self._element.is_integer else means)
            case "pre_multiplied_sum":
                scale = np.array([multiplier(rank) for rank in range(self._ranks)])
                return np.asarray((values * scale[:, None]).sum(axis=0))
        return np.asarray(values.sum(axis=0))


def multiplier(rank: int) -> int:
    """A rank's scalar in pre_multiplied_sum."""
    return 1 + rank % 2


def starts_of(counts: list[int]) -> list[int]:
    """Where parts that lie one after another begin."""
    return [0, *accumulate(counts)][:-1]
