"""Records flight_recorder_gloo: python record_flight_recorder.py RANK, four at once.

Needs PyTorch 2.13 or newer, whose Gloo backend has a Flight Recorder.
"""

import os
import sys
from pathlib import Path

os.environ["TORCH_FR_BUFFER_SIZE"] = "200"

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

RANKS, STEPS, ELEMENTS = 4, 2, 1 << 14


def step(x: torch.Tensor, pair: dist.ProcessGroup) -> None:
    """Some compute between calls of most kinds."""
    for _ in range(20):
        x = torch.sin(x) + 1e-3
    part = x[: ELEMENTS // RANKS].contiguous()
    dist.all_reduce(x)
    dist.all_reduce(x[:1000], group=pair)
    dist.all_gather_into_tensor(torch.empty(ELEMENTS), part)
    dist.broadcast(x, 0)
    dist.reduce(x, 0)
    dist.all_to_all_single(torch.empty_like(x), x)
    dist.barrier()


def main(rank: int) -> None:
    dist.init_process_group(
        "gloo", init_method="tcp://127.0.0.1:29633", rank=rank, world_size=RANKS
    )
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    for _ in range(STEPS):
        step(torch.ones(ELEMENTS), pairs[rank // 2])
    dump = _dump_fr_trace(includeStackTraces=False)
    folder = Path(__file__).with_name("flight_recorder_gloo")
    (folder / f"gloo_trace_rank_{rank}").write_bytes(dump)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
