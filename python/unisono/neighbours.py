"""Neighbourhoods: ranks that exchange data with some ranks of a communicator, not with all.

A neighbourhood has an ordered list of sources, from which a rank receives, and one of destinations,
to which it sends; each entry is a rank, or None where there is no neighbour. A grid is one whose
neighbours are those of a Cartesian topology. The calls are collective among neighbours: each pair
must call the same. All messages of a call are started together, so that no order deadlocks.
"""

import math
from collections.abc import Sequence
from typing import Any, Generic, TypedDict, TypeVar, Unpack

import numpy as np

from unisono.arguments import guard
from unisono.arrays import Array, Returned, View, empty_like
from unisono.calls import Calls
from unisono.errors import MisuseError
from unisono.streams import DeviceOptions, Stream
from unisono.work import Group

__all__ = ["Grid", "MessageOptions", "Neighbourhood", "check_shape"]

Neighbours = Sequence[int | None]
AnyCommunicator = TypeVar("AnyCommunicator", bound=Calls)


class MessageOptions(TypedDict, total=False):
    """What calls among neighbours take.

    Attributes:
        async_op: Start the call and return a `Work`.
        timeout: Seconds until the call fails; else the communicator's.
        stream: Of arrays in device memory.
    """

    async_op: bool
    timeout: float | None
    stream: Stream | None


class Neighbourhood(Generic[AnyCommunicator]):
    """The ranks with which this rank exchanges data: MPI's distributed graph topology.

    Attributes:
        comm: The communicator.
        sources: The ranks from which this rank receives; None where there is no neighbour.
        destinations: The ranks to which this rank sends; None where there is no neighbour.
    """

    def __init__(
        self, comm: AnyCommunicator, sources: Neighbours, destinations: Neighbours
    ) -> None:
        """Made by `Communicator.neighbourhood`."""
        for what, ranks in (("sources", sources), ("destinations", destinations)):
            for rank in ranks:
                if rank is not None and not 0 <= rank < comm.size:
                    raise MisuseError(
                        f"{what} is {list(ranks)} on rank {comm.rank}; each must be 0 to "
                        f"{comm.size - 1}, or None"
                    )
        self.comm = comm
        self.sources = list(sources)
        self.destinations = list(destinations)
        # In which order sources are received from. It decides which messages match where a rank is
        # a neighbour more than once.
        self._order: Sequence[int] = range(len(self.sources))

    def exchange(
        self,
        sent: Sequence[Array | None],
        received: Sequence[Array | None],
        **options: Unpack[MessageOptions],
    ) -> Returned:
        """Sends an array to each destination and receives one from each source.

        The arrays of a pair have as many elements of one type on both ranks; other pairs may have
        other shapes. Where a rank is a neighbour more than once, its messages match in the order of
        the lists; in a grid, what is sent in one direction is received from the opposite one.

        Args:
            sent: An array for each destination. Those of None are not used.
            received: An array for each source, which is written to. Those of None are left alone.
            **options: See MessageOptions.

        Returns:
            `received`; with async_op, a Work.
        """
        self._check_length("sent", sent, "destinations", self.destinations)
        self._check_length("received", received, "sources", self.sources)
        return self._exchange(sent, received, received, options)

    def all_gather(
        self, x: Array, *, out: Array | None = None, **options: Unpack[MessageOptions]
    ) -> Returned:
        """Every rank gets the x of each of its sources. MPI_Neighbor_allgather.

        Args:
            x: What is sent to all destinations, of any shape; the same shape on all ranks.
            out: Shape (len(sources), *x.shape), a NumPy array or tensor. None makes one.
            **options: See MessageOptions.

        Returns:
            The output, in which block i is from sources[i]; with async_op, a Work. Where that is
            None, the block is left alone, and is 0 in an output that the call makes.
        """
        like = View(x, False, None, f"the input of all_gather among neighbours of {self._rank}")
        out = self._output(out, like, like.shape)
        return self._exchange([x] * len(self.destinations), _blocks(out), out, options)

    def all_to_all(
        self, x: Any, *, out: Array | None = None, **options: Unpack[MessageOptions]
    ) -> Returned:
        """Every rank sends a block to each destination. MPI_Neighbor_alltoall.

        Args:
            x: Shape (len(destinations), ...), a NumPy array or tensor: block i is for
                destinations[i].
            out: Shape (len(sources), ...). None makes one.
            **options: See MessageOptions.

        Returns:
            As all_gather.
        """
        like = View(x, False, None, f"the input of all_to_all among neighbours of {self._rank}")
        if like.shape[:1] != (len(self.destinations),):
            raise MisuseError(
                f"the input of all_to_all on {self._rank} has shape {like.shape}; its first "
                f"dimension must be {len(self.destinations)}, the number of destinations"
            )
        out = self._output(out, like, like.shape[1:])
        return self._exchange(_blocks(x), _blocks(out), out, options)

    @property
    def _rank(self) -> str:
        return f"rank {self.comm.rank}"

    def _output(self, out: Any, like: View, shape: tuple[int, ...]) -> Any:
        wanted = (len(self.sources), *shape)
        if out is None:
            out = empty_like(like, wanted)
            out[...] = np.zeros((), out.dtype) if isinstance(out, np.ndarray) else 0
        elif tuple(out.shape) != wanted:
            raise MisuseError(
                f"the output on {self._rank} has shape {tuple(out.shape)}; for {wanted[0]} sources "
                f"it must have shape {wanted}"
            )
        return out

    def _exchange(
        self,
        sent: Sequence[Any],
        received: Sequence[Any],
        result: Returned,
        options: MessageOptions,
    ) -> Returned:
        is_async = options.get("async_op", False)
        on: DeviceOptions = {"stream": options.get("stream")}
        group = Group(
            self.comm._native, self.comm.rank, is_async, options.get("timeout"), on, result
        )
        with group:
            for index, rank in enumerate(self.destinations):
                if rank is not None:
                    group.send(sent[index], rank)
            for index in self._order:
                rank = self.sources[index]
                if rank is not None:
                    group.recv(received[index], rank)
        return group.work if is_async else result

    def _check_length(self, what: str, arrays: Any, whose: str, ranks: Neighbours) -> None:
        if len(arrays) != len(ranks):
            raise MisuseError(
                f"{what} has {len(arrays)} arrays on {self._rank}; it must have one for each of "
                f"{len(ranks)} {whose}"
            )


