"""One rank of the bench on CUDA devices: `python -m unisono.bench.device JOB`; started by the CLI.

JOB is a folder with device.json, a DeviceRequest. Rank 0 writes to `rows.jsonl` there, one
DeviceRow a line. The real NCCL is opened in the same process, and the two alternate: every time is
the median over repeats of the slowest rank's.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

import numpy as np

import unisono
from unisono import _unisono as native
from unisono.bench.cases import Case
from unisono.bench.elements import element
from unisono.bench.inputs import Inputs
from unisono.communicator import Communicator

# Results of larger calls are right if those of this many bytes are: comparing more takes long.
_MOST_CHECKED_BYTES = 64 << 20
# Calls in one measurement: a few hundred microseconds at least, and never many seconds.
_SMALL_BYTES, _LARGE_BYTES = 4 << 20, 64 << 20
_CALLS = (20, 5, 2)
_POISON = 0xA5
# In place is what their root's buffers are.
_OF_ROOT = ("broadcast", "reduce", "gather", "scatter")


@dataclass(frozen=True)
class DeviceRequest:
    """What a run measures.

    Attributes:
        collectives: Their names.
        sizes: Bytes, of the larger of a rank's input and output.
        types: Element types.
        modes: "eager" and "graph".
        in_place: Likewise, False and True.
        repeats: Measurements of each, alternating.
        nccl: The path of NCCL's library; empty measures unisono alone.
        algorithm: Of unisono; empty leaves it to the selection.
        protocol: Likewise.
        channels: Likewise; 0.
        policy: Likewise, as a call's: "zero_sm" or "fastest".
        max_sms: Likewise; 0.
    """

    collectives: list[str]
    sizes: list[int]
    types: list[str] = field(default_factory=lambda: ["bfloat16"])
    modes: list[str] = field(default_factory=lambda: ["graph"])
    in_place: list[bool] = field(default_factory=lambda: [False])
    repeats: int = 5
    nccl: str = ""
    algorithm: str = ""
    protocol: str = ""
    channels: int = 0
    policy: str = ""
    max_sms: int = 0

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Of `asdict`'s values."""
        return cls(**values)


@dataclass(frozen=True)
class DeviceRow:
    """What was measured of one call.

    Attributes:
        time_us: Of a call of unisono, in microseconds.
        nccl_us: Of NCCL; 0 where it was not measured.
        wrong: Wrong elements of unisono's results, on all ranks; of NCCL's in nccl_wrong. -1: the
            call is too large to compare.
    """

    collective: str
    bytes: int
    type: str
    mode: str
    in_place: bool
    ranks: int
    time_us: float
    nccl_us: float
    wrong: int
    nccl_wrong: int

    @property
    def ratio(self) -> float:
        """How many times as fast as NCCL."""
        return self.nccl_us / self.time_us if self.time_us else 0.0


