"""The kinds of parallelism: each makes a model run on all ranks."""

from dataclasses import dataclass

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

KINDS = ("ddp", "fsdp", "hsdp", "tp")


@dataclass(frozen=True)
class Parallel:
    """A model on all ranks.

    Attributes:
        model: Call this one.
        parts: Into how many parts a batch is divided, and which of them this rank takes.
    """

    model: nn.Module
    parts: int
    part: int


def make_parallel(kind: str, model: nn.Module) -> Parallel:
    """The model, of the same weights on every rank, made parallel.

    ddp: every rank has the whole model and a part of the batch. fsdp: the model is sharded over all
    ranks. hsdp: sharded over half of them, twice. tp: every rank has a part of each layer, and the
    whole batch.
    """
    size, rank = dist.get_world_size(), dist.get_rank()
    if kind == "ddp":
        return Parallel(DistributedDataParallel(model), size, rank)
    if kind == "tp":
        _split_layers(model, init_device_mesh("cpu", (size,)))
        return Parallel(model, 1, 0)
    if kind == "hsdp":
        if size % 2:
            raise SystemExit(f"hsdp needs an even number of ranks, not {size}")
        mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (size,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return Parallel(fully_shard(model, mesh=mesh), size, rank)


def _split_layers(model: nn.Module, mesh: DeviceMesh) -> None:
    heads = model.blocks[0].attention.query.out_features // model.blocks[0].attention.head_width
    if heads % mesh.size():
        raise SystemExit(
            f"tp divides the {heads} heads among the ranks, which {mesh.size()} cannot"
        )
    for block in model.blocks:
        parallelize_module(
            block,
            mesh,
            {
                "attention.query": ColwiseParallel(),
                "attention.key": ColwiseParallel(),
                "attention.value": ColwiseParallel(),
                "attention.out": RowwiseParallel(),
                "widen": ColwiseParallel(),
                "narrow": RowwiseParallel(),
            },
        )