class Grid(Neighbourhood[AnyCommunicator]):
    """A Cartesian grid of ranks, in the order of the last dimension first: rank 1 is next to rank 0
    along the last dimension, as in MPI_Cart_create.

    Its sources and its destinations are the neighbours of this rank: for each dimension the one
    before it, then the one after it; None beyond an edge that is not periodic.

    Attributes:
        shape: Ranks along each dimension.
        periodic: For each dimension, whether its last rank is next to its first.
        coordinates: The place of this rank.
    """

    def __init__(
        self, comm: AnyCommunicator, shape: Sequence[int], periodic: Sequence[bool]
    ) -> None:
        """Made by `Communicator.cartesian`."""
        self.shape = tuple(shape)
        self.periodic = tuple(periodic)
        self.coordinates = _coordinates(comm.rank, self.shape)
        neighbours = [
            self._rank_at_distance(dimension, distance)
            for dimension in range(len(self.shape))
            for distance in (-1, 1)
        ]
        super().__init__(comm, neighbours, neighbours)
        # A message that a rank sends forwards arrives from behind. Where both neighbours are one
        # rank, its first message, sent backwards, is therefore received from the one after it.
        self._order = [index ^ 1 for index in range(len(neighbours))]

    def coordinates_of(self, rank: int) -> tuple[int, ...]:
        """The place of a rank. MPI_Cart_coords."""
        if not 0 <= rank < self.comm.size:
            raise MisuseError(f"rank is {rank}; it must be 0 to {self.comm.size - 1}")
        return _coordinates(rank, self.shape)

    def rank_at(self, coordinates: Sequence[int]) -> int | None:
        """The rank at a place; None beyond an edge that is not periodic. MPI_Cart_rank."""
        if len(coordinates) != len(self.shape):
            raise MisuseError(
                f"coordinates is {list(coordinates)}; it must have {len(self.shape)} numbers, one "
                "for each dimension"
            )
        rank = 0
        for place, length, is_periodic in zip(coordinates, self.shape, self.periodic, strict=True):
            if not is_periodic and not 0 <= place < length:
                return None
            rank = rank * length + place % length
        return rank

    def shift(self, dimension: int, distance: int = 1) -> tuple[int | None, int | None]:
        """The ranks for a shift of data along a dimension. MPI_Cart_shift.

        Args:
            dimension: The dimension, from 0.
            distance: Places that data moves; negative: towards the first one.

        Returns:
            The rank to receive from and the rank to send to; None beyond an edge.
        """
        if not 0 <= dimension < len(self.shape):
            raise MisuseError(f"dimension is {dimension}; it must be 0 to {len(self.shape) - 1}")
        return self._rank_at_distance(dimension, -distance), self._rank_at_distance(
            dimension, distance
        )

    def _rank_at_distance(self, dimension: int, distance: int) -> int | None:
        place = list(self.coordinates)
        place[dimension] += distance
        return self.rank_at(place)


def check_shape(shape: Sequence[int], periodic: Sequence[bool], size: int) -> None:
    """Raises MisuseError for a grid that so many ranks cannot make."""
    if not shape or min(shape) < 1 or math.prod(shape) > size:
        raise MisuseError(
            f"shape is {list(shape)} for {size} ranks; it must have a number of ranks, 1 or more, "
            "for each dimension, and no more places than there are ranks"
        )
    if len(periodic) != len(shape):
        raise MisuseError(
            f"periodic has {len(periodic)} entries; it must have one for each of {len(shape)} "
            "dimensions"
        )


def _coordinates(rank: int, shape: Sequence[int]) -> tuple[int, ...]:
    found = []
    for length in reversed(shape):
        rank, place = divmod(rank, length)
        found.append(place)
    return tuple(reversed(found))


def _blocks(array: Any) -> list[Any]:
    """Views of the blocks along the first dimension."""
    return [array[index : index + 1] for index in range(array.shape[0])]


guard(globals())