class _Bench:
    def __init__(self, communicator: Communicator, request: DeviceRequest, device: int) -> None:
        self._communicator, self._request = communicator, request
        self._rank, self._ranks = communicator.rank, communicator.size
        largest = max(request.sizes) + 1024
        self._bench = native.DeviceBench(communicator._native, device, largest)
        self.nccl_version = self._join_nccl() if request.nccl else 0

    def _join_nccl(self) -> int:
        name = np.zeros(128, np.uint8)
        if self._rank == 0:
            name[:] = np.frombuffer(native.DeviceBench.make_nccl_id(self._request.nccl), np.uint8)
        self._communicator.broadcast(name)
        return self._bench.join_nccl(self._request.nccl, name.tobytes())

    def measure(self, case: Case, mode: str) -> DeviceRow:
        """Checks and times one case; every rank returns the same."""
        call = self._call(case)
        peers = [False, True] if self._request.nccl else [False]
        wrong = {peer: self._wrong(case, call, peer) for peer in peers}
        calls = _CALLS[(case.bytes > _SMALL_BYTES) + (case.bytes > _LARGE_BYTES)]
        times = np.zeros((len(peers), self._request.repeats))
        for repeat in range(-1, self._request.repeats):
            for i, peer in enumerate(peers):
                time_us = self._bench.time_us(call, peer, calls, mode == "graph")
                if repeat >= 0:
                    times[i, repeat] = time_us
        self._communicator.all_reduce(times, "max", out=times)
        typical = [median(row) for row in times.tolist()]
        return DeviceRow(
            case.collective, case.bytes, case.type, mode, case.in_place, self._ranks,
            typical[0], typical[1] if self._request.nccl else 0.0, wrong[False],
            wrong.get(True, 0),
        )  # fmt: skip

    def _addresses(self, case: Case) -> tuple[int, int]:
        source, target = self._bench.input_address, self._bench.output_address
        own = self._rank * case.count * element(case.type).bytes
        if not case.in_place:
            return source, target
        if case.collective == "all_gather":
            return target + own, target
        if case.collective == "reduce_scatter":
            return source, source + own
        if case.collective in _OF_ROOT and case.root != self._rank:
            return source, target
        if case.collective == "gather":
            return target + own, target
        if case.collective == "scatter":
            return source, source + own
        return target, target

    def _call(self, case: Case) -> native.Call:
        source, target = self._addresses(case)
        return native.Call(
            case.collective, source, target, case.count, case.type, case.operation or "sum",
            case.root, algorithm=self._request.algorithm, protocol=self._request.protocol,
            channels=self._request.channels, stream=self._bench.stream,
            policy=self._request.policy, max_sms=self._request.max_sms,
        )  # fmt: skip

    def _wrong(self, case: Case, call: native.Call, peer: bool) -> int:
        source, target = self._addresses(case)
        if case.bytes > _MOST_CHECKED_BYTES:
            self._bench.run(call, peer)
            return -1
        inputs = Inputs(case, self._ranks, self._rank, seed=case.bytes + 1)
        bits = np.dtype(f"u{element(case.type).bytes}")
        got = np.full(case.output_count(self._rank), _POISON, bits)
        given = np.empty(case.input_count(self._rank), bits)
        inputs.input().fill(given)
        self._bench.copy(target, got.ctypes.data, got.nbytes)
        self._bench.copy(source, given.ctypes.data, given.nbytes)
        self._bench.run(call, peer)
        self._bench.copy(got.ctypes.data, target, got.nbytes)
        found, start = 0, 0
        for segment in inputs.expected():
            found += segment.wrong(got[start : start + segment.count])
            start += segment.count
        total = np.array([found])
        self._communicator.all_reduce(total, out=total)
        return int(total[0])


def list_cases(request: DeviceRequest, ranks: int) -> list[tuple[Case, str]]:
    """All calls of a request, by collective, size, type, in place or not, and mode."""
    cases = []
    for collective in request.collectives:
        for size in request.sizes:
            for type_ in request.types:
                one = Case(collective, 1, type_, ranks)
                count = max(1, size // one.bytes)
                operation = "sum" if one.is_reduction else ""
                cases += [
                    (
                        Case(collective, count, type_, ranks, operation=operation, in_place=place),
                        mode,
                    )
                    for place in request.in_place
                    for mode in request.modes
                    if not (place and collective == "all_to_all")
                ]
    return cases


def main(job: Path) -> None:
    """Measures all cases of a job."""
    request = DeviceRequest.from_json(json.loads((job / "device.json").read_text()))
    device = int(os.environ.get("LOCAL_RANK", "0"))
    with unisono.init(device=device) as communicator:
        bench = _Bench(communicator, request, device)
        with (job / "rows.jsonl").open("w") as rows:
            for case, mode in list_cases(request, communicator.size):
                row = bench.measure(case, mode)
                if communicator.rank == 0:
                    print(json.dumps(asdict(row)), file=rows, flush=True)
        if communicator.rank == 0:
            told = {
                "nccl_version": bench.nccl_version,
                "device_bytes": communicator.memory()["device_bytes"],
            }
            (job / "machine.json").write_text(json.dumps(told))
        del bench


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except unisono.Error as error:
        sys.exit(f"rank {os.environ.get('UNISONO_RANK', '?')}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
