"""How ranks find each other through a store of keys and values that they share, such as PyTorch's.

The store only holds the address where rank 0 listens, and the secret that each rank then proves
there, so the job is no stronger than the store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from unisono import _unisono as native

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


class Meeting(Protocol):
    """A store of strings that all ranks share, and that knows its own timeout."""

    name: str  # for errors

    def set(self, key: str, value: str) -> object:
        """Makes a value, a word, readable for all ranks."""

    def wait(self, key: str) -> object:
        """Returns when the key is set; raises at a deadline."""

    def get(self, key: str) -> str:
        """The value of a key that has been waited for."""


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
        PeerError: Rank 0 could not listen, or the store holds something else.
        MachineError: This rank is 0 and could not, or only rank 0 has a secret of its own.
        Exception: Whatever the store raises when rank 0 did not come in time.
    """
    key = f"{turn(store, prefix, size)}/rendezvous"
    met = meet_in(_Waiting(store, timeout), key, rank, interface, given)
    return met._replace(forget=lambda: _forget(store, key)) if rank == 0 else met


def turn(store: Store, prefix: str, size: int) -> str:
    """Where the keys of the next group of `size` ranks begin. Each rank calls it once for a group.

    A store outlives the groups that are made over it: a group with the name of a destroyed one must
    not read what that one left. Each round of arrivals is one group.
    """
    arrival = store.add(f"{prefix}/arrivals", 1) - 1
    return f"{prefix}/{arrival // size}"


def meet_in(
    store: Meeting,
    key: str,
    rank: int,
    interface: str,
    given: Mapping[str, str] | None = None,
) -> Met:
    """The same over any store, by a key that is new in it."""
    return Met(*native.meet(store, key, rank, interface, has_secret(given)))


class _Waiting:
    """A store that waits no longer than a timeout."""

    name = "the store"

    def __init__(self, store: Store, timeout: timedelta) -> None:
        self._store, self._timeout = store, timeout

    def set(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def wait(self, key: str) -> None:
        self._store.wait([key], self._timeout)

    def get(self, key: str) -> str:
        return self._store.get(key).decode(errors="replace")


def _forget(store: Store, key: str) -> None:
    """Takes the secret away, which no rank needs any more."""
    # The store may have ended, and with it what it held.
    with contextlib.suppress(RuntimeError):
        store.set(key, native.forgotten_meeting())
