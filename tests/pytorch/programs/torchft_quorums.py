"""torchft over process groups of Unisono's, one per quorum; each process is a replica group."""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torchft
import unisono.torch
from checks import rank, report, size
from torch import nn
from torchft.process_group import ProcessGroupWrapper


class ProcessGroupUnisono(ProcessGroupWrapper):
    """As torchft's own, which wrap Gloo and NCCL."""

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        return unisono.torch.process_group(store, rank, world_size, self._timeout)

    def getBackendName(self) -> str:  # noqa: N802
        return "torchft-unisono"
