"""Persistent requests: calls that are started again and again with the same arguments."""

import inspect
from collections.abc import Callable
from typing import Any

from unisono.arguments import guard
from unisono.arrays import Returned
from unisono.errors import ArgumentTypeError, MisuseError
from unisono.work import Work

__all__ = ["Persistent"]


class Persistent:
    """A call that start() starts with the same arguments every time. MPI_Send_init and the like.

        request = comm.persistent_all_reduce(x, out=y)
        for step in range(steps):
            x[:] = ...
            request.start()
            ...
            request.wait()

    Its arrays are read and written from start() until the call is complete. A start costs as much
    as the call with async_op, and checks its arrays then.
    """

    def __init__(
        self, method: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Made by `Communicator.persistent_send` and the calls like it.

        Args:
            method: The communicator's method.
            arguments: Its arguments.
            options: Its arguments by name, without async_op.
        """
        name = f"persistent_{method.__name__}"
        if "async_op" in options:
            raise ArgumentTypeError(f"{name} takes no async_op: start() does not wait")
        try:
            inspect.signature(method).bind(*arguments, **options)
        except TypeError as unbound:
            raise ArgumentTypeError(f"{name}: {unbound}") from None
        self._name = name
        self._method = method
        self._arguments = arguments
        self._options = options
        self._work: Work | None = None

    def start(self) -> Work:
        """Starts the call, whose last start must be complete.

        Returns:
            The started call, for `unisono.wait_all` and the like.
        """
        if self._work is not None and not self._work.test():
            raise MisuseError(f"{self!r} has been started and is not complete; wait for it first")
        self._work = self._method(*self._arguments, **self._options, async_op=True)
        return self._started()

    def wait(self, timeout: float | None = None) -> Returned:
        """Waits for the call and returns its output: see Work.wait."""
        return self._started().wait(timeout)

    def test(self) -> bool:
        """Whether the call is complete or has failed; helps it along."""
        return self._started().test()

    def __repr__(self) -> str:
        return f"<unisono.Persistent {self._name}: {self._work or 'not started'}>"

    def _started(self) -> Work:
        if self._work is None:
            raise MisuseError(f"{self!r} must be started first")
        return self._work


guard(globals())
