"""How ranks find each other through a store of keys and values that they share, such as PyTorch's.

The store only holds the address where rank 0 listens, and the secret that each rank then proves
there, so the job is no stronger than the store.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from unisono import _unisono as native
from unisono.errors import MachineError, PeerError

_SECRETS = ("UNISONO_SECRET", "UNISONO_SECRET_FILE")


class Store(Protocol):
    """What is used of torch.distributed.Store."""

    def add(self, key: str, amount: int) -> int:
        """Adds to a number that starts at 0, and returns the sum."""

    def set(self, key: str, value: str) -> Any:
        """Makes a value readable for all."""

    def wait(self, keys: list[str], timeout: timedelta) -> Any:
        """Returns when all keys are set; raises at the timeout."""

    def get(self, key: str) -> bytes:
        """The value of a key that is set."""


class Met(NamedTuple):
    """What a rank joins with.

    Attributes:
        listener: Rank 0's.
        rendezvous: Where rank 0 listens.
        secret: The job's; "" where the settings have one.
        forget: To be called once all ranks have joined: rank 0's takes the secret out of the store.
    """

    listener: native.RendezvousListener | None
    rendezvous: str
    secret: str
    forget: Callable[[], object] = lambda: None


def _settings(given: Mapping[str, str] | None) -> dict[str, str]:
    return {row.variable: row.value for row in native.settings()} | dict(given or {})


def has_secret(given: Mapping[str, str] | None = None) -> bool:
    """Whether `given` or this process's settings have a secret, which precedes a generated one."""
    values = _settings(given)
    return any(values[variable] for variable in _SECRETS)


def place(
    towards: str, interface: str | None = None, given: Mapping[str, str] | None = None
) -> str:
    """Where rank 0 listens: what it was told, else its address towards the ranks' meeting place."""
    return interface or _settings(given)["UNISONO_INTERFACE"] or native.own_address(towards)


def meet(
    store: Store,
    prefix: str,
    rank: int,
    size: int,
    timeout: timedelta,
    interface: str,
    given: Mapping[str, str] | None = None,
) -> Met:
    """Rank 0 listens on `interface` and makes a secret; the others read both from the store.

    Raises:
        PeerError: Rank 0 could not listen.
        MachineError: Rank 0 could not, or the store holds something else.
        Exception: Whatever the store raises when rank 0 did not come in time.
    """
    # A store outlives the groups that are made over it: a group with the name of a destroyed one
    # must not read what that one left. Each round of arrivals is one group.
    arrival = store.add(f"{prefix}/arrivals", 1) - 1
    key = f"{prefix}/{arrival // size}/rendezvous"
    if rank == 0:
        try:
            listener = native.RendezvousListener(interface)
        except Exception as error:  # sent to all, or the others would wait for nothing
            store.set(key, json.dumps(["", "", str(error)]))
            raise
        secret = "" if has_secret(given) else native.make_secret()
        store.set(key, json.dumps([listener.rendezvous, secret, ""]))
        return Met(listener, listener.rendezvous, secret, lambda: _forget(store, key))
    store.wait([key], timeout)
    rendezvous, secret, refused = _decode(store.get(key))
    if refused:
        raise PeerError(f"rank 0 could not listen for the other ranks: {refused}", 0)
    if has_secret(given):
        return Met(None, rendezvous, "")
    if not secret:
        raise MachineError(
            "rank 0 has a secret of its own (UNISONO_SECRET or UNISONO_SECRET_FILE) and rank "
            f"{rank} has none; set the same on every rank, or on none"
        )
    return Met(None, rendezvous, secret)


def _forget(store: Store, key: str) -> None:
    """Takes the secret away, which nobody needs any more."""
    # The store may have ended, and with it what it held.
    with contextlib.suppress(RuntimeError):
        store.set(key, json.dumps(["", "", "the job has started without this rank"]))


def _decode(value: bytes) -> list[str]:
    try:
        told = json.loads(value)
    except ValueError:
        told = None
    if isinstance(told, list) and len(told) == 3 and all(isinstance(one, str) for one in told):
        return told
    raise MachineError(
        "the rendezvous that rank 0 published in the store cannot be read; is rank 0 of another "
        "version of unisono?"
    )
