"""Default groups in turn on one address: a rank does not meet the store of the group before.

Rank 0 holds PyTorch's store, which ends with its default group. Another rank may have destroyed its
part of the group earlier, and would reach the old store when it makes the next group. So rank 0
marks the store of each group, and the others look for a mark that they have not seen.
"""

from __future__ import annotations

import importlib
import time
import uuid
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

_KEY = "unisono/turn"
_PAUSE_SECONDS = 0.05  # the old store warns of a client that it leaves alone, so few look

_seen: dict[tuple[str, int], bytes] = {}  # the last mark at an address


def serve() -> None:
    """Takes the place of PyTorch's function."""
    # The package has a function of the module's name.
    pytorch: Any = importlib.import_module("torch.distributed.rendezvous")
    original = pytorch._create_c10d_store

    def create(
        hostname: str,
        port: int,
        rank: int,
        world_size: int,
        timeout: timedelta,
        *arguments: Any,
        **named: Any,
    ) -> Store:
        def create_as_pytorch() -> Store:
            store: Store = original(hostname, port, rank, world_size, timeout, *arguments, **named)
            return store

        # The agent's store outlives all groups, and without a port there is no turn.
        if pytorch._torchelastic_use_agent_store() or port == 0:
            return create_as_pytorch()
        place = (hostname, port)
        if rank == 0:
            # The store that PyTorch makes shares this server, and waits there for the others.
            first = TCPStore(
                hostname,
                port,
                is_master=True,
                timeout=timeout,
                wait_for_workers=False,
                multi_tenant=True,
                use_libuv=named.get("use_libuv", arguments[0] if arguments else True),
            )
            first.set(_KEY, uuid.uuid4().hex)
            return create_as_pytorch()
        if place in _seen and not dist.is_initialized():
            _await_next(place, timeout)
        store = create_as_pytorch()
        if store.check([_KEY]):
            _seen[place] = store.get(_KEY)
        return store

    pytorch._create_c10d_store = create


def _await_next(place: tuple[str, int], timeout: timedelta) -> None:
    """Until the store there has another mark, or for so long."""
    deadline = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < deadline:
        try:
            store = TCPStore(*place, is_master=False, timeout=timeout, wait_for_workers=False)
            if store.check([_KEY]) and store.get(_KEY) != _seen[place]:
                return
        except dist.DistError:
            pass  # it has just ended
        time.sleep(_PAUSE_SECONDS)
