"""Ends programs that loop for ever without a step, which no bound on steps can see."""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["EndlessLoopError", "watched"]

_LOOK_SECONDS = 0.5


class EndlessLoopError(Exception):
    """Raised in the program, wherever it is then."""


@contextmanager
def watched(steps: Callable[[], int], idle_seconds: float) -> Iterator[None]:
    """What runs inside is ended when it makes no step for so long.

    Python raises the exception in the calling thread between two of its instructions: a call into C
    that does not return is not ended.

    Args:
        steps: How many were made so far.
        idle_seconds: How long it may make none.

    Raises:
        EndlessLoopError: No step came.
    """
    one = _Watched(steps, idle_seconds)
    _watch.add(one)
    try:
        yield
    finally:
        _watch.remove(one)


@dataclass(eq=False)
class _Watched:
    steps: Callable[[], int]
    idle_seconds: float
    thread: ctypes.c_ulong = field(default_factory=lambda: ctypes.c_ulong(threading.get_ident()))
    seen: int = -1
    since: float = 0

    def look(self) -> None:
        now, steps = time.monotonic(), self.steps()
        if steps != self.seen:
            self.seen, self.since = steps, now
        elif now - self.since >= self.idle_seconds:
            self.interrupt(EndlessLoopError)
            self.since = now

    def interrupt(self, error: type[Exception] | None) -> None:
        """Has its thread raise an error; None takes back one that it has not raised yet."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(self.thread, error and ctypes.py_object(error))


class _Watch:
    """One thread looks after all; it ends when there is nothing to look after."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: set[_Watched] = set()
        self._thread: threading.Thread | None = None

    def add(self, one: _Watched) -> None:
        with self._lock:
            self._all.add(one)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="unisono-program-watch", daemon=True
                )
                self._thread.start()

    def remove(self, one: _Watched) -> None:
        with self._lock:
            self._all.discard(one)
            # What came too late must not hit what runs next.
            one.interrupt(None)

    def _run(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._lock:
                if not self._all:
                    self._thread = None
                    return
                for one in self._all:
                    one.look()


_watch = _Watch()


def _begin_anew() -> None:
    """A forked process has the watch as it was, but not its thread."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_begin_anew)
