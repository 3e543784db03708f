"""Runs one case on this rank: checks its result, then times it. All ranks do the same."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unisono import _unisono as native
from unisono.bench.cases import Case, Request
from unisono.bench.elements import Array, element
from unisono.bench.inputs import Inputs, multiplier, starts_of
from unisono.bench.repeats import count_outliers, must_guess_again, plan_repeats
from unisono.communicator import Communicator

# Guards on either side of every output catch writes that miss it; as long as a cache line.
_GUARD_BYTES = 64
_POISON = 0xA5
_TIMED_BARRIERS = 5
# Rows of calls before the repeats, to learn what a call takes.
_MAX_GUESSES = 3


@dataclass(frozen=True)
class Measured:
    """What all ranks together found.

    Attributes:
        time_us: The median over repeats of the slowest rank's time for a call.
        calls: How many a repeat had.
        least_us: The shortest repeat's.
        most_us: The longest repeat's.
        outliers: Repeats that took much longer than the median.
    """

    time_us: float
    wrong: int
    calls: int
    least_us: float
    most_us: float
    repeats: int
    outliers: int


class Buffers:
    """A case's input and output on this rank, made once, and its call."""

    def __init__(self, case: Case, communicator: Communicator, seed: int) -> None:
        rank = communicator.rank
        self._case = case
        inputs = Inputs(case, communicator.size, rank, seed)
        self._input, self._expected = inputs.input(), inputs.expected()
        bits = np.dtype(f"u{element(case.type).bytes}")
        inner = max(case.output_count(rank), case.input_count(rank) if case.in_place else 0)
        self._guarded = np.empty(inner * bits.itemsize + 2 * _GUARD_BYTES, np.uint8)
        body = self._guarded[_GUARD_BYTES : _GUARD_BYTES + inner * bits.itemsize].view(bits)
        self.source, self.target = self._place(body, bits, rank)
        self._rank = rank
        self.call = self.call_by(case.algorithm, case.protocol)

    def _place(
        self, body: Array, bits: np.dtype[np.unsignedinteger], rank: int
    ) -> tuple[Array, Array]:
        """Input and output; in place they alias as `src/plan/plan.h` says."""
        case = self._case
        inputs, outputs = case.input_count(rank), case.output_count(rank)
        if not case.in_place:
            return np.empty(inputs, bits), body
        own = slice(rank * case.count, (rank + 1) * case.count)
        if case.collective in ("all_gather", "gather") and outputs:
            return body[own], body
        if case.collective in ("reduce_scatter", "scatter") and inputs:
            return body, body[own]
        return body[:inputs], body[:outputs]

    def call_by(self, algorithm: str, protocol: str, root: int | None = None) -> native.Call:
        """The case's call by another plan, or a broadcast from another root, on the same buffers.

        A root that has no input of its own sends its output.
        """
        case, root = self._case, self._case.root if root is None else root
        rank = self._rank
        source = self.target if root == rank and not self.source.size else self.source
        parts = case.part_counts(rank) if case.collective == "all_to_all_v" else []
        starts = starts_of(parts)
        return native.Call(
            case.collective,
            source.ctypes.data if source.size else 0,
            self.target.ctypes.data if self.target.size else 0,
            0 if case.collective in ("barrier", "all_to_all_v") else case.count,
            case.type,
            case.operation or "sum",
            root,
            multiplier(rank),
            {"algorithm": algorithm, "protocol": protocol},
            send_counts=parts,
            send_displacements=starts,
            recv_counts=parts,
            recv_displacements=starts,
        )

    def prepare(self) -> None:
        """Poisons the output and its guards, then writes the input."""
        self._guarded.fill(_POISON)
        self._input.fill(self.source)

    def wrong(self) -> int:
        """Wrong elements of output, input and guards, after `prepare` and a call."""
        found, start = 0, 0
        for segment in self._expected:
            found += segment.wrong(self.target[start : start + segment.count])
            start += segment.count
        for guard in (self._guarded[:_GUARD_BYTES], self._guarded[-_GUARD_BYTES:]):
            found += int(np.count_nonzero(guard != _POISON))
        if not self._case.in_place:
            found += self._input.wrong(self.source)
        return found


def measure(
    case: Case,
    communicator: Communicator,
    request: Request,
    seed: int,
    on_timed: Callable[[], None] = lambda: None,
) -> Measured:
    """Checks and times a case; every rank returns the same.

    The first call, on fresh inputs and a poisoned output, is checked. The calls that are timed
    leave the same result when they are out of place, which is checked as well; where a rail is cut
    meanwhile, they have a poisoned output, too.

    Args:
        case: What to measure.
        communicator: Of all ranks.
        request: How long to measure, and whether rails are cut.
        seed: Of the inputs, the same on all ranks.
        on_timed: Called when the timed calls begin.
    """
    buffers = Buffers(case, communicator, seed)
    buffers.prepare()
    first_seconds = _row_seconds(communicator, buffers.call, 1)
    wrong = buffers.wrong()
    repeats, calls = _plan(communicator, request, buffers.call, first_seconds)
    seconds = np.empty(repeats)
    if request.cuts:
        buffers.prepare()
    on_timed()
    for repeat in range(repeats):
        seconds[repeat] = _row_seconds(communicator, buffers.call, calls) / calls
    if not case.in_place:
        wrong += buffers.wrong()
    communicator.all_reduce(seconds, "max", out=seconds)
    total = np.array([wrong])
    communicator.all_reduce(total, out=total)
    median = float(np.median(seconds))
    return Measured(
        median * 1e6, int(total[0]), calls, float(seconds.min()) * 1e6, float(seconds.max()) * 1e6,
        repeats, count_outliers([float(one) for one in seconds], median),
    )  # fmt: skip


def _plan(
    communicator: Communicator, request: Request, call: native.Call, first_seconds: float
) -> tuple[int, int]:
    """Repeats and calls in each, the same on all ranks.

    The first call may have made connections, so rows of calls say what one takes.
    """
    barrier = _slowest(communicator, _barrier_seconds(communicator))
    row, calls = _slowest(communicator, first_seconds), 1
    for _ in range(_MAX_GUESSES):
        plan = plan_repeats(row / calls, request.seconds, request.iterations, barrier)
        if not must_guess_again(row, calls, barrier):
            return plan
        calls = plan[1]
        row = _slowest(communicator, _row_seconds(communicator, call, calls))
    return plan_repeats(row / calls, request.seconds, request.iterations, barrier)


def _row_seconds(communicator: Communicator, call: native.Call, calls: int) -> float:
    """Seconds of calls back to back, after a barrier."""
    run = communicator._native.run
    communicator.barrier()
    started = time.perf_counter()
    for _ in range(calls):
        run(call)
    return time.perf_counter() - started


def _barrier_seconds(communicator: Communicator) -> float:
    """The least of several: where other programs run, single barriers take much longer."""
    seconds = []
    communicator.barrier()
    for _ in range(_TIMED_BARRIERS):
        started = time.perf_counter()
        communicator.barrier()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _slowest(communicator: Communicator, seconds: float) -> float:
    """The largest of all ranks' times."""
    mine = np.array([seconds])
    return float(communicator.all_reduce(mine, "max", out=mine)[0])
