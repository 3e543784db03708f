"""Point-to-point messages of a communicator."""

from typing import Unpack

from unisono import _unisono as native
from unisono.arguments import guard
from unisono.arrays import Array, Returned, View
from unisono.calls import DeviceOptions
from unisono.collective_calls import Collectives
from unisono.streams import Stream, stream_of
from unisono.work import Group, Work, message_of

__all__ = ["Messages"]


class Messages(Collectives):
    """What two ranks of a communicator call: see `unisono.communicator`.

    Messages between two ranks with one tag match in order. Messages with different tags do not
    match and may overtake each other; every tag that is used costs a connection. Tags are 0 to
    2^30 - 1, and 0 in device memory.
    """

    def send(
        self,
        x: Array,
        peer: int,
        *,
        tag: int = 0,
        dtype: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
        stream: Stream | None = None,
    ) -> Work | None:
        """Sends x to a rank, which must receive as many elements of the type.

        Returns when x may be changed; that can be only when the peer receives. Two ranks that send
        to each other call sendrecv, or do it in a `group`.
        """
        if not async_op:
            if self._is_plain(tag, dtype, timeout, stream) and native.try_message(
                self._native, True, x, peer
            ):
                return None
            self._run(*message_of(self._native, True, x, peer, tag, dtype), timeout, stream)
            return None
        group = self.group(async_op=True, timeout=timeout, stream=stream)
        with group:
            group.send(x, peer, tag=tag, dtype=dtype)
        return group.work

    def recv(
        self,
        out: Array,
        peer: int,
        *,
        tag: int = 0,
        dtype: str | None = None,
        async_op: bool = False,
        timeout: float | None = None,
        stream: Stream | None = None,
    ) -> Returned:
        """Receives into `out` what a rank sends, as many elements.

        Args:
            out: Where the message is written; in CPU memory and of at least one byte if the peer
                is ANY_SOURCE.
            peer: The rank that sends, or `unisono.ANY_SOURCE`: the first message with the tag that
                arrives from any other rank. With async_op, `Work.source` is the sender when the
                receive is complete.
            tag: The tag of the message.
            dtype: As in CallOptions.
            async_op: Return a Work.
            timeout: Seconds until it fails; None takes the communicator's.
            stream: Of arrays in device memory.

        Returns:
            out; with async_op, a Work, whose wait() returns out.
        """
        if not async_op:
            if self._is_plain(tag, dtype, timeout, stream) and native.try_message(
                self._native, False, out, peer
            ):
                return out
            self._run(*message_of(self._native, False, out, peer, tag, dtype), timeout, stream)
            return out
        group = Group(self._native, self.rank, True, timeout, {"stream": stream}, out)
        with group:
            group.recv(out, peer, tag=tag, dtype=dtype)
        return group.work

    def sendrecv(
        self,
        x: Array,
        to: int,
        out: Array,
        source: int,
        *,
        tag: int = 0,
        async_op: bool = False,
        timeout: float | None = None,
        stream: Stream | None = None,
    ) -> Returned:
        """Sends x to one rank and receives into `out` from one, at the same time.

        Args:
            x: What is sent.
            to: The rank that receives x; this rank itself if `source` is, too.
            out: What is received; it must not overlap with x.
            source: The rank that sends to this one.
            tag: The tag of both messages.
            async_op: Return a Work.
            timeout: Seconds until it fails; None takes the communicator's.
            stream: Of arrays in device memory.

        Returns:
            out; with async_op, a Work, whose wait() returns out.
        """
        group = Group(self._native, self.rank, async_op, timeout, {"stream": stream}, out)
        with group:
            group.send(x, to, tag=tag)
            group.recv(out, source, tag=tag)
        return group.work if async_op else out

    def group(
        self, *, async_op: bool = False, timeout: float | None = None, **on: Unpack[DeviceOptions]
    ) -> Group:
        """Collects sends and receives and starts them together; see Group.

        Args:
            async_op: Do not wait for them at the end of the block; `group.work` waits.
            timeout: Seconds until they fail; None takes the communicator's.
            **on: For arrays in device memory. Every peer takes at least one SM for each direction.
        """
        return Group(self._native, self.rank, async_op, timeout, on)

    def _is_plain(
        self, tag: int, dtype: str | None, timeout: float | None, stream: Stream | None
    ) -> bool:
        return self._is_quick and tag == 0 and dtype is None and timeout is None and stream is None

    def _run(
        self, message: native.Message, view: View, timeout: float | None, stream: Stream | None
    ) -> None:
        on = stream_of(stream, (view,), "a message", self.rank)
        self._native.run_message(message, {"timeout": timeout}, on)


guard(globals())
