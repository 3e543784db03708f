"""Runs one case on this rank: checks its result, then times it. All ranks do the same."""

import time
from dataclasses import dataclass

import numpy as np

from unisono import _unisono as native
from unisono.bench.cases import Case, Request
from unisono.bench.elements import Array, element
from unisono.bench.inputs import Inputs, multiplier, starts_of
from unisono.communicator import Communicator

# Guards on either side of every output catch writes that miss it; as long as a cache line.
_GUARD_BYTES = 64
_POISON = 0xA5
_MAX_REPEATS = 9
_MAX_CALLS = 1000
# A repeat is long enough that reading the clock and the barrier's skew do not count.
_REPEAT_SECONDS = 0.002


@dataclass(frozen=True)
class Measured:
    """What all ranks together found."""

    time_us: float
    wrong: int


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
            algorithm,
            protocol,
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


def measure(case: Case, communicator: Communicator, request: Request, seed: int) -> Measured:
    """Checks and times a case; every rank returns the same.

    The first call, on fresh inputs and a poisoned output, is checked. The calls that are timed
    leave the same result when they are out of place, which is checked as well.
    """
    native_communicator = communicator._native
    buffers = Buffers(case, communicator, seed)
    buffers.prepare()
    _barrier(communicator)
    started = time.perf_counter()
    native_communicator.run(buffers.call)
    first_seconds = time.perf_counter() - started
    wrong = buffers.wrong()
    repeats, calls = _agree(communicator, request, first_seconds)
    seconds = np.empty(repeats)
    for repeat in range(repeats):
        _barrier(communicator)
        started = time.perf_counter()
        for _ in range(calls):
            native_communicator.run(buffers.call)
        seconds[repeat] = (time.perf_counter() - started) / calls
    if not case.in_place:
        wrong += buffers.wrong()
    communicator.all_reduce(seconds, "max", out=seconds)
    total = np.array([wrong])
    communicator.all_reduce(total, out=total)
    return Measured(float(np.median(seconds)) * 1e6, int(total[0]))


def _agree(communicator: Communicator, request: Request, first_seconds: float) -> tuple[int, int]:
    """Repeats and calls in each, as rank 0 decides after the first call."""
    plan = np.array([1, 1])
    if communicator.rank == 0:
        plan[:] = plan_repeats(first_seconds, request.seconds, request.iterations)
    communicator.broadcast(plan)
    return int(plan[0]), int(plan[1])


def plan_repeats(first_seconds: float, budget_seconds: float, iterations: int) -> tuple[int, int]:
    """Repeats, and calls in each, that fit the budget; of `iterations` calls if those are given."""
    first_seconds = max(first_seconds, 1e-7)
    if iterations > 0:
        repeats = min(_MAX_REPEATS, iterations)
        return repeats, iterations // repeats
    calls = min(_MAX_CALLS, max(1, int(_REPEAT_SECONDS / first_seconds)))
    repeats = int(budget_seconds / (calls * first_seconds))
    return min(_MAX_REPEATS, max(1, repeats)), calls


def _barrier(communicator: Communicator) -> None:
    communicator.barrier()
