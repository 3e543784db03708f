"""Started calls, and groups of sends and receives."""

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from unisono import _unisono as native
from unisono.arguments import guard
from unisono.arrays import Array, Returned, View
from unisono.errors import CollectiveTimeoutError, Error, MisuseError
from unisono.streams import DeviceOptions, stream_of

__all__ = ["ANY_SOURCE", "Group", "Work", "message_of", "wait_all", "wait_any", "wait_some"]

# The peer of a receive that takes the first message to arrive from any other rank.
ANY_SOURCE = -1

# Works that may still run. They hold their arrays, which the native core reads and writes even when
# the caller has let go of the Work.
_running: set["Work"] = set()
_is_ending = False

# A waiting thread gives up its processor so often before it sleeps between polls.
_EAGER_POLLS = 1000
_POLL_SECONDS = 50e-6


class Work:
    """A started call. Its arrays must be left alone until it is complete."""

    def __init__(
        self,
        communicator: native.Communicator,
        work: native.Work,
        result: Returned,
        holds: Sequence[object],
    ) -> None:
        self._communicator = communicator
        self._work = work
        self._result = result
        self._holds = holds
        self._last_step: Callable[[Returned], Returned] | None = None
        self._last_step_error: Exception | None = None
        self._lock = threading.Lock()
        keep(self)

    def test(self) -> bool:
        """Whether the call is complete or has failed; helps it along."""
        done = self._is_over()
        if done:
            self._take_last_step()
        return done

    def wait(self, timeout: float | None = None) -> Returned:
        """Waits for the call and returns its output, as the call without async_op would.

        Args:
            timeout: Seconds to wait at most; the call continues when they have passed. None waits
                until the call's own deadline.

        Raises:
            CollectiveTimeoutError: `timeout` or the call's own deadline has passed.
            Error: The call failed.
        """
        try:
            self._work.wait(timeout)
        finally:
            self.test()
        if self._last_step_error is not None:
            raise self._last_step_error
        return self._result

    def _then(self, step: Callable[[Returned], Returned], *holds: object) -> None:
        """Has wait() or test() call a function of the output when the call is complete.

        Args:
            step: The function, of a call whose ranks compute with what has arrived. It returns the
                output that wait() returns, which raises what it raises.
            *holds: What must live until then.
        """
        self._last_step = step
        self._holds = (*self._holds, *holds)

    def _is_over(self) -> bool:
        done = self._poll()
        if done:
            _running.discard(self)
        return done

    def _poll(self) -> bool:
        return self._work.test()

    def _take_last_step(self) -> None:
        with self._lock:
            step, self._last_step = self._last_step, None
            if step is None or self._work.state != "complete":
                return
            try:
                self._result = step(self._result)
            except Exception as error:  # it is wait() that raises it
                self._last_step_error = error

    @property
    def sequence(self) -> int:
        """The call's number in its communicator, as in the record."""
        return self._work.sequence

    @property
    def source(self) -> int | None:
        """The rank whose message a complete receive from ANY_SOURCE has taken; else None."""
        return None if self._work.source == ANY_SOURCE else self._work.source

    def __repr__(self) -> str:
        of = f"{self.sequence} of communicator {self._communicator.id}"
        return f"<unisono.Work {of}: {self._work.state}>"


def keep(work: Work) -> None:
    """Holds a started call's arrays until it is complete."""
    forget_finished()
    _running.add(work)
    if _is_ending:  # a daemon thread has started it
        work._communicator.abort()


def forget_finished() -> None:
    """Lets go of the arrays of calls that are complete and that nobody has waited for."""
    for work in list(_running):
        work._is_over()


def abort_unfinished() -> None:
    """Aborts the communicators whose calls still run: their arrays are about to go.

    For the end of the process. Calls that daemon threads start later are aborted as they start.
    """
    global _is_ending
    _is_ending = True
    forget_finished()
    for work in list(_running):
        work._communicator.abort()


def wait_all(works: Sequence[Work], timeout: float | None = None) -> list[Returned]:
    """Waits for all works, and returns their outputs in order.

    Args:
        works: Started calls, of any communicators of this process.
        timeout: Seconds to wait at most; the works continue when they have passed. None waits
            until each work's own deadline.

    Raises:
        CollectiveTimeoutError: `timeout` or a work's own deadline has passed.
        Error: A work has failed. The others have been waited for.
    """
    end = None if timeout is None else time.monotonic() + timeout
    outputs: list[Returned] = []
    failure: Error | None = None
    for work in works:
        try:
            outputs.append(work.wait(None if end is None else max(0.0, end - time.monotonic())))
        except Error as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return outputs


