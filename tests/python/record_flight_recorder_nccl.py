"""Records flight_recorder_nccl, on 4 GPUs: torchrun --nproc-per-node 4 THIS_FILE.

The environment has TORCH_NCCL_TRACE_BUFFER_SIZE (entries) and TORCH_NCCL_ENABLE_TIMING=1.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_nccl_trace

STEPS, ELEMENTS, WIDTH = 3, 1 << 20, 2048


def step(x: torch.Tensor, matrix: torch.Tensor, pair: dist.ProcessGroup) -> torch.Tensor:
    """Some compute, then calls of most kinds, and messages to the next rank in a batch."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for _ in range(4):
        matrix = torch.tanh(matrix @ matrix * 1e-3)
    y = torch.empty_like(x)
    part = ELEMENTS // ranks
    dist.all_reduce(x)
    dist.all_reduce(x[:1000], group=pair)
    dist.all_gather_into_tensor(y, x[:part])
    dist.reduce_scatter_tensor(y[:part], x)
    dist.all_to_all_single(y, x)
    dist.broadcast(x, 0)
    dist.reduce(x, 0)
    dist.all_reduce(x.to(torch.bfloat16), async_op=True).wait()
    messages = [
        dist.P2POp(dist.isend, x, (rank + 1) % ranks),
        dist.P2POp(dist.irecv, y, (rank - 1) % ranks),
    ]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    dist.barrier()
    return matrix


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    x = torch.ones(ELEMENTS, device="cuda")
    matrix = torch.randn(WIDTH, WIDTH, device="cuda")
    for _ in range(STEPS):
        matrix = step(x, matrix, pairs[rank // 2])
    torch.cuda.synchronize()
    time.sleep(1)  # Until the watchdog has seen all ends.
    folder = Path(__file__).with_name("flight_recorder_nccl")
    (folder / f"nccl_trace_rank_{rank}").write_bytes(_dump_nccl_trace(includeStackTraces=False))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
