"""One rank of the comparison with PyTorch's symmetric memory.

    python -m unisono.bench.symm_mem JOB

As `unisono.bench.device`, but both are operators of PyTorch's, called in the same processes and on
its streams: `torch.ops.unisono.all_reduce_`, and those of `torch.ops.symm_mem` that reach peers'
memory by plain loads and stores. Those that need NVLink multicast (`multimem_*`) are not run, and
multicast is off.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from unisono.bench.cases import Case
from unisono.bench.device import list_cases
from unisono.bench.device_rows import DeviceRequest, DeviceRow, calls_of
from unisono.bench.elements import element
from unisono.bench.inputs import Inputs, Segment
from unisono.errors import MisuseError

os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

# Every rank reads all of every other's memory: beyond this it is never the faster one.
_ONE_SHOT_MOST_BYTES = 8 << 20
_OURS = "unisono"


class _Bench:
    def __init__(self, request: DeviceRequest) -> None:
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symmetric

        self._torch, self._dist, self._request = torch, dist, request
        self.rank, self._ranks = dist.get_rank(), dist.get_world_size()
        world: Any = dist.group.WORLD
        self._group = world.group_name
        device = torch.device("cuda", torch.cuda.current_device())
        self._buffers: dict[str, Any] = {}
        for name in request.types:
            count = max(request.sizes) // element(name).bytes
            type_ = getattr(torch, name)
            shared = symmetric.empty(count, dtype=type_, device=device)
            symmetric.rendezvous(shared, self._group)
            self._buffers[name] = torch.empty(count, dtype=type_, device=device), shared

    def measure(self, case: Case, mode: str) -> DeviceRow:
        """Checks and times one case; every rank returns the same."""
        in_graph = mode == "graph"
        ways = self._ways(case)
        wrong = {name: self._wrong(case, *way) for name, way in ways.items()}
        times = np.zeros((len(ways), self._request.repeats))
        for repeat in range(-1, self._request.repeats):
            for i, (run, _) in enumerate(ways.values()):
                time_us = self._time_us(run, calls_of(case.bytes), in_graph)
                if repeat >= 0:
                    times[i, repeat] = time_us
        self._agree(times, self._dist.ReduceOp.MAX)
        typical = {name: median(row) for name, row in zip(ways, times.tolist(), strict=True)}
        best = min((name for name in ways if name != _OURS), key=lambda name: typical[name])
        return DeviceRow(
            case.collective, case.bytes, case.type, mode, True, self._ranks, typical[_OURS],
            wrong[_OURS], typical[best], max(wrong[name] for name in ways if name != _OURS), best,
        )  # fmt: skip

    def _ways(self, case: Case) -> dict[str, tuple[Callable[[], Any], Any]]:
        """By name: what makes a call and returns its result, and its input."""
        own, shared = (buffer[: case.count] for buffer in self._buffers[case.type])
        operations = self._torch.ops.symm_mem
        group = self._group
        ways = {
            _OURS: (lambda: self._reduced(own), own),
            "two_shot": (lambda: operations.two_shot_all_reduce_(shared, "sum", group), shared),
        }
        if case.bytes <= _ONE_SHOT_MOST_BYTES:
            ways["one_shot"] = (
                lambda: operations.one_shot_all_reduce(shared, "sum", group),
                shared,
            )
        return ways

    def _reduced(self, tensor: Any) -> Any:
        self._torch.ops.unisono.all_reduce_(tensor, "sum", self._group)
        return tensor

    def _wrong(self, case: Case, run: Callable[[], Any], given: Any) -> int:
        inputs = Inputs(case, self._ranks, self.rank, seed=case.bytes + 1)
        bits = getattr(self._torch, f"int{8 * element(case.type).bytes}")
        given.view(bits).copy_(self._on_device(inputs.input(), bits))
        self._together()
        found = run().view(bits)
        self._torch.cuda.synchronize()
        (expected,) = inputs.expected()
        total = np.array([int((found != self._on_device(expected, bits)).sum())])
        self._agree(total, self._dist.ReduceOp.SUM)
        return int(total[0])

    def _on_device(self, segment: Segment, bits: Any) -> Any:
        signed = np.dtype(f"i{segment.table.dtype.itemsize}")
        table = self._torch.from_numpy(segment.table.view(signed)).to("cuda", bits)
        return table.repeat(-(-segment.count // len(table)))[: segment.count]

    def _time_us(self, run: Callable[[], Any], calls: int, in_graph: bool) -> float:
        cuda = self._torch.cuda

        def all_calls() -> None:
            for _ in range(calls):
                run()

        start = all_calls
        if in_graph:
            run()
            cuda.synchronize()
            graph = cuda.CUDAGraph()
            with cuda.graph(graph):
                all_calls()
            graph.replay()
            start = graph.replay
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        self._together()
        begin.record()
        start()
        end.record()
        cuda.synchronize()
        return 1e3 * float(begin.elapsed_time(end)) / calls

    def _together(self) -> None:
        """Returns when all ranks' devices have nothing more to do."""
        self._torch.cuda.synchronize()
        self._dist.all_reduce(self._torch.zeros(1))

    def _agree(self, values: np.ndarray, how: Any) -> None:
        self._dist.all_reduce(self._torch.from_numpy(values), how)


def main(job: Path) -> None:
    """Measures all cases of a job."""
    try:
        import torch
        import torch.distributed as dist

        import unisono.torch
    except ImportError as error:
        raise MisuseError(f"--against symm_mem needs PyTorch: {error}") from None
    rank, ranks = int(os.environ["UNISONO_RANK"]), int(os.environ["UNISONO_WORLD_SIZE"])
    request = DeviceRequest.from_json(json.loads((job / "device.json").read_text()))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    policy = request.options.get("policy")
    options = unisono.torch.Options(policy=policy) if policy else None
    dist.init_process_group("unisono", rank=rank, world_size=ranks, pg_options=options)
    bench = _Bench(request)
    with (job / "rows.jsonl").open("w") as rows:
        for case, mode in list_cases(request, ranks):
            row = bench.measure(case, mode)
            if rank == 0:
                print(json.dumps(asdict(row)), file=rows, flush=True)
    if rank == 0:
        memory = unisono.torch.communicator().memory()
        told = {
            "peer": f"symmetric memory of PyTorch {torch.__version__}",
            "device_bytes": memory["device_bytes"],
        }
        (job / "machine.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except MisuseError as error:
        sys.exit(f"rank {os.environ.get('UNISONO_RANK', '?')}: {error}")
