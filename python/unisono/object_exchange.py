"""How ranks exchange Python objects: groups of messages, in an order that both ends know."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from unisono.arrays import Array
from unisono.errors import MisuseError, PeerError
from unisono.message_calls import Messages
from unisono.pickled import Arrival, Packed
from unisono.work import ANY_SOURCE

__all__ = ["ObjectExchange", "check_bound"]


class ObjectExchange(Messages):
    """What all calls on objects share."""

    def _exchange(
        self,
        values: Mapping[int, object],
        senders: Sequence[int],
        max_bytes: int,
        timeout: float | None,
        tag: int = 0,
    ) -> dict[int, Any]:
        """Sends objects to ranks, and receives an object from each sender.

        A pair of ranks exchanges the head, the receiver's bound, the body, the buffers, each only
        if it is needed. An object that is refused, or cannot be pickled, does not stop the others.
        """
        check_bound(max_bytes)
        packed = {peer: Packed(value, max_bytes) for peer, value in values.items()}
        arrivals = {sender: Arrival(sender) for sender in senders}
        self._messages(
            {peer: [one.head] for peer, one in packed.items()},
            {sender: [one.head] for sender, one in arrivals.items()},
            timeout,
            tag,
        )
        return self._after_heads(packed, arrivals, max_bytes, timeout, tag)

    def _receive_first(
        self, max_bytes: int, timeout: float | None, tag: int
    ) -> tuple[int, dict[int, Any]]:
        """Receives the object whose head arrives first: its sender, and what _exchange returns."""
        check_bound(max_bytes)
        arrival = Arrival(ANY_SOURCE)
        work = self.recv(arrival.head, ANY_SOURCE, tag=tag, timeout=timeout, async_op=True)
        work.wait()
        arrival.sender = work.source
        received = self._after_heads({}, {arrival.sender: arrival}, max_bytes, timeout, tag)
        return arrival.sender, received

    def _after_heads(
        self,
        packed: Mapping[int, Packed],
        arrivals: Mapping[int, Arrival],
        max_bytes: int,
        timeout: float | None,
        tag: int,
    ) -> dict[int, Any]:
        for arrival in arrivals.values():
            self._read(arrival.read_head)
        sent = {peer: one for peer, one in packed.items() if not one.fits_head}
        due = {sender: one for sender, one in arrivals.items() if not one.fits_head}
        if sent or due:
            most_there, most_here = self._bounds(sent, due, max_bytes, timeout, tag)
            self._move(
                {peer: one for peer, one in sent.items() if one.bytes <= most_there[peer]},
                {sender: one for sender, one in due.items() if one.bytes <= most_here[sender]},
                timeout,
                tag,
            )
        for peer, one in packed.items():
            one.check(f"rank {self.rank} sends to rank {peer}")
        for peer, one in sent.items():
            self._check_size(self.rank, one.bytes, most_there[peer], f"rank {peer}")
        for sender, arrival in due.items():
            self._check_size(sender, arrival.bytes, most_here[sender], f"rank {self.rank}")
        return {sender: one.value(self.rank) for sender, one in arrivals.items()}

    def _bounds(
        self,
        sent: Mapping[int, Packed],
        due: Mapping[int, Arrival],
        max_bytes: int,
        timeout: float | None,
        tag: int,
    ) -> tuple[dict[int, int], dict[int, int]]:
        """The most bytes that may be sent to each rank, and that may arrive from each.

        That is the less of two bounds: the head has the sender's, and the receiver answers with its
        own.
        """
        theirs = {peer: np.zeros(1, np.uint64) for peer in sent}
        mine = np.array([max_bytes], np.uint64)
        self._messages(
            {sender: [mine] for sender in due},
            {peer: [bound] for peer, bound in theirs.items()},
            timeout,
            tag,
        )
        return (
            {peer: min(max_bytes, int(bound[0])) for peer, bound in theirs.items()},
            {sender: min(max_bytes, one.limit) for sender, one in due.items()},
        )

    def _move(
        self,
        sent: Mapping[int, Packed],
        due: Mapping[int, Arrival],
        timeout: float | None,
        tag: int = 0,
    ) -> None:
        """Moves the bodies that do not fit heads, then the buffers."""
        bodies = {peer: [one.body] for peer, one in sent.items() if one.body is not None}
        waiting = {sender: one for sender, one in due.items() if not one.has_whole_body}
        for arrival in waiting.values():
            arrival.allocate_body()
        self._messages(
            bodies, {sender: [one.body] for sender, one in waiting.items()}, timeout, tag
        )
        for arrival in waiting.values():
            self._read(arrival.read_body)
        for arrival in due.values():
            arrival.allocate_buffers()
        self._messages(
            {peer: one.buffers for peer, one in sent.items()},
            {sender: one.buffers for sender, one in due.items()},
            timeout,
            tag,
        )

    def _messages(
        self,
        sent: Mapping[int, Sequence[Array]],
        received: Mapping[int, Sequence[Array]],
        timeout: float | None,
        tag: int,
    ) -> None:
        """Sends arrays to ranks and receives into arrays from ranks, all in one group."""
        leaving = [(peer, array) for peer, arrays in sent.items() for array in arrays]
        coming = [(peer, array) for peer, arrays in received.items() for array in arrays]
        if len(leaving) + len(coming) == 1:  # such a message may run inline
            for peer, array in leaving:
                self.send(array, peer, tag=tag, timeout=timeout)
            for peer, array in coming:
                self.recv(array, peer, tag=tag, timeout=timeout)
        elif leaving or coming:
            with self.group(timeout=timeout) as group:
                for peer, array in leaving:
                    group.send(array, peer, tag=tag)
                for peer, array in coming:
                    group.recv(array, peer, tag=tag)

    def _read(self, read: Callable[[], None]) -> None:
        """Reads what a peer has sent. If it cannot be, later messages cannot be told apart."""
        try:
            read()
        except PeerError:
            self._native.abort()
            raise

    def _check_size(self, sender: int, size: int, limit: int, receiver: str) -> None:
        if size > limit:
            raise MisuseError(
                f"rank {sender} sends {receiver} an object of {size:,} bytes, and max_bytes allows "
                f"{limit:,}; pass a larger max_bytes= on both sides"
            )


def check_bound(max_bytes: int) -> None:
    """Raises MisuseError for a bound that no object can have."""
    if not 0 <= max_bytes < 1 << 63:
        raise MisuseError(f"max_bytes is {max_bytes}; it must be 0 to 2^63 - 1")
