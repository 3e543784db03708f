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
        group: All ranks, by the model's backend.
    """

    model: nn.Module
    parts: int
    part: int
    group: dist.ProcessGroup


def make_parallel(kind: str, model: nn.Module, backend: str) -> Parallel:
    """The model, of the same weights on every rank, made parallel.

    ddp: every rank has the whole model and a part of the batch. fsdp: the model is sharded over all
    ranks. hsdp: sharded over half of them, twice. tp: every rank has a part of each layer, and the
    whole batch.
    """
    size, rank = dist.get_world_size(), dist.get_rank()
    group = dist.new_group(backend=backend)
    if kind == "ddp":
        return Parallel(DistributedDataParallel(model, process_group=group), size, rank, group)
    if kind == "tp":
        _split_layers(model, _mesh(backend, tensor=size))
        return Parallel(model, 1, 0, group)
    if kind == "hsdp" and size % 2:
        raise SystemExit(f"hsdp needs an even number of ranks, not {size}")
    shape = {"replicate": 2, "shard": size // 2} if kind == "hsdp" else {"shard": size}
    mesh = _mesh(backend, **shape)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return Parallel(fully_shard(model, mesh=mesh), size, rank, group)


def _mesh(backend: str, **shape: int) -> DeviceMesh:
    """All ranks in a grid, with groups of the backend along each dimension."""
    # PyTorch takes meshes of the same ranks and names for one, whatever their backends are, and
    # remembers the first: two that exist at the same time must have other names.
    names = tuple(f"{name}_{backend}" for name in shape)
    return init_device_mesh(
        "cpu",
        tuple(shape.values()),
        mesh_dim_names=names,
        backend_override=dict.fromkeys(names, backend),
    )


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
