"""Communicators: ranks that exchange data in collectives and point to point, in CPU memory.

Every rank makes the same calls in the same order. Arrays are used where they lie, without a copy: see
`unisono.arrays` for what may be passed. Collectives whose data is made of one block for each rank
(all_gather, reduce_scatter, gather, scatter, all_to_all) lay the blocks out along the first dimension, in
the order of ranks: all_gather makes shape (size * k, ...) of (k, ...), reduce_scatter the reverse.
"""

import json
import os
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, overload

from unisono import _unisono as native
from unisono.arrays import Array, View, empty_like, rows, shape_text
from unisono.errors import MisuseError

__all__ = ["Communicator", "Group", "Work", "init"]

# Calls that have been started and not yet been waited for. They hold their arrays: the native core reads
# and writes them even when the caller has let go of everything.
_running: set["Work"] = set()


class Work:
    """A started call. Its arrays must not be touched until it is complete."""

    def __init__(self, work: native.Work, result: Array, keep: Sequence[object]) -> None:
        self._work = work
        self._result = result
        self._keep = tuple(keep)
        for other in [other for other in _running if other._work.test()]:
            _running.discard(other)
        _running.add(self)

    def test(self) -> bool:
        """Whether the call is complete or has failed; helps it along."""
        done = self._work.test()
        if done:
            _running.discard(self)
        return done

    def wait(self, timeout: float | None = None) -> Array:
        """Waits for the call and returns its output, as the call without async_op would.

        Args:
            timeout: Seconds to wait at most. The call goes on when they have passed. None waits
                until the call's own deadline.

        Raises:
            CollectiveTimeoutError: `timeout` or the call's own deadline has passed.
            Error: The call failed.
        """
        self._work.wait(timeout)
        _running.discard(self)
        return self._result

    @property
    def sequence(self) -> int:
        """The call's number in its communicator, as in the record."""
        return self._work.sequence
