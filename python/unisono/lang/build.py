"""What a program builds on while it is traced."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from unisono import _unisono as native
from unisono.errors import ProgramError
from unisono.lang.conditions import check_whole

__all__ = ["Build"]


class Build(native.Trace):
    """One program while it is written down: for so many ranks on so many nodes.

    Ranks are numbered node after node: node n has ranks n * ranks_per_node and following.

    Attributes:
        ranks: The number of ranks.
        nodes: The number of nodes.
        ranks_per_node: Ranks on each node.
        root: The root rank, of collectives that have one.
        chunks_per_block: Chunks that each block of the buffers is divided into.
    """

    def __init__(
        self,
        name: str,
        collective: str,
        *,
        ranks: int,
        nodes: int,
        root: int,
        chunks: int,
        in_place: bool,
        blocks: tuple[int, int],
    ) -> None:
        super().__init__(name, collective, ranks, nodes, root, chunks, in_place, blocks)
        self.ranks = ranks
        self.nodes = nodes
        self.ranks_per_node = ranks // nodes
        self.root = root
        self.chunks_per_block = chunks

    @property
    def all_ranks(self) -> npt.NDArray[np.int64]:
        """Ranks 0, 1, ... as an array, for steps of all ranks at once with `chunks`."""
        return np.arange(self.ranks, dtype=np.int64)

    def rank(self, node: int, local: int) -> int:
        """The rank that is number `local` of a node.

        Raises:
            ProgramError: No such node, or not so many ranks on it.
        """
        for name, value in (("node", node), ("local", local)):
            check_whole(self.caller(), f"{name} of rank", value)
        if not 0 <= node < self.nodes or not 0 <= local < self.ranks_per_node:
            raise ProgramError(
                f"{self.caller()}rank({node}, {local}): there are {self.nodes} nodes of "
                f"{self.ranks_per_node} ranks"
            )
        return node * self.ranks_per_node + local

    def scratch(self, name: str, chunks: int) -> str:
        """Declares a scratch buffer of so many chunks on every rank; returns its name.

            before: no buffer "tmp"      after: tmp[0..3] on every rank, holding nothing

        Raises:
            ProgramError: The name is taken, or the buffer too large.
        """
        self.add_scratch(name, chunks)
        return name

    @contextmanager
    def parallelize(self, instances: int) -> Iterator[None]:
        """A fragment whose steps are done by so many instances side by side.

        Each instance moves its part of every chunk, on a channel of its own:

            before: input[0]@0 -> input[0]@1
            after, with 2: the first half on channel 0, the second half on channel 1

        Fragments nest: the instances multiply.
        """
        before = self.set_parallel(instances)
        if before > 1:
            self.set_parallel(before * instances)
        try:
            yield
        finally:
            self.set_parallel(before)

    @contextmanager
    def channel(self, number: int) -> Iterator[None]:
        """Steps inside that name no channel are on this one.

            before: two messages to rank 1, on channel 0, one after the other
            after, with channel(1) around the second: each on its own, at the same time

        Messages between two ranks on different channels are independent of each other, and belong
        to different thread blocks.
        """
        before = self.set_channel(number)
        try:
            yield
        finally:
            self.set_channel(before)

    @contextmanager
    def thread_block(
        self, number: int | None = None, *, send: int | None = None, recv: int | None = None
    ) -> Iterator[None]:
        """Steps inside belong to the program's thread block `number` of the ranks that do them.

        Without this the compiler decides. A thread block is a row of steps, one after another, with
        one peer to send to and one to receive from; a number is one thread block of a rank for each
        channel.

            before: both messages to rank 1 in one thread block of rank 0, one after the other
            after, with thread_block(0, recv=1) and a channel of its own around the second:
            rank 0 sends it in its thread block 0, rank 1 receives it in its thread block 1

        Args:
            number: At both ends.
            send: At the rank that sends, copies or puts.
            recv: At the rank that receives.
        """
        before = self.set_thread_blocks(
            number if send is None else send, number if recv is None else recv
        )
        try:
            yield
        finally:
            self.set_thread_blocks(*before)
