"""Communicators: ranks that exchange data in collectives and point to point, in CPU memory or on
CUDA devices.

Every rank makes the same calls in the same order. Arrays are used where they lie, without a copy;
`unisono.arrays` says what may be passed. Where data is made of one block for each rank (all_gather,
reduce_scatter, gather, scatter, all_to_all), blocks lie along the first dimension, in the order of
ranks: all_gather makes shape (size * k, ...) of (k, ...), and reduce_scatter the reverse. An array
of no dimensions counts as one row. An `out` may have any shape with the right number of elements.

A call on arrays in device memory is enqueued on a CUDA stream and returns; work that is enqueued
later sees its result. `stream=` names it; else it is the current one of the
arrays' library. All of a call's arrays, on all ranks, are in one kind of memory.

Calls raise MisuseError for arguments that cannot be, before anything is started. Any other error
(PeerError, CollectiveTimeoutError, MachineError, AbortedError, BugError) is final for the
communicator.
"""

import atexit
import math
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

from unisono import _unisono as native
from unisono import endings
from unisono.arguments import guard
from unisono.calls import CallOptions
from unisono.errors import PEER_KINDS, MisuseError
from unisono.neighbours import Grid, Neighbourhood, check_shape
from unisono.one_sided_calls import OneSided
from unisono.persistent import Persistent
from unisono.work import abort_unfinished

__all__ = ["CallOptions", "Communicator"]