def wait_any(works: Sequence[Work], timeout: float | None = None) -> int:
    """Waits until at least one work is complete or has failed.

    Args:
        works: Started calls, at least one. Leave out those whose outputs have been taken.
        timeout: Seconds to wait at most; the works continue when they have passed.

    Returns:
        The index of the first one in `works`. Its wait() returns the output, or raises.

    Raises:
        CollectiveTimeoutError: `timeout` has passed.
    """
    return wait_some(works, timeout)[0]


def wait_some(works: Sequence[Work], timeout: float | None = None) -> list[int]:
    """Waits as wait_any does. Returns the indices of all works that are complete or have failed."""
    if not works:
        raise MisuseError("works is empty; there is nothing to wait for")
    end = None if timeout is None else time.monotonic() + timeout
    polls = 0
    while True:
        if done := [index for index, work in enumerate(works) if work.test()]:
            return done
        if end is not None and time.monotonic() >= end:
            raise CollectiveTimeoutError(
                f"none of {len(works)} works was complete after {timeout} s; they continue"
            )
        polls += 1
        time.sleep(0 if polls < _EAGER_POLLS else _POLL_SECONDS)


class Group:
    """Sends and receives that are started together, at the end of a `with` block.

        with comm.group() as group:
            group.send(x, right)
            group.recv(y, left)

    Messages between two ranks with one tag match in order. A rank may send to itself if it receives
    from itself in the same group. If an exception leaves the block, nothing is started.

    Attributes:
        work: The started messages; wait() returns the list of received arrays.
    """

    def __init__(
        self,
        communicator: native.Communicator,
        rank: int,
        async_op: bool,
        timeout: float | None,
        options: DeviceOptions,
        output: Returned = None,
    ) -> None:
        """Made by `Communicator.group`; `output` is what wait() returns instead of the list."""
        self._native = communicator
        self._rank = rank
        self._async = async_op
        self._timeout = timeout
        self._options = options
        self._output = output
        self._messages: list[native.Message] = []
        self._views: list[View] = []
        self._received: list[Array] = []
        self._work: Work | None = None

    def send(self, x: Array, peer: int, *, tag: int = 0, dtype: str | None = None) -> None:
        """Adds a send of x to a rank; x must be left alone until the group is complete."""
        self._add(*message_of(self._native, True, x, peer, tag, dtype))

    def recv(self, out: Array, peer: int, *, tag: int = 0, dtype: str | None = None) -> None:
        """Adds a receive into `out` of as many elements from a rank.

        A receive from ANY_SOURCE must be the only message of its group.
        """
        self._add(*message_of(self._native, False, out, peer, tag, dtype))
        self._received.append(out)

    def __repr__(self) -> str:
        receives = len(self._received)
        sends = len(self._messages) - receives
        state = "not started" if self._work is None else repr(self._work)
        return f"<unisono.Group of rank {self._rank}: {sends} sends, {receives} receives, {state}>"

    @property
    def work(self) -> Work:
        """The started messages."""
        if self._work is None:
            raise MisuseError("this group has not been started: that is done where its block ends")
        return self._work

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exception_type is not None:
            return
        options = self._options
        stream = stream_of(options.get("stream"), self._views, "a group of messages", self._rank)
        started = self._native.submit_messages(
            self._messages, {**options, "timeout": self._timeout}, stream
        )
        result = self._received if self._output is None else self._output
        self._work = Work(self._native, started, result, self._views)
        if not self._async:
            self._work.wait()

    def _add(self, message: native.Message, view: View) -> None:
        if self._work is not None:
            raise MisuseError("this group has been started; make another one")
        self._messages.append(message)
        self._views.append(view)


def message_of(
    communicator: native.Communicator,
    is_send: bool,
    array: Array,
    peer: int,
    tag: int,
    dtype: str | None,
) -> tuple[native.Message, View]:
    """A message, checked, and the memory that it moves.

    Args:
        communicator: Whose ranks exchange it.
        is_send: Whether this rank sends it.
        array: What is sent, or written to.
        peer: The other rank, or ANY_SOURCE for a receive.
        tag: The tag.
        dtype: As in CallOptions.
    """
    rank = communicator.rank
    if is_send:
        what = f"the array sent to rank {peer} by rank {rank}"
    else:
        what = f"the array that rank {rank} receives from {peer} into"
    view = View(array, not is_send, dtype, what)
    is_rank = not isinstance(peer, int) or 0 <= peer < communicator.size
    if not is_rank and (is_send or peer != ANY_SOURCE):
        raise MisuseError(
            f"peer is {peer} in a {'send' if is_send else 'receive'} on rank {rank}; it must be 0 "
            f"to {communicator.size - 1}{'' if is_send else ', or ANY_SOURCE'}"
        )
    elements = view.count * view.words
    return native.Message(is_send, view.address, elements, view.word, peer, tag), view


guard(globals())
