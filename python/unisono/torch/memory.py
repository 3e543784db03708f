"""Device memory for PyTorch that other ranks can always reach."""

from __future__ import annotations

import functools
from typing import Any

import torch

from unisono import _unisono as native


class MemPool(torch.cuda.MemPool):
    """A pool whose memory peers can store to directly, whatever PyTorch's allocator is set to.

    What PyTorch takes by itself can be reached, too, but for memory of `cudaMallocAsync`
    (PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync) and expandable segments that were made
    without file descriptors. Tensors that are made inside come from the pool:

        pool = unisono.torch.MemPool()
        with torch.cuda.use_mem_pool(pool):
            buffer = torch.empty(1 << 28, device="cuda")
        unisono.torch.communicator().register_memory(buffer)

    The pool must live as long as its tensors, and only the device that was current when it was
    made has it: a rank sets its device first.
    """

    def __init__(self) -> None:
        """A new pool on the current device."""
        super().__init__(_allocator().allocator())


@functools.cache
def _allocator() -> Any:
    return torch.cuda.memory.CUDAPluggableAllocator(
        native.__file__, "unisono_pool_allocate", "unisono_pool_free"
    )
