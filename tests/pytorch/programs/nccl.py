"""PyTorch's own NCCL backend, over whichever library is its NCCL; this program does not know which.

argv: nothing for the checks, "losses" to train.
"""

import ctypes
import datetime
import json
import os
import sys

import torch
import torch.distributed as dist
from checks import all_of, check, mine, rank, report, run_all, same, size, use_device
from torch import nn

LIMIT = datetime.timedelta(seconds=60)
TYPES = [
    *(torch.int8, torch.uint8, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
]


@check
def every_type_and_reduction():
    for dtype in TYPES:
        for count in (1, 1003, 1 << 20):
            parts = all_of((count,), dtype)
            expected = {
                dist.ReduceOp.SUM: sum(parts),
                dist.ReduceOp.MAX: torch.stack(parts).amax(0),
                dist.ReduceOp.MIN: torch.stack(parts).amin(0),
                dist.ReduceOp.PRODUCT: torch.stack(parts).prod(0, dtype=dtype),
            }
            for op, result in expected.items():
                x = mine((count,), dtype)
                dist.all_reduce(x, op)
                same(x, result.to(dtype))


@check
def averages_and_scaled_sums():
    x = mine((1000,))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    torch.testing.assert_close(x, sum(all_of((1000,))) / size())
    for factor in (2.0, torch.full((1,), 2.0)):
        y = mine((1000,))
        dist.all_reduce(y, dist._make_nccl_premul_sum(factor))
        same(y, 2 * sum(all_of((1000,))))


@check
def what_moves():
    parts = all_of((1000,))
    gathered = torch.empty(1000 * size())
    dist.all_gather_into_tensor(gathered, mine((1000,)))
    same(gathered, torch.cat(parts))
    shard = torch.empty(1000)
    dist.reduce_scatter_tensor(shard, mine((1000 * size(),)))
    same(shard, sum(all_of((1000 * size(),)))[rank() * 1000 : (rank() + 1) * 1000])
    x = mine((77,))
    dist.broadcast(x, size() - 1)
    same(x, all_of((77,))[-1])
    y = mine((77,))
    dist.reduce(y, 0)
    if rank() == 0:
        same(y, sum(all_of((77,))))
    pieces = [torch.empty(5) for _ in range(size())] if rank() == 0 else None
    dist.gather(mine((5,)), pieces)
    if pieces is not None:
        same(torch.cat(pieces), torch.cat(all_of((5,))))
    z = torch.empty(5)
    dist.scatter(z, all_of((5,)) if rank() == 0 else None)
    same(z, all_of((5,))[rank()])
    dist.barrier()


@check
def uneven_exchange():
    takes = [rank() + 1] * size()
    gives = [other + 1 for other in range(size())]
    got = torch.empty(sum(takes))
    dist.all_to_all_single(got, torch.full((sum(gives),), float(rank())), takes, gives)
    same(got, torch.arange(size()).repeat_interleave(rank() + 1).float())


@check
def messages_in_groups():
    neighbours = [(rank() + step) % size() for step in (1, -1)]
    got = [torch.empty(1 << 18), torch.empty(1 << 18)]
    ops = []
    for peer, place in zip(neighbours, got, strict=True):
        ops.append(dist.P2POp(dist.isend, torch.full((1 << 18,), float(rank())), peer))
        ops.append(dist.P2POp(dist.irecv, place, peer))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for peer, place in zip(neighbours, got, strict=True):
        same(place, torch.full((1 << 18,), float(peer)))


@check
def coalesced_calls():
    tensors = [mine((count,)) for count in (3, 1000, 70000)]
    with dist._coalescing_manager(device=torch.device("cuda", torch.cuda.current_device())):
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        same(tensor, sum(all_of(tuple(tensor.shape))))


@check
def groups_from_groups():
    half = dist.split_group(split_ranks=[list(range(size()))], timeout=LIMIT)
    x = torch.ones(10)
    dist.all_reduce(x, group=half)
    same(x, torch.full((10,), float(size())))
    made = dist.new_group(list(range(size())))
    dist.all_reduce(x, group=made)
    same(x, torch.full((10,), float(size() ** 2)))
    dist.destroy_process_group(made)


@check
def graphs_replay_with_new_data():
    x = mine((5000,))
    dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
        x += 1
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        same(x, torch.full((5000,), value * size() + 1))


@check
def memory_of_nccls_allocator():
    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(1 << 20)
    backend.register_mem_pool(pool)
    dist.all_reduce(x)
    same(x, torch.full((1 << 20,), float(size())))
    backend.deregister_mem_pool(pool)


@check
def which_library_it_is():
    # PyTorch's package may open its own NCCL by path, too. What libtorch is bound to is the first
    # in the process's own scope.
    report("library", json.dumps([list(torch.cuda.nccl.version()), file_of("ncclAllReduce")]))


def file_of(function: str) -> str:
    """The library in which the process's own scope has a function."""
    info = SymbolInfo()
    scope = ctypes.CDLL(None)
    address = ctypes.cast(getattr(scope, function), ctypes.c_void_p)
    if scope.dladdr(address, ctypes.byref(info)) == 0:
        return ""
    return os.fsdecode(info.file)


class SymbolInfo(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def losses(way: str) -> list[float]:
    """The loss before each of ten steps of a small model, and the norm of its gradients."""
    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(13, 64), nn.Tanh(), nn.Linear(64, 64), nn.Linear(64, 3))
    if way == "ddp":
        module = nn.parallel.DistributedDataParallel(module, bucket_cap_mb=0.005)
    else:
        from torch.distributed.fsdp import fully_shard

        for layer in (module[0], module[2], module[3]):
            fully_shard(layer)
        fully_shard(module)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    numbers = torch.Generator("cpu").manual_seed(11 + rank())
    x = torch.randn(32, 13, generator=numbers, device="cpu").cuda()
    y = torch.stack([x.sum(1), x[:, 0] * x[:, 1], x.amax(1)], 1)
    out = []
    for _ in range(10):
        loss = nn.functional.mse_loss(module(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([one.grad for one in module.parameters()])
        optimizer.step()
        # Of shards, the norm is a sum that is still to be formed.
        out += [loss.item(), getattr(norm, "full_tensor", lambda norm=norm: norm)().item()]
    return out


def main() -> None:
    device = use_device()
    dist.init_process_group("nccl", timeout=LIMIT, device_id=device)
    if sys.argv[1:] == ["losses"]:
        for way in ("ddp", "fsdp"):
            report(way, json.dumps(losses(way)))
    else:
        run_all()
    dist.destroy_process_group()
    # A rank that came here left the group in order.
    report("left", os.environ["RANK"])


if __name__ == "__main__":
    main()