class Communicator(OneSided):
    """A group of ranks. `unisono.init` makes the first one, `split` makes others of it.

    As a context manager it is destroyed at the end, or aborted if an exception leaves the block.
    Threads may share one if they agree on the order of calls.
    """

    def __init__(self, communicator: native.Communicator) -> None:
        super().__init__(communicator)
        _alive.add(self)

    # Who ------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> int:
        """Number of nodes; ranks of one node share memory."""
        return self._native.nodes

    @property
    def node(self) -> int:
        """The number of this rank's node, from 0."""
        return self._native.node_of(self.rank)

    def node_of(self, rank: int) -> int:
        """The number of a rank's node."""
        if not 0 <= rank < self.size:
            raise MisuseError(f"rank is {rank}; it must be 0 to {self.size - 1}")
        return self._native.node_of(rank)

    @property
    def local_rank(self) -> int:
        """This rank's number among those of its node, from 0, under any launcher."""
        return sum(self._native.node_of(rank) == self.node for rank in range(self.rank))

    @property
    def id(self) -> int:
        """The communicator's identity, the same on all its ranks; messages and records name it."""
        return self._native.id

    @property
    def device(self) -> int | None:
        """The CUDA device of calls on device memory; None before the first of them."""
        return None if self._native.device < 0 else self._native.device

    @property
    def world_ranks(self) -> list[int]:
        """The ranks of this communicator in the numbering of the one made by init."""
        return self._native.world_ranks

    def __repr__(self) -> str:
        return f"<unisono.Communicator {self.id}: rank {self.rank} of {self.size}>"

    # Calls that are started again and again -------------------------------------------------------

    def persistent_send(self, *arguments: Any, **options: Any) -> Persistent:
        """A `send` to start again and again, of the same arguments. MPI_Send_init."""
        return Persistent(self.send, arguments, options)

    def persistent_recv(self, *arguments: Any, **options: Any) -> Persistent:
        """A `recv` to start again and again, of the same arguments. MPI_Recv_init."""
        return Persistent(self.recv, arguments, options)

    def persistent_all_reduce(self, *arguments: Any, **options: Any) -> Persistent:
        """An `all_reduce` to start again and again. MPI_Allreduce_init; local."""
        return Persistent(self.all_reduce, arguments, options)

    def persistent_broadcast(self, *arguments: Any, **options: Any) -> Persistent:
        """A `broadcast` to start again and again. MPI_Bcast_init; local."""
        return Persistent(self.broadcast, arguments, options)

    def persistent_all_gather(self, *arguments: Any, **options: Any) -> Persistent:
        """An `all_gather` to start again and again. MPI_Allgather_init; local."""
        return Persistent(self.all_gather, arguments, options)

    def persistent_all_to_all(self, *arguments: Any, **options: Any) -> Persistent:
        """An `all_to_all` to start again and again. MPI_Alltoall_init; local."""
        return Persistent(self.all_to_all, arguments, options)

    # Life -----------------------------------------------------------------------------------------

    def split(self, color: int | None, key: int | None = None) -> "Communicator | None":
        """Makes new communicators of the ranks that give one color. Collective.

        Args:
            color: 0 or more; None joins none.
            key: Orders the ranks of the new communicator, then their rank here; None takes it.

        Returns:
            The communicator of this rank's color, or None.
        """
        if color is not None and color < 0:
            raise MisuseError(
                f"color is {color} on rank {self.rank}; it must be 0 or more, or None to join none"
            )
        made = self._native.split(-1 if color is None else color, self.rank if key is None else key)
        return None if made is None else Communicator(made)

    def dup(self) -> "Communicator":
        """Makes a communicator of the same ranks, with calls of its own. Collective."""
        return cast("Communicator", self.split(0))

    def neighbourhood(
        self, sources: Sequence[int | None], destinations: Sequence[int | None]
    ) -> "Neighbourhood[Communicator]":
        """The ranks with which this one exchanges data. MPI_Dist_graph_create_adjacent.

        Local: each rank names its own neighbours, and their lists must agree.

        Args:
            sources: The ranks from which this rank receives; None where there is no neighbour.
            destinations: The ranks to which this rank sends.
        """
        return Neighbourhood(self, sources, destinations)

    def cartesian(
        self, shape: Sequence[int], periodic: bool | Sequence[bool] = False
    ) -> "Grid[Communicator] | None":
        """Makes a grid of the first ranks, which has a communicator of its own. Collective.

        Ranks keep their order; MPI_Cart_create without reorder.

        Args:
            shape: Ranks along each dimension; their product is at most the number of ranks.
            periodic: Whether the last rank of a dimension is next to its first, for all dimensions
                or for each.

        Returns:
            The grid; None on ranks that have no place in it.
        """
        wrapped = [periodic] * len(shape) if isinstance(periodic, bool) else list(periodic)
        check_shape(shape, wrapped, self.size)
        comm = self.split(0 if self.rank < math.prod(shape) else None)
        return None if comm is None else Grid(comm, shape, wrapped)

    def shrink(self, excluded: Sequence[int]) -> "Communicator":
        """Makes a communicator without some ranks, which may have died. Collective over the others.

        Works after a failure, too (see `failure`): the new one starts afresh. What a failed
        call was to write holds anything; on a device, wait for its stream first.

        Args:
            excluded: Ranks of this communicator, the same on all that stay.

        Raises:
            MisuseError: This rank is among them, or no such rank.
            PeerError: Another rank has died as well, or does not come in time.
        """
        made = Communicator(self._native.shrink(excluded))
        endings.withdraw()
        return made

    def abort(self) -> None:
        """Gives up all calls, here and on the other ranks. From any thread; may be repeated."""
        self._native.abort()
        if self._chain is not None:
            self._chain.abort()

    def destroy(self) -> None:
        """Waits for all calls, then frees everything; later calls raise MisuseError.

        Not collective. May be repeated.
        """
        if self._chain is not None:
            self._chain.destroy()
        self._native.destroy()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exception_type is not None:
            self.abort()
        self.destroy()


# Closed at the interpreter's end, while all that they use is still there.
_alive: weakref.WeakSet[Communicator] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    native.hold_daemon_threads()
    abort_unfinished()
    _name_failed_rank()
    for communicator in list(_alive):
        communicator._native.destroy_at_exit()


def _name_failed_rank() -> None:
    """Tells the launcher the rank at fault by its number in the job."""
    for communicator in list(_alive) if endings.noted() else []:
        failure = communicator.failure
        if failure is not None and failure.rank is not None:
            endings.note(failure, communicator.world_ranks[failure.rank], PEER_KINDS)


guard(globals())
