"""Python objects between ranks: messages and collectives that pickle them.

Any object that pickle takes may be sent. Contiguous NumPy arrays inside it, and other memory that
supports protocol 5, are sent from where they lie, without a copy; there is no limit of 2 GiB. A
rank receives a new object, which shares nothing with the sender's.

**Unpickling runs code.** What a rank receives comes from a rank of its own job, which has proved
the job's secret; such a rank can make it run anything. Do not unpickle for ranks that you would
not run code for.

`max_bytes` bounds an object's size, the pickle and all arrays together: a larger one is MisuseError
on the sender and the receiver, before memory is allocated for it, and the communicator remains
usable. Objects whose pickle has at most some 4,000 bytes are not compared with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unisono.arguments import guard
from unisono.errors import MisuseError
from unisono.object_exchange import ObjectExchange, check_bound
from unisono.pickled import DEFAULT_MAX_BYTES, Arrival, Packed

__all__ = ["Objects"]


class Objects(ObjectExchange):
    """The calls on Python objects: see `unisono.object_calls`."""

    def send_object(
        self,
        value: object,
        peer: int,
        *,
        tag: int = 0,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout: float | None = None,
    ) -> None:
        """Sends an object to a rank, which must call receive_object or receive_any_object.

        Returns when the object may be changed. Two ranks that send to each other call
        exchange_objects.

        Args:
            value: The object.
            peer: The rank that receives it.
            tag: As in send.
            max_bytes: The most bytes of the object.
            timeout: Seconds until each part fails; None takes the communicator's.

        Raises:
            MisuseError: The object cannot be pickled, or is larger than this rank's or the peer's
                max_bytes. The peer raises it, too.
        """
        self._check_peer(peer, "send_object")
        self._exchange({peer: value}, [], max_bytes, timeout, tag)

    def receive_object(
        self,
        peer: int,
        *,
        tag: int = 0,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout: float | None = None,
    ) -> Any:
        """Receives the object that a rank sends by send_object, and returns it.

        To unpickle an object runs code that its sender chooses. The sender is a rank of this job.

        Args:
            peer: The rank that sends it.
            tag: The tag of the send.
            max_bytes: The most bytes of the object.
            timeout: Seconds until each part fails; None takes the communicator's.

        Raises:
            MisuseError: The object is larger than max_bytes, or cannot be pickled or unpickled.
            PeerError: The peer sent something else; the communicator is aborted.
        """
        self._check_peer(peer, "receive_object")
        return self._exchange({}, [peer], max_bytes, timeout, tag)[peer]

    def receive_any_object(
        self,
        *,
        tag: int = 0,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout: float | None = None,
    ) -> tuple[Any, int]:
        """Receives the first object that arrives from any other rank.

        Args:
            tag: The tag of the send.
            max_bytes: The most bytes of the object.
            timeout: Seconds until each part fails; None takes the communicator's.

        Returns:
            The object, and the rank that sent it.

        Raises:
            MisuseError: As in receive_object, and if there is no other rank.
            PeerError: As in receive_object.
        """
        sender, received = self._receive_first(max_bytes, timeout, tag)
        return received[sender], sender

    def exchange_objects(
        self,
        values: Mapping[int, object],
        senders: Sequence[int],
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout: float | None = None,
    ) -> dict[int, Any]:
        """Sends an object to each of some ranks, and receives one from each of some ranks.

        The ranks that send to each other must both call it, or send_object and receive_object in
        turns. A rank does not send to itself.

        Args:
            values: The objects by the ranks that receive them.
            senders: The ranks that send an object to this one.
            max_bytes: The most bytes of each object.
            timeout: Seconds until each part fails; None takes the communicator's.

        Returns:
            The received objects by their senders.
        """
        for peer in (*values, *senders):
            self._check_peer(peer, "exchange_objects")
        if len(set(senders)) != len(senders):
            raise MisuseError(
                f"senders is {list(senders)} in exchange_objects on rank {self.rank}; each rank "
                "can be in it once"
            )
        return self._exchange(values, senders, max_bytes, timeout)

    def broadcast_object(
        self,
        value: object = None,
        root: int = 0,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """Every rank gets the root's object. Collective.

        Args:
            value: At the root, the object. Elsewhere it is not used.
            root: The rank whose object is sent.
            max_bytes: The most bytes of the object, the same on all ranks.
            timeout: Seconds until each part fails; None takes the communicator's.
            async_op: As in CallOptions, the same on all ranks.

        Returns:
            The object; at the root, `value` itself.
        """
        self._check_root(root, "broadcast_object")
        if async_op:
            named = {"max_bytes": max_bytes, "timeout": timeout}
            return self._later("broadcast_object", value, root, **named)
        check_bound(max_bytes)
        packed = Packed(value, max_bytes) if self.rank == root else None
        arrival = Arrival(root, None if packed is None else packed.head)
        self.broadcast(arrival.head, root, timeout=timeout)
        self._read(arrival.read_head)
        if packed is not None:
            packed.check(f"rank {root} broadcasts")
        if not arrival.fits_head:
            self._check_size(root, arrival.bytes, arrival.limit, "every rank")
        if not arrival.fits_head and arrival.bytes > max_bytes:
            self._native.abort()
            raise MisuseError(
                f"rank {root} broadcasts an object of {arrival.bytes:,} bytes, and max_bytes is "
                f"{arrival.limit:,} there and {max_bytes:,} on rank {self.rank}; it must be the "
                "same on all ranks"
            )
        if packed is not None:
            for part in [packed.body, *packed.buffers]:
                if part is not None:
                    self.broadcast(part, root, timeout=timeout)
            return value
        if not arrival.has_whole_body:
            arrival.allocate_body()
            self.broadcast(arrival.body, root, timeout=timeout)
            self._read(arrival.read_body)
        arrival.allocate_buffers()
        for buffer in arrival.buffers:
            self.broadcast(buffer, root, timeout=timeout)
        return arrival.value(self.rank)

    def gather_object(
        self,
        value: object,
        root: int = 0,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """The root gets all ranks' objects. Collective.

        Args:
            value: This rank's object.
            root: The rank that gets them.
            max_bytes: The most bytes of each object.
            timeout: Seconds until each part fails; None takes the communicator's.
            async_op: As in CallOptions, the same on all ranks.

        Returns:
            At the root, the objects in the order of ranks; None elsewhere.
        """
        self._check_root(root, "gather_object")
        if async_op:
            return self._later("gather_object", value, root, max_bytes=max_bytes, timeout=timeout)
        if self.rank != root:
            self._exchange({root: value}, [], max_bytes, timeout)
            return None
        own = Packed(value, max_bytes)
        return self._with_own(own, self._exchange({}, self._others, max_bytes, timeout))

    def all_gather_object(
        self,
        value: object,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """Every rank gets all ranks' objects. Collective.

        Args:
            value: This rank's object.
            max_bytes: The most bytes of each object. The least of all ranks' bounds holds.
            timeout: Seconds until each part fails; None takes the communicator's.
            async_op: As in CallOptions, the same on all ranks.

        Returns:
            The objects in the order of ranks.
        """
        if async_op:
            return self._later("all_gather_object", value, max_bytes=max_bytes, timeout=timeout)
        check_bound(max_bytes)
        packed = Packed(value, max_bytes)
        heads = self.all_gather(packed.head, timeout=timeout).reshape(self.size, -1)
        arrivals = [Arrival(rank, heads[rank]) for rank in range(self.size)]
        for arrival in arrivals:
            self._read(arrival.read_head)
        limit = min(arrival.limit for arrival in arrivals)
        for arrival in arrivals:
            if not arrival.fits_head:
                self._check_size(arrival.sender, arrival.bytes, limit, "every rank")
        others = {rank: arrivals[rank] for rank in self._others}
        sent = dict.fromkeys(others, packed) if not packed.fits_head else {}
        due = {rank: one for rank, one in others.items() if not one.fits_head}
        self._move(sent, due, timeout)
        received = {rank: one.value(self.rank) for rank, one in others.items()}
        return self._with_own(packed, received)

    def scatter_object(
        self,
        values: Sequence[object] | None = None,
        root: int = 0,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """Rank r gets object r of the root's. Collective.

        Args:
            values: At the root, an object for each rank. Elsewhere it is not used.
            root: The rank whose objects are sent.
            max_bytes: The most bytes of each object.
            timeout: Seconds until each part fails; None takes the communicator's.
            async_op: As in CallOptions, the same on all ranks.

        Returns:
            This rank's object.
        """
        self._check_root(root, "scatter_object")
        if async_op:
            return self._later("scatter_object", values, root, max_bytes=max_bytes, timeout=timeout)
        if self.rank != root:
            return self._exchange({}, [root], max_bytes, timeout)[root]
        values = self._one_each(values, "scatter_object")
        own = Packed(values[root], max_bytes)
        self._exchange({rank: values[rank] for rank in self._others}, [], max_bytes, timeout)
        return own.copy(root)

    def all_to_all_objects(
        self,
        values: Sequence[object],
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """Rank r gets object r of every rank's. Collective.

        Args:
            values: An object for each rank.
            max_bytes: The most bytes of each object.
            timeout: Seconds until each part fails; None takes the communicator's.
            async_op: As in CallOptions, the same on all ranks.

        Returns:
            The objects for this rank, in the order of the ranks that sent them.
        """
        if async_op:
            return self._later("all_to_all_objects", values, max_bytes=max_bytes, timeout=timeout)
        values = self._one_each(values, "all_to_all_objects")
        own = Packed(values[self.rank], max_bytes)
        outgoing = {rank: values[rank] for rank in self._others}
        return self._with_own(own, self._exchange(outgoing, self._others, max_bytes, timeout))

    @property
    def _others(self) -> list[int]:
        return [rank for rank in range(self.size) if rank != self.rank]

    def _with_own(self, own: Packed, received: Mapping[int, Any]) -> list[Any]:
        return [
            own.copy(self.rank) if rank == self.rank else received[rank]
            for rank in range(self.size)
        ]

    def _one_each(self, values: Sequence[object] | None, what: str) -> Sequence[object]:
        if values is None or len(values) != self.size:
            got = "None" if values is None else f"{len(values)} objects"
            raise MisuseError(
                f"values is {got} in {what} on rank {self.rank}; it must have one object for each "
                f"of {self.size} ranks"
            )
        return values

    def _check_peer(self, peer: int, what: str) -> None:
        if not 0 <= peer < self.size or peer == self.rank:
            raise MisuseError(
                f"peer is {peer} in {what} on rank {self.rank}; it must be 0 to {self.size - 1} "
                "and another rank"
            )


guard(globals())
