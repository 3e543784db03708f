"""Unisono as a backend of torch.distributed.

    import unisono.torch  # PyTorch 2.14 and newer need no import
    torch.distributed.init_process_group("unisono")

The first import compiles the backend for the installed PyTorch; see docs/how-to/pytorch.md.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from unisono import _unisono as native
from unisono.communicator import Communicator
from unisono.errors import MisuseError
from unisono.torch import _build, _meet, _standard
from unisono.torch._meet import Options
from unisono.torch.memory import MemPool

__all__ = [
    "MemPool",
    "Options",
    "all_gather_by",
    "communicator",
    "monitored_barrier",
    "reduce_scatter_by",
    "register",
    "shrink",
]

_extension = _build.load()


def _create(options: Any, asked: Any = None) -> Any:
    """What torch.distributed calls for each new group."""
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    how = asked if isinstance(asked, Options) else Options()
    ranks = list(options.global_ranks_in_group) or list(range(size))
    joining = _joining(options.store, how).as_rank(rank, size)
    made = None
    # Such a group has no members before it is reconfigured.
    if not getattr(options, "enable_reconfigure", False):
        made = _meet.meet_in(_job(), options.store, ranks, timeout, how)
        if made is None:
            made = _meet.meet(options.store, rank, size, timeout, how)
    handle = 0 if made is None else made.handle
    return _extension.make_backend(handle, joining, options.group_id, ranks, timeout, _host_waits())


def _joining(store: dist.Store, options: Options) -> Any:
    """How reconfigure() makes another communicator."""
    return _extension.Joining(_meet.place(store), **asdict(options))


def _job() -> native.Communicator | None:
    """The default group's communicator, if that is of this backend."""
    if not dist.is_initialized():
        return None
    found = _standard.backend_of(None)
    return None if found is None else communicator()._native


def _host_waits() -> bool:
    """As for NCCL: the host, and not only the current stream, waits in Work.wait()."""
    return os.environ.get("TORCH_NCCL_BLOCKING_WAIT", "0") == "1"


def communicator(group: dist.ProcessGroup | None = None) -> Communicator:
    """The communicator under a process group: its record, its memory, its choice of plans.

    Calls on it must not be mixed with the group's own, unless all ranks agree on the order.

    Args:
        group: A group of this backend; None takes the default group.
    """
    handle = _extension.communicator_handle(_backend(group))
    return Communicator(native.Communicator.from_handle(handle))


def monitored_barrier(
    group: dist.ProcessGroup | None = None, timeout: timedelta | None = None
) -> None:
    """Returns when all ranks of the group have called it, or names all that have not.

    torch.distributed.monitored_barrier does the same for groups of this backend. After it failed,
    destroy the group. It is of hosts: what is on streams is not waited for.

    Args:
        group: The group; None takes the default one.
        timeout: How long rank 0 waits for the others; None takes the group's.

    Raises:
        torch.distributed.DistBackendError: Ranks are missing. All ranks that came learn which.
    """
    options = dist.BarrierOptions()
    if timeout is not None:
        options.timeout = timeout
    _extension.monitored_barrier(_backend(group), options.timeout)


def shrink(
    group: dist.ProcessGroup | None = None, excluded: Sequence[int] | None = None
) -> dist.ProcessGroup:
    """Makes a group without some ranks, which may have died. Collective over the others.

    Works after a failure, too: the new group starts afresh, on the same devices; the old one stays
    failed, and is left to be destroyed at the end. Ranks keep their numbers of the job, which
    torch.distributed's `src` and `dst` are. No store is asked, so that it may be gone.

    Args:
        group: The group; None takes the default one.
        excluded: Ranks of the group, the same on all that stay; None takes the one whose failure
            has ended the group.

    Raises:
        unisono.MisuseError: This rank is among them, one is no rank, or None was given and the
            group has not failed.
        unisono.PeerError: Another rank has died as well, or does not come in time.
    """
    group = group or dist.group.WORLD
    backend = _backend(group)
    old = communicator(group)
    if excluded is None:
        failure = old.failure
        if failure is None or failure.rank is None:
            raise MisuseError("the group names no rank that has failed; say which ranks to exclude")
        excluded = [failure.rank]
    made = old._native.shrink(list(excluded))
    members = [rank for rank in range(old.size) if rank not in excluded]
    return _standard.shrunk(
        group,
        members,
        lambda name, ranks: _extension.make_backend(
            made.handle,
            backend.joining.as_rank(made.rank, made.size),
            name,
            ranks,
            backend.options._timeout,
            _host_waits(),
        ),
    )


def all_gather_by(
    algorithm: str,
    output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
) -> Any:
    """As torch.distributed.all_gather_into_tensor, by a plan of one's choice.

    Args:
        algorithm: See `unisono plan list`.
        output: All ranks' inputs, one after another.
        input: This rank's part.
        group: The group; None takes the default one.
        async_op: Return a Work instead of waiting.
    """
    return _extension.all_gather_by(_backend(group), algorithm, output, input, async_op)


def reduce_scatter_by(
    algorithm: str,
    output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    group: dist.ProcessGroup | None = None,
    op: Any = dist.ReduceOp.SUM,
    async_op: bool = False,
) -> Any:
    """As torch.distributed.reduce_scatter_tensor, by a plan of one's choice.

    Args:
        algorithm: See `unisono plan list`.
        output: This rank's part of the result.
        input: One part for each rank, one after another.
        group: The group; None takes the default one.
        op: How parts are combined.
        async_op: Return a Work instead of waiting.
    """
    op = dist.ReduceOp(op) if isinstance(op, dist.ReduceOp.RedOpType) else op
    return _extension.reduce_scatter_by(_backend(group), algorithm, output, input, op, async_op)


def _backend(group: dist.ProcessGroup | None) -> Any:
    found = _standard.backend_of(group)
    if found is None:
        raise ValueError("the group has no backend of the name unisono")
    return found


def register() -> None:
    """Makes "unisono" a backend of torch.distributed, as the import of this module does.

    PyTorch 2.14 and newer call it by themselves, through the entry point
    `torch.distributed.backends`. It may be called again.
    """
    if "UNISONO" not in dist.Backend._plugins:
        dist.Backend.register_backend(
            "unisono", _create, extended_api=True, devices=["cpu", "cuda"]
        )


register()
_standard.serve(monitored_barrier)
atexit.register(_extension.close_all)
