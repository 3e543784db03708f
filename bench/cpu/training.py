"""What a training step on CPU memory takes: DDP over unisono, one thread in each rank.

    torchrun --nproc-per-node 2 bench/cpu/training.py

Prints the median time of a step, and the mean processor time of one, which says more where other
programs run; both of the slowest rank. `turns.py` compares two builds by it:

    python bench/turns.py lines "BEFORE/bin/torchrun --nproc-per-node 2" \\
        "AFTER/bin/torchrun --nproc-per-node 2" --pairs 21 -- bench/cpu/training.py
"""

import statistics
import time

import torch
import torch.distributed as dist
import unisono.torch  # noqa: F401  registers the backend
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH = 512, 8, 32
BUCKET_MB = 1  # a layer's gradients: each step makes a call for each layer
WARM_UP, STEPS = 10, 100


def main() -> None:
    """Trains, and prints the times on rank 0."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("unisono")
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=BUCKET_MB)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(BATCH, WIDTH)

    def step() -> float:
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        return time.perf_counter() - begin

    for _ in range(WARM_UP):
        step()
    processor = time.process_time()
    times = [step() for _ in range(STEPS)]
    processor = (time.process_time() - processor) / STEPS
    slowest = torch.tensor([statistics.median(times), processor]) * 1e6
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        for name, microseconds in zip(("step", "processor"), slowest.tolist(), strict=True):
            print(f"{name:10} {dist.get_world_size():3} ranks {microseconds:10.1f} us", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
