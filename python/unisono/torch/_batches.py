"""Batches of PyTorch belong to the thread that opened them, and end with an exception.

`_coalescing_manager`, which `batch_isend_irecv` uses, notes in a list of the whole process that a
group's calls are to be put off. Every thread's calls would join that list, and after an exception
it would stay: calls would return and have done nothing, until the group is destroyed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from unisono.torch._replace import replace

_own = threading.local()


def serve(backends_of: Callable[[dist.ProcessGroup | None], list[Any]]) -> None:
    """Takes the places of PyTorch's functions.

    Args:
        backends_of: A group's backends that are Unisono's; None takes the default group.
    """

    def make(pytorch: Callable[..., Any]) -> Callable[..., Any]:
        manager = contextlib.contextmanager(pytorch)

        def coalescing_manager(
            group: dist.ProcessGroup | None = None, *arguments: Any, **named: Any
        ) -> Iterator[Any]:
            backends = backends_of(group)
            try:
                with manager(group, *arguments, **named) as batch:
                    yield batch
            except BaseException:
                if backends:
                    _of_thread(None).pop(group or c10d._get_default_group(), None)
                for backend in backends:
                    backend._drop_batch()
                raise

        return coalescing_manager

    pytorch: Any = c10d
    replace(pytorch._coalescing_manager, make)
    type(pytorch._world).pg_coalesce_state = property(_of_thread)


def _of_thread(_: Any) -> dict[dist.ProcessGroup, list[Any]]:
    """The lists of the calling thread."""
    lists: dict[dist.ProcessGroup, list[Any]] | None = getattr(_own, "lists", None)
    if lists is None:
        lists = _own.lists = {}
    return lists
