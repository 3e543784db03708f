"""Collectives whose ranks contribute parts of different lengths.

`counts` has the length of each rank's part, in elements, the same list on all ranks. Parts are read
and written as one row of elements, in the order of ranks, or where `displacements` says. A part may
have no elements. The data movement is that of all_to_all_v, by its plan.
"""

from collections.abc import Sequence
from typing import Any, Unpack

from unisono.arguments import guard
from unisono.arrays import Array, Returned, View, empty_like
from unisono.calls import CallOptions
from unisono.errors import MisuseError
from unisono.object_calls import Objects
from unisono.operations import Reduction, resolved

__all__ = ["UnevenCollectives"]


class UnevenCollectives(Objects):
    """Collectives of uneven parts: see `unisono.uneven_calls`."""

    def all_gather_v(
        self,
        x: Array,
        counts: Sequence[int],
        *,
        displacements: Sequence[int] | None = None,
        out: Array | None = None,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """Every rank gets all ranks' x, of counts[r] elements on rank r. MPI_Allgatherv.

        Args:
            x: This rank's part, of counts[rank] elements.
            counts: Elements of each rank, the same on all ranks.
            displacements: The element of out at which each part starts; None: one after another.
            out: Where the parts arrive; None makes a row that just holds them.
            **options: See CallOptions.

        Returns:
            The output; with async_op, a Work.
        """
        what = "all_gather_v"
        source = self._input(x, what, options)
        lengths = self._counts(counts, what)
        self._check_part(source, lengths[self.rank], "input", what)
        (lengths, starts), end = self._parts("recv", lengths, displacements)
        target = self._row(out, source, end, what, options)
        return self._call(
            "all_to_all_v", source, target, 0, options,
            send_counts=[source.count] * self.size, send_displacements=[0] * self.size,
            recv_counts=lengths, recv_displacements=starts,
        )  # fmt: skip

    def gather_v(
        self,
        x: Array,
        counts: Sequence[int],
        root: int = 0,
        *,
        displacements: Sequence[int] | None = None,
        out: Array | None = None,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """The root gets all ranks' x, of counts[r] elements on rank r. MPI_Gatherv.

        Args:
            x: This rank's part, of counts[rank] elements.
            counts: Elements of each rank, the same on all ranks.
            root: The rank that gets the parts.
            displacements: At the root, as in all_gather_v. Elsewhere they are not used.
            out: At the root, as in all_gather_v. Elsewhere it is not used.
            **options: See CallOptions.

        Returns:
            The output at the root, None elsewhere; with async_op, a Work.
        """
        what = "gather_v"
        self._check_root(root, what)
        source = self._input(x, what, options)
        lengths = self._counts(counts, what)
        self._check_part(source, lengths[self.rank], "input", what)
        target = None
        starts = none = [0] * self.size
        if self.rank == root:
            (lengths, starts), end = self._parts("recv", lengths, displacements)
            target = self._row(out, source, end, what, options)
        return self._call(
            "all_to_all_v", source, target, 0, options,
            send_counts=[source.count * (rank == root) for rank in range(self.size)],
            send_displacements=none, recv_counts=lengths if self.rank == root else none,
            recv_displacements=starts,
        )  # fmt: skip

    def scatter_v(
        self,
        x: Array | None,
        counts: Sequence[int],
        root: int = 0,
        *,
        displacements: Sequence[int] | None = None,
        out: Array | None = None,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """Rank r gets a part of the root's x, of counts[r] elements. MPI_Scatterv.

        Args:
            x: At the root, the parts. Elsewhere it is not used.
            counts: Elements of each rank, the same on all ranks.
            root: The rank whose x is scattered.
            displacements: At the root, the element of x at which each part starts; None: one after
                another. Elsewhere they are not used.
            out: Of counts[rank] elements. Needed on all ranks but the root, which alone knows the
                type.
            **options: See CallOptions.

        Returns:
            The output; with async_op, a Work.
        """
        what = "scatter_v"
        self._check_root(root, what)
        lengths = self._counts(counts, what)
        mine = lengths[self.rank]
        source = None
        starts = none = [0] * self.size
        if self.rank == root:
            source = self._input(x, what, options)
            (lengths, starts), end = self._parts("send", lengths, displacements)
            self._check_room(source, end, "input", what)
            if out is None:
                out = empty_like(source, (mine,))
        elif out is None:
            raise MisuseError(
                f"scatter_v on rank {self.rank} needs out=: only the root, rank {root}, knows the "
                "type of what is scattered"
            )
        target = self._view(out, "output", what, options, writable=True)
        if source is not None:
            self._check_type(source, target, what)
        self._check_part(target, mine, "output", what)
        return self._call(
            "all_to_all_v", source, target, 0, options,
            send_counts=lengths if self.rank == root else none, send_displacements=starts,
            recv_counts=[mine * (rank == root) for rank in range(self.size)],
            recv_displacements=none,
        )  # fmt: skip

    def reduce_scatter_v(
        self,
        x: Array,
        counts: Sequence[int],
        op: Reduction = "sum",
        *,
        out: Array | None = None,
        multiplier: float = 1,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """Rank r gets part r, of counts[r] elements, of the reduction. MPI_Reduce_scatter.

        It is a reduce_scatter of blocks of the largest count: the parts are copied into blocks, and
        ranks exchange as many bytes as for `size * max(counts)` elements.

        Args:
            x: This rank's contribution: a NumPy array or tensor with the parts of all ranks, one
                after another.
            counts: Elements of each rank's part, the same on all ranks.
            op: As in all_reduce.
            out: Of counts[rank] elements; None makes one.
            multiplier: As in all_reduce.
            **options: See CallOptions.

        Returns:
            The output; with async_op, a Work.
        """
        what = "reduce_scatter_v"
        op = resolved(op, x)
        combined = op if isinstance(op, str) else None  # by the core
        source = self._input(x, what, options, op=combined)
        lengths = self._counts(counts, what)
        self._check_part(source, sum(lengths), "input", what)
        if out is None:
            out = empty_like(source, (lengths[self.rank],))
        target = self._view(out, "output", what, options, writable=True, op=combined)
        self._check_type(source, target, what)
        self._check_part(target, lengths[self.rank], "output", what)
        if not isinstance(op, str):
            return self._fold_reduce_scatter_v(x, lengths, op, target, options)
        given, longest, start = self._row_of(x, what), max(lengths), 0
        received = self._row_of(out, what)
        blocks = empty_like(source, (self.size, longest))
        blocks[...] = 0
        for rank, length in enumerate(lengths):
            blocks[rank, :length] = given[start : start + length]
            start += length

        def finish(block: Any) -> Returned:
            received[:] = block.reshape(-1)[: lengths[self.rank]]
            return out

        started = self.reduce_scatter(blocks, op, multiplier=multiplier, **options)
        if not options.get("async_op", False):
            return finish(started)
        started._then(finish)
        return started

    def _counts(self, counts: Sequence[int], what: str) -> list[int]:
        lengths = [int(count) for count in counts]
        if len(lengths) != self.size or min(lengths) < 0:
            raise MisuseError(
                f"counts is {lengths} in {what} on rank {self.rank}; it must have a number of "
                f"elements, 0 or more, for each of {self.size} ranks"
            )
        return lengths

    def _row(
        self, out: Array | None, like: View, end: int, what: str, options: CallOptions
    ) -> View:
        """The output: a row of its own, or one that the caller gives and that has the room."""
        if out is None:
            out = empty_like(like, (end,))
        target = self._view(out, "output", what, options, writable=True)
        self._check_type(like, target, what)
        self._check_room(target, end, "output", what)
        return target

    def _row_of(self, array: Any, what: str) -> Any:
        if not hasattr(array, "reshape"):
            raise MisuseError(
                f"{what} on rank {self.rank} got a {type(array).__qualname__}; pass a NumPy array "
                "or a tensor"
            )
        return array.reshape(-1)

    def _check_part(self, view: View, length: int, which: str, what: str) -> None:
        if view.count != length:
            raise MisuseError(
                f"the {which} of {what} on rank {self.rank} has {view.count} elements; counts say "
                f"{length}"
            )

    def _check_room(self, view: View, end: int, which: str, what: str) -> None:
        if view.count < end:
            raise MisuseError(
                f"the {which} of {what} on rank {self.rank} has {view.count} elements; counts and "
                f"displacements need {end}"
            )


guard(globals())
