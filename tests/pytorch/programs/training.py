"""Trains one model in one way over two groups, Gloo's (on GPUs: NCCL's) and ours, and compares what
comes out.

The same processes hold both backends. On two ranks every sum has two terms, and one value, whoever
forms it: the losses are the same bit for bit. On more, the order of additions is each library's
own, and the losses agree within LOSS_BOUND.
"""

import datetime
import sys

import torch
import torch.distributed as dist
import unisono.torch
from checks import DEVICE, report, size, use_device
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

REFERENCE = "nccl" if DEVICE == "cuda" else "gloo"
STEPS = 5
BATCH = 8
# Relative. One sum of n numbers in another order differs by at most (n - 1) units of 6e-8 for
# each step of the optimizer; five steps through two layers stay far below this.
LOSS_BOUND = 1e-5
# A sum of numbers of 11 bits: one unit is 5e-4.
HALF_LOSS_BOUND = 1e-3


class Block(nn.Module):
    """Two linear layers, as tensor parallelism likes them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


def model() -> nn.Module:
    """The same on every rank and for every backend; widths that 2, 4 and 6 do not all divide."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(13, 24), Block(24), Block(24), nn.Linear(24, 3))


def batches(data_ranks: int, data_rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What one of the data-parallel ranks trains on: its batch, again and again."""
    numbers = torch.Generator("cpu").manual_seed(11)
    x = torch.randn(data_ranks, BATCH, 13, generator=numbers, device="cpu")[data_rank].to(DEVICE)
    y = torch.stack([x.sum(1), x[:, 0] * x[:, 1], x.amax(1)], 1)
    return [(x, y)] * STEPS


def steps(module, optimizer, data) -> list[float]:
    """The loss before each step."""
    losses = []
    for x, y in data:
        loss = nn.functional.mse_loss(module(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def mesh(backend, shape, names) -> DeviceMesh:
    """All ranks in a grid, with groups of one backend.

    PyTorch takes meshes of the same ranks and names for one, whatever their backends are, and
    remembers the first: so the backend is in the names.
    """
    groups = groups_of(backend, shape)
    names = tuple(named(name, backend) for name in names)
    ranks = torch.arange(size()).view(shape)
    if len(shape) == 1:
        return DeviceMesh.from_group(groups[0], DEVICE, mesh_dim_names=names)
    return DeviceMesh.from_group(groups, DEVICE, mesh=ranks.tolist(), mesh_dim_names=names)


def named(dimension: str, backend: str) -> str:
    """A mesh's dimension."""
    return f"{dimension}_{backend}"


def groups_of(backend: str, shape: tuple[int, ...]) -> list[dist.ProcessGroup]:
    """This rank's group along each dimension of a grid of all ranks."""
    grid = torch.arange(size()).view(shape)
    out = []
    for dimension in range(len(shape)):
        lines = grid.movedim(dimension, -1).reshape(-1, shape[dimension]).tolist()
        for line in lines:
            group = dist.new_group(line, backend=backend)
            if dist.get_rank() in line:
                out.append(group)
    return out


def ddp(backend: str) -> list[float]:
    (group,) = groups_of(backend, (size(),))
    wrapped = nn.parallel.DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.005)
    return steps(wrapped, torch.optim.AdamW(wrapped.parameters(), 1e-2), data())


def ddp_with_a_compressing_hook(backend: str) -> list[float]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    (group,) = groups_of(backend, (size(),))
    wrapped = nn.parallel.DistributedDataParallel(model(), process_group=group)
    wrapped.register_comm_hook(group, default_hooks.fp16_compress_hook)
    return steps(wrapped, torch.optim.SGD(wrapped.parameters(), 1e-2), data())


