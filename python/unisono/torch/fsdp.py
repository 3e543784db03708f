"""Communication of FSDP2 by plans of one's choice.

    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(AllGather())
            module.set_custom_reduce_scatter(ReduceScatter())

By default they take the hierarchical plans of PCCL: recursive doubling or halving between nodes,
one for each local index, and everybody to everybody inside a node. `unisono plan list` names all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard import _fsdp_api as fsdp_api

from unisono.torch import all_gather_by, reduce_scatter_by


class _ByPlan:
    plan = ""  # taken if none is named

    def __init__(self, algorithm: str | None = None) -> None:
        self.algorithm = algorithm or self.plan

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Memory for FSDP's buffers: the core registers nothing, so any will do."""
        return torch.empty(size, dtype=dtype, device=device)


class AllGather(_ByPlan, fsdp_api.AllGather):
    """For FSDPModule.set_custom_all_gather.

    Args:
        algorithm: A plan for all_gather, see `unisono plan list`.
    """

    plan = "hierarchical_recursive_direct_all_gather"

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        """One all-gather, and its Work if async_op."""
        return all_gather_by(self.algorithm, output_tensor, input_tensor, group, async_op)


class ReduceScatter(_ByPlan, fsdp_api.ReduceScatter):
    """For FSDPModule.set_custom_reduce_scatter.

    Args:
        algorithm: A plan for reduce_scatter, see `unisono plan list`.
    """

    plan = "hierarchical_recursive_direct_reduce_scatter"

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any = dist.ReduceOp.SUM,
        async_op: bool = False,
    ) -> Any:
        """One reduce-scatter, and its Work if async_op."""
        return reduce_scatter_by(self.algorithm, output_tensor, input_tensor, group, op, async_op)
