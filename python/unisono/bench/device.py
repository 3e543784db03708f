"""One rank of the bench on CUDA devices: `python -m unisono.bench.device JOB`, by `rank`.

JOB is a folder with device.json, a DeviceRequest. Rank 0 writes to `rows.jsonl` there, one
DeviceRow a line. The real NCCL is opened in the same process, and the two alternate: every time is
the median over repeats of the slowest rank's. Every result is compared whole, on the device.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median

import numpy as np

import unisono
from unisono import _bench
from unisono import _unisono as native
from unisono.bench.cases import Case
from unisono.bench.device_rows import DeviceRequest, DeviceRow, calls_of
from unisono.bench.elements import element
from unisono.bench.inputs import Inputs, Segment
from unisono.communicator import Communicator

_POISON = 0xA5
# In place is what their root's buffers are.
_OF_ROOT = ("broadcast", "reduce", "gather", "scatter")
RING = "send_recv"
_NOT_IN_PLACE = ("all_to_all", RING)
# Thread blocks of plain stores; the fastest number is the limit.
_PUSH_BLOCKS = (8, 16, 32, 64, 132)
_PUSH_REPEATS = 3
_LAUNCHES = 100
# Behind the largest, for what begins further on.
_SLACK_BYTES = 1024
# Memory of whole pages is mapped in such pages, as PyTorch's is.
_PAGE_BYTES = 2 << 20


class _Bench:
    def __init__(self, communicator: Communicator, request: DeviceRequest, device: int) -> None:
        self._communicator, self._request = communicator, request
        self._rank, self._ranks = communicator.rank, communicator.size
        largest = -(-(max(request.sizes) + _SLACK_BYTES) // _PAGE_BYTES) * _PAGE_BYTES
        allocator = request.nccl if request.memory == "nccl" else ""
        self._bench = _bench.DeviceBench(communicator._native, device, largest, allocator)
        self.nccl_version = self._join_nccl() if request.nccl else 0
        self._push_gb_s: dict[int, float] = {}
        if self._ranks > 1:
            self._open_landings()

    def _join_nccl(self) -> int:
        name = np.zeros(128, np.uint8)
        if self._rank == 0:
            name[:] = np.frombuffer(_bench.DeviceBench.make_nccl_id(self._request.nccl), np.uint8)
        self._communicator.broadcast(name)
        return self._bench.join_nccl(self._request.nccl, name.tobytes())

    def _open_landings(self) -> None:
        own = np.frombuffer(self._bench.make_landing(), np.uint8)
        handles = self._communicator.all_gather(own).reshape(self._ranks, -1)
        self._bench.open_landings(
            [row.tobytes() for rank, row in enumerate(handles) if rank != self._rank]
        )

    def launch_us(self, mode: str) -> float:
        """What a kernel that does nothing takes where one follows another: no call takes less."""
        in_graph, repeats = mode == "graph", self._request.repeats
        times = [self._bench.launch_us(_LAUNCHES, in_graph) for _ in range(repeats + 1)]
        slowest = np.array(times[1:])
        self._communicator.all_reduce(slowest, "max", out=slowest)
        return float(median(slowest.tolist()))

    def push_gb_s(self, size_bytes: int) -> float:
        """What plain stores bring out of each device, in 10^9 bytes a second.

        Each stores `size_bytes` / ranks to each of the others, as an all-gather of that size must.
        """
        block = size_bytes // self._ranks
        if self._ranks == 1 or block < 16:
            return 0.0
        if size_bytes not in self._push_gb_s:
            calls = calls_of(size_bytes)
            times = np.array(
                [
                    [self._bench.push_us(block, blocks, calls) for _ in range(_PUSH_REPEATS)]
                    for blocks in _PUSH_BLOCKS
                ]
            )
            self._communicator.all_reduce(times, "max", out=times)
            best_us = float(np.median(times, axis=1).min())
            self._push_gb_s[size_bytes] = 1e-3 * block * (self._ranks - 1) / best_us
        return self._push_gb_s[size_bytes]

    def measure(self, case: Case, mode: str) -> DeviceRow:
        """Checks and times one case; every rank returns the same."""
        push = self.push_gb_s(case.bytes)
        call, in_graph, is_ring = self._call(case), mode == "graph", case.collective == RING
        peers = [False, True] if self._request.nccl else [False]
        wrong = {peer: self._wrong(case, call, peer, in_graph) for peer in peers}
        times = np.zeros((len(peers), self._request.repeats))
        for repeat in range(-1, self._request.repeats):
            for i, peer in enumerate(peers):
                time_us = self._bench.time_us(call, peer, is_ring, in_graph, calls_of(case.bytes))
                if repeat >= 0:
                    times[i, repeat] = time_us
        self._communicator.all_reduce(times, "max", out=times)
        typical = [median(row) for row in times.tolist()]
        return DeviceRow(
            case.collective, case.bytes, case.type, mode, case.in_place, self._ranks,
            typical[0], wrong[False], typical[1] if self._request.nccl else 0.0,
            wrong.get(True, 0), "", push,
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
        collective = "broadcast" if case.collective == RING else case.collective
        return native.Call(
            collective, source, target, case.count, case.type, case.operation or "sum",
            case.root, options=self._request.options, stream=self._bench.stream,
        )  # fmt: skip

    def _wrong(self, case: Case, call: native.Call, peer: bool, in_graph: bool) -> int:
        source, target = self._addresses(case)
        width = element(case.type).bytes
        inputs = Inputs(case, self._ranks, self._rank, seed=case.bytes + 1)
        is_ring = case.collective == RING
        if in_graph:  # what is captured has been called before
            self._bench.run(call, peer, is_ring, False)
        self._bench.poison(target, case.output_count(self._rank) * width, _POISON)
        given = inputs.input()
        self._bench.fill(source, *_repeated(given, width))
        self._bench.run(call, peer, is_ring, in_graph)
        found, at = 0, target
        for segment in inputs.expected():
            found += self._bench.count_wrong(at, *_repeated(segment, width))
            at += segment.count * width
        total = np.array([found])
        self._communicator.all_reduce(total, out=total)
        return int(total[0])


def _repeated(segment: Segment, width: int) -> tuple[int, int, int, int, int]:
    """A segment as the device's kernels take it; its table must live as long as the call."""
    return segment.table.ctypes.data, len(segment.table), segment.phase, segment.count, width


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
                    if not (place and collective in _NOT_IN_PLACE)
                ]
    return cases


def main(job: Path) -> None:
    """Measures all cases of a job."""
    request = DeviceRequest.from_json(json.loads((job / "device.json").read_text()))
    device = int(os.environ.get("LOCAL_RANK", "0"))
    with unisono.init(device=device) as communicator:
        bench = _Bench(communicator, request, device)
        launch_us = {mode: bench.launch_us(mode) for mode in request.modes}
        with (job / "rows.jsonl").open("w") as rows:
            for case, mode in list_cases(request, communicator.size):
                row = bench.measure(case, mode)
                if communicator.rank == 0:
                    print(json.dumps(asdict(row)), file=rows, flush=True)
        if communicator.rank == 0:
            told = {
                "peer": f"NCCL {bench.nccl_version}" if bench.nccl_version else "no peer",
                "device_bytes": communicator.memory()["device_bytes"],
                "launch_us": launch_us,
            }
            (job / "machine.json").write_text(json.dumps(told))
        del bench


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except unisono.Error as error:
        sys.exit(f"rank {os.environ.get('UNISONO_RANK', '?')}: {error}")
