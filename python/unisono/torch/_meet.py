"""How the ranks of a process group find each other: through the store that PyTorch hands over.

The ranks of the default group meet by a rendezvous of their own. Later groups take that group's
connections if they are asked for in the same way: they need no sockets of their own then.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from unisono import _through_store
from unisono import _unisono as native


@dataclass(frozen=True)
class Options:
    """What a group asks of its calls on devices: `pg_options` of init_process_group and new_group.

    Attributes:
        policy: "fastest", or "zero_sm": copy engines alone, for groups that only all-gather,
            exchange, broadcast, gather, scatter, send and receive. None takes UNISONO_GPU_POLICY.
        max_sms: The limit on SMs of a call's kernels. 0 takes UNISONO_GPU_MAX_SMS; where that is 0,
            too, large all-reduces, all-gathers and reduce-scatters launch small grids, so that
            computation overlaps (docs/decisions/0021).
    """

    policy: str | None = None
    max_sms: int = 0


_options_of: dict[int, Options] = {}  # what jobs were made with, by their communicator


def meet_in(
    job: native.Communicator | None,
    store: Store,
    ranks: Sequence[int],
    timeout: timedelta,
    options: Options,
) -> native.Communicator | None:
    """A new group's communicator over a job's connections, or None if it needs its own.

    Collective over the group's ranks.

    Args:
        job: The default group's communicator; None if there is none of this library.
        store: Where the group's ranks, and nobody else, read and write.
        ranks: The group's ranks in the job.
        timeout: For the ranks to come.
        options: The same on all ranks.

    Raises:
        torch.distributed.DistStoreError: Ranks did not come in time; the text names them.
        unisono.Error: A rank has died.
    """
    if job is None or len(ranks) < 2 or sorted(ranks) != list(ranks):
        return None
    if ranks[-1] >= job.size or _options_of.get(job.id) != options:
        return None
    _await_all(store, ranks.index(job.rank), len(ranks), timeout)
    return job.shrink([rank for rank in range(job.size) if rank not in set(ranks)])


def _await_all(store: Store, rank: int, size: int, timeout: timedelta) -> None:
    prefix = _through_store.turn(store, "unisono/comers", size)
    keys = [f"{prefix}/{other}" for other in range(size)]
    store.set(keys[rank], "")
    try:
        store.wait(keys, timeout)
    except dist.DistStoreError as error:
        missing = [str(other) for other, key in enumerate(keys) if not store.check([key])]
        raise dist.DistStoreError(
            f"rank {rank} of {size} waited {timeout.total_seconds():g} s for a new group's ranks; "
            f"these have not come: {', '.join(missing)}"
        ) from error


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
    met = _through_store.Met(None, "", "")
    where = place(store) if rank == 0 else ""
    if size > 1:
        try:
            met = _through_store.meet(store, "unisono", rank, size, timeout, where)
        except dist.DistStoreError as error:
            raise dist.DistStoreError(
                f"rank {rank} of {size} waited {seconds:g} s for the group's rank 0, which "
                f"has not told where it listens: {error}"
            ) from error
    made = native.Communicator.init(
        rank,
        size,
        met.rendezvous,
        met.secret,
        timeout=seconds,
        bootstrap_timeout=seconds,
        listener=met.listener,
        is_listening=size > 1,
        calls=asdict(options),
    )
    met.forget()
    if not dist.is_initialized():
        _options_of.clear()
        _options_of[made.id] = options
    return made


def place(store: Store) -> str:
    """Where a rank listens: towards the host of PyTorch's store, or else its master."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    host = store.host if isinstance(store, dist.TCPStore) else ""
    named = os.environ.get("UNISONO_INTERFACE", "")
    return named or _towards(host or os.environ.get("MASTER_ADDR", ""))


@functools.cache  # so that it is logged once, not for each group
def _towards(host: str) -> str:
    return native.own_address(host)