def zero(backend: str) -> list[float]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    (group,) = groups_of(backend, (size(),))
    wrapped = nn.parallel.DistributedDataParallel(model(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        wrapped.parameters(), torch.optim.AdamW, process_group=group, lr=1e-2
    )
    return steps(wrapped, optimizer, data())


def fsdp(backend: str, custom: bool = False) -> list[float]:
    from torch.distributed.fsdp import FSDPModule, fully_shard

    module = model()
    where = mesh(backend, (size(),), ("shard",))
    for layer in module:
        fully_shard(layer, mesh=where)
    fully_shard(module, mesh=where)
    if custom and backend == "unisono":
        from unisono.torch.fsdp import AllGather, ReduceScatter

        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_custom_all_gather(AllGather())
                part.set_custom_reduce_scatter(ReduceScatter())
    if backend == "gloo":
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_force_sum_reduction_for_comms(True)
    losses = steps(module, torch.optim.AdamW(module.parameters(), 1e-2), data())
    if custom and backend == "unisono":
        plans = {entry["plan"] for entry in entries_of(where.get_group())}
        assert "hierarchical_recursive_direct" in plans, plans
    return losses


def entries_of(group: dist.ProcessGroup) -> list[dict]:
    """What ran in a group of Unisono."""
    return unisono.torch.communicator(group).record()["collectives"]


def check_runs(backend: str, where: DeviceMesh, collective: str) -> None:
    """The mesh's collectives of each step were this backend's."""
    if backend == "unisono":
        found = [entry["collective"] for entry in entries_of(where.get_group())]
        assert found.count(collective) >= STEPS, found


def fsdp_with_hierarchical_plans(backend: str) -> list[float]:
    return fsdp(backend, custom=True)


def hsdp(backend: str) -> list[float]:
    from torch.distributed.fsdp import FSDPModule, fully_shard

    shape = (2, size() // 2)
    module = model()
    where = mesh(backend, shape, ("replicate", "shard"))
    for layer in module:
        fully_shard(layer, mesh=where)
    fully_shard(module, mesh=where)
    if backend == "gloo":
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_force_sum_reduction_for_comms(True)
    return steps(module, torch.optim.AdamW(module.parameters(), 1e-2), data())


def tensor_parallel(backend: str) -> list[float]:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    module = model()
    where = mesh(backend, (size(),), ("tensor",))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in (module[1], module[2]):
        parallelize_module(block, where, plan)
    # Not in one call for all: PyTorch refuses parameters of which some are distributed.
    optimizer = torch.optim.SGD(module.parameters(), 1e-2, foreach=False)
    losses = steps(module, optimizer, batches(1, 0))
    check_runs(backend, where, "all_reduce")
    return losses


def tensor_parallel_and_fsdp(backend: str) -> list[float]:
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    shape = (2, size() // 2)
    module = model()
    where = mesh(backend, shape, ("shard", "tensor"))
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in (module[1], module[2]):
        parallelize_module(block, where[named("tensor", backend)], plan)
        fully_shard(block, mesh=where[named("shard", backend)])
    fully_shard(module, mesh=where[named("shard", backend)])
    if backend == "gloo":
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_force_sum_reduction_for_comms(True)
    mine = batches(2, dist.get_rank() // shape[1])
    losses = steps(module, torch.optim.SGD(module.parameters(), 1e-2, foreach=False), mine)
    check_runs(backend, where[named("shard", backend)], "reduce_scatter")
    if shape[1] > 1:
        check_runs(backend, where[named("tensor", backend)], "all_reduce")
    return losses


def data() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return batches(size(), dist.get_rank())


WAYS = [
    ddp, ddp_with_a_compressing_hook, zero, fsdp, fsdp_with_hierarchical_plans, hsdp,
    tensor_parallel, tensor_parallel_and_fsdp,
]  # fmt: skip


def main() -> None:
    use_device()
    dist.init_process_group("unisono", timeout=datetime.timedelta(seconds=60))
    wanted = sys.argv[1:]
    for way in WAYS:
        if wanted and way.__name__ not in wanted:
            continue
        try:
            expected, got = way(REFERENCE), way("unisono")
            worst = max(abs(a - b) / abs(b) for a, b in zip(got, expected, strict=True))
            finite = all(abs(loss) < 1e6 for loss in got) and got[-1] < got[0]
            bound = HALF_LOSS_BOUND if "compress" in way.__name__ else LOSS_BOUND
            limit = 0.0 if size() == 2 else bound
            bad = worst > limit or not finite
            report(way.__name__, f"{worst=} {limit=} {got=} {expected=}" if bad else "")
            report(way.__name__ + " losses", f"{got} differs by {worst}")
        except Exception as error:
            import traceback

            report(way.__name__, traceback.format_exc()[-3000:] + str(error))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
