"""One rank: times PyTorch's collectives over unisono, and from two GPUs on over NCCL in turn.

    torchrun --nproc-per-node 2 tools/gate/torch_calls.py eager|graph|send_recv OUT.json

bfloat16. An all-reduce and a broadcast are in place; an all-gather and a reduce-scatter go into
tensors, and once more in place. Sizes are bytes, of the larger of a rank's input and output. A time
is the median over repeats of the slowest rank's.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import unisono.torch  # noqa: F401  registers the backend

SIZES = tuple(1 << power for power in (10, 14, 18, 22, 26, 30))
REPEATS = 5
Call = Callable[[dist.ProcessGroup], object]


def collectives(size: int) -> dict[str, Call]:
    """By name, what makes one call on buffers of that size."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole = torch.ones(size // 2, dtype=torch.bfloat16, device="cuda")
    other = torch.empty_like(whole)
    part = whole[: size // 2 // ranks].clone()
    own = whole.chunk(ranks)[rank]
    return {
        "all_reduce": lambda group: dist.all_reduce(whole, group=group),
        "broadcast": lambda group: dist.broadcast(whole, 0, group=group),
        "all_gather": lambda group: dist.all_gather_into_tensor(other, part, group=group),
        "all_gather, in place": lambda g: dist.all_gather_into_tensor(whole, own, group=g),
        "reduce_scatter": lambda group: dist.reduce_scatter_tensor(part, whole, group=group),
        "reduce_scatter, in place": lambda g: dist.reduce_scatter_tensor(own, whole, group=g),
        "all_to_all": lambda group: dist.all_to_all_single(other, whole, group=group),
    }


def exchange(size: int) -> Call:
    """Sends to the next rank what the one before sends to this."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    given = torch.ones(size // 2, dtype=torch.bfloat16, device="cuda")
    result = torch.empty_like(given)

    def call(group: dist.ProcessGroup) -> None:
        messages = [
            dist.P2POp(dist.isend, given, (rank + 1) % ranks, group),
            dist.P2POp(dist.irecv, result, (rank - 1) % ranks, group),
        ]
        for work in dist.batch_isend_irecv(messages):
            work.wait()

    return call


def calls_of(size: int) -> int:
    """How many calls are timed together."""
    return 100 if size <= 1 << 18 else 20 if size <= 1 << 22 else 5 if size <= 1 << 26 else 2


def graph_of(call: Call, group: dist.ProcessGroup, calls: int) -> Callable[[], None]:
    """Replays a CUDA graph of the calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(group)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(calls):
            call(group)
    return graph.replay


class Timer:
    """Times rows of calls; the group takes host memory."""

    def __init__(self, host_group: dist.ProcessGroup) -> None:
        self._host_group = host_group

    def call_us(self, call: Call, group: dist.ProcessGroup, calls: int, in_graph: bool) -> float:
        def eager() -> None:
            for _ in range(calls):
                call(group)

        row = graph_of(call, group, calls) if in_graph else eager
        row()
        times = torch.tensor([self._row_ms(row) for _ in range(REPEATS)], dtype=torch.float64)
        dist.all_reduce(times, dist.ReduceOp.MAX, group=self._host_group)
        return 1e3 * statistics.median(times.tolist()) / calls

    def _row_ms(self, row: Callable[[], None]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        dist.all_reduce(torch.zeros(1), group=self._host_group)
        begin.record()
        row()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)


def main(kind: str, out: str) -> None:
    """Times all, and writes them on rank 0."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    is_compared = int(os.environ["WORLD_SIZE"]) > 1
    dist.init_process_group("nccl", device_id=device)
    ours = dist.new_group(backend="unisono")
    timer = Timer(ours)
    found: dict[str, dict[str, float]] = {"values": {}, "nccl": {}}
    groups = {"values": ours} | ({"nccl": dist.group.WORLD} if is_compared else {})
    modes = ("eager", "graph") if kind == "send_recv" else (kind,)
    for size in SIZES:
        calls = {"send_recv": exchange(size)} if kind == "send_recv" else collectives(size)
        for name, call in calls.items():
            for mode in modes:
                for key, group in groups.items():
                    time_us = timer.call_us(call, group, calls_of(size), mode == "graph")
                    found[key][f"PyTorch {name} {size}, {mode}"] = time_us
        torch.cuda.empty_cache()
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(found))
    dist.barrier(group=ours)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
