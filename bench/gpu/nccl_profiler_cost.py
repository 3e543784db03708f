"""What recording NCCL's calls by the profiler plugin costs: all-reduces of PyTorch, back to back.

    torchrun --nproc-per-node 2 bench/gpu/nccl_profiler_cost.py

Run it in turn without and with NCCL_PROFILER_PLUGIN and UNISONO_DUMP_DIRECTORY. Rank 0 prints the
median microseconds of a call.
"""

from __future__ import annotations

import os
import statistics
import time

import torch
import torch.distributed as dist

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24)
WARM_UP, CALLS, REPEATS = 20, 200, 7


def seconds(x: torch.Tensor) -> float:
    """Of so many calls, one after another."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def main() -> None:
    """Prints a line for each size."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    with_plugin = "with" if os.environ.get("NCCL_PROFILER_PLUGIN") else "without"
    for size in SIZES:
        x = torch.ones(size // 4, device="cuda")
        for _ in range(WARM_UP):
            dist.all_reduce(x)
        median = statistics.median(seconds(x) for _ in range(REPEATS)) / CALLS * 1e6
        if dist.get_rank() == 0:
            print(f"{with_plugin:8} {size:9} {median:8.2f} us", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
