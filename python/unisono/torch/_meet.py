"""How the ranks of a process group find each other: through the store that PyTorch hands over."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from unisono import _through_store
from unisono import _unisono as native

_LOOPBACK = ("localhost", "127.", "::1")


@dataclass(frozen=True)
class Options:
    """What a group asks of its calls on devices: `pg_options` of init_process_group and new_group.

    Attributes:
        policy: "fastest", or "zero_sm": copy engines alone, for groups that only all-gather,
            exchange, broadcast, gather, scatter, send and receive. None takes UNISONO_GPU_POLICY.
        max_sms: Multiprocessors that a call's kernels may take. 0 takes UNISONO_GPU_MAX_SMS; where
            that is 0, too, large all-reduces, all-gathers and reduce-scatters leave most of them
            to what computes beside (docs/decisions/0027).
    """

    policy: str | None = None
    max_sms: int = 0


def meet(
    store: Store, rank: int, size: int, timeout: timedelta, options: Options
) -> native.Communicator:
    """The communicator of a new group. Collective over its ranks.

    Args:
        store: Where the group's ranks, and nobody else, read and write.
        rank: This process's rank in the group.
        size: The group's number of ranks.
        timeout: For joining, and then for each operation.
        options: The same on all ranks.

    Raises:
        torch.distributed.DistStoreError: Rank 0 did not come; the text says so.
        unisono.Error: Ranks are missing, and so on; see unisono.init.
    """
    seconds = timeout.total_seconds()
    listener, rendezvous, secret = None, "", ""
    if size > 1:
        try:
            listener, rendezvous, secret = _through_store.meet(
                store, "unisono", rank, size, timeout, _interface()
            )
        except dist.DistStoreError as error:
            raise dist.DistStoreError(
                f"rank {rank} of {size} waited {seconds:g} s for the group's rank 0, which "
                f"has not told where it listens: {error}"
            ) from error
    return native.Communicator.init(
        rank,
        size,
        rendezvous,
        secret,
        timeout=seconds,
        bootstrap_timeout=seconds,
        listener=listener,
        policy=options.policy or "",
        max_sms=options.max_sms,
    )


def _interface() -> str:
    """Where rank 0 listens: on the loopback interface if PyTorch's own master is there."""
    named = os.environ.get("UNISONO_INTERFACE")
    if named is not None:
        return named
    return "lo" if os.environ.get("MASTER_ADDR", "").startswith(_LOOPBACK) else ""
