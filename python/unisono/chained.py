"""Calls of several steps that are started and not waited for.

An operation on objects first moves their sizes, then the objects; a reduction in parts first moves
what ranks fold, then the results. Such a call cannot be given to the core at once. With `async_op`
a thread makes it, on a second communicator of the same ranks: its calls then have an order of
their own, that in which the ranks have started them, whatever each rank calls in the meantime.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from unisono import _unisono as native
from unisono.arrays import Returned
from unisono.calls import Calls
from unisono.errors import CollectiveTimeoutError, MisuseError
from unisono.work import Work, keep

__all__ = ["Chain", "Chained"]


class ChainedWork(Work):
    """A started call of several steps. What it was given must be left alone until it is complete.

    It has no `sequence`, because the record has an entry for each step.
    """

    def __init__(self, communicator: native.Communicator, call: Callable[[], Returned]) -> None:
        """Made by Chain; `call` makes the call and returns its output."""
        self._communicator = communicator
        self._call = call
        self._result: Returned = None
        self._error: BaseException | None = None
        self._is_done = threading.Event()
        keep(self)

    def wait(self, timeout: float | None = None) -> Returned:
        """As Work.wait."""
        if not self._is_done.wait(timeout):
            raise CollectiveTimeoutError(f"{self!r} was not complete after {timeout} s")
        self.test()
        if self._error is not None:
            raise self._error
        return self._result

    @property
    def sequence(self) -> int:
        """MisuseError: the call is made of several."""
        raise MisuseError("this call is made of several calls, each of which has its number")

    @property
    def source(self) -> None:
        """None; it is not a receive from ANY_SOURCE."""
        return

    def __repr__(self) -> str:
        ended = "failed" if self._error else "complete"
        state = ended if self._is_done.is_set() else "running"
        return f"<unisono.Work of several calls of communicator {self._communicator.id}: {state}>"

    def run(self) -> None:
        """Makes the call, in the thread of its Chain."""
        try:
            self._result = self._call()
        except BaseException as error:  # passed on to the thread that waits
            self._error = error
        self._is_done.set()

    def _poll(self) -> bool:
        return self._is_done.is_set()

    def _take_last_step(self) -> None:
        pass


class Chain:
    """The calls of several steps of a communicator, which run one after the other."""

    def __init__(self, communicator: Any) -> None:
        """Takes a communicator of the same ranks, on which nothing else is called."""
        self._communicator = communicator
        self._lock = threading.Lock()
        self._waiting: deque[ChainedWork] = deque()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def start(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> ChainedWork:
        """Starts a call of the communicator by its name."""
        if os.getpid() != self._process:  # the lock may have been held when this process began
            raise MisuseError(
                f"{name} is started in process {os.getpid()}, a fork of {self._process}, which "
                "alone can use the communicator; let each process call unisono.init"
            )
        method = getattr(self._communicator, name)
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, daemon=True)
                thread.start()  # if it raises, nothing has been started
                self._thread = thread
            work = ChainedWork(self._communicator._native, lambda: method(*arguments, **named))
            self._waiting.append(work)
        return work

    def abort(self) -> None:
        """Gives up all calls."""
        self._communicator.abort()

    def destroy(self) -> None:
        """Waits for all calls, then frees the communicator."""
        thread = self._thread
        if thread is not None:
            thread.join()
        self._communicator.destroy()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None  # no thread waits for calls that may never be made
                    return
                work = self._waiting.popleft()
            work.run()


class Chained(Calls):
    """What a communicator does to start calls of several steps."""

    _chain: Chain | None = None

    def _later(self, name: str, *arguments: Any, **named: Any) -> Work:
        """Starts a call of several steps, which all ranks start."""
        if self._chain is None:
            made = cast("native.Communicator", self._native.split(0, self.rank))
            self._chain = Chain(type(self)(made))
        return self._chain.start(name, arguments, named)
