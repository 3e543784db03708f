"""The collectives of a communicator."""

from collections.abc import Sequence
from typing import Unpack, cast

from unisono import _unisono as native
from unisono.arguments import guard
from unisono.arrays import Array, Returned, empty_like, plain_like
from unisono.calls import CallOptions
from unisono.errors import MisuseError
from unisono.fold_calls import Folds
from unisono.inspection import Inspection
from unisono.operations import Reduction, resolved
from unisono.work import Work

__all__ = ["Collectives"]


class Collectives(Folds, Inspection):
    """What all ranks of a communicator call together: see `unisono.communicator`."""

    def all_reduce(
        self,
        x: Array,
        op: Reduction = "sum",
        *,
        out: Array | None = None,
        multiplier: float = 1,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """Every rank gets the reduction of all ranks' x, bit for bit the same.

        Args:
            x: This rank's contribution, of any shape.
            op: "sum", "product", "min", "max", "average" (integers round towards zero) or
                "pre_multiplied_sum" (each rank's x times its `multiplier`), which the core has.
                "logical_and", "bitwise_or", "minloc" and the others of `unisono.operations`, an
                `Operation`, or a function of two arrays: ranks fold them in the order of ranks.
            out: As large as x; `out=x` works in place. None makes one.
            multiplier: For pre_multiplied_sum; a whole number for integers.
            **options: See CallOptions.

        Returns:
            The output; with async_op, a Work.
        """
        what = "all_reduce"
        op = resolved(op, x)
        if not isinstance(op, str):
            return self._fold_all_reduce(x, op, out, options)
        if self._is_quick and not options:
            out = plain_like(x) if out is None else out
            if native.try_call(self._native, what, x, out, op, 0):
                return out
        source = self._input(x, what, options, writable=out is x, op=op)
        target = source if out is x else self._output(out, source, source.shape, what, options)
        return self._call(
            what, source, target, source.count, options, operation=op, multiplier=multiplier
        )

    def all_gather(
        self, x: Array, *, out: Array | None = None, **options: Unpack[CallOptions]
    ) -> Returned:
        """Every rank gets all ranks' x, along the first dimension.

        Args:
            x: This rank's contribution, shape (k, ...), the same on all ranks. In place, x is
                block `rank` of out: `all_gather(out[rank * k : (rank + 1) * k], out=out)`.
            out: Shape (size * k, ...). None makes one.
            **options: See CallOptions.

        Returns:
            The output; with async_op, a Work.
        """
        what = "all_gather"
        if self._is_quick and not options and native.try_call(self._native, what, x, out, "sum", 0):
            return out
        source = self._input(x, what, options)
        target = self._output(out, source, self._joined(source), what, options)
        return self._call(what, source, target, source.count, options)

    def reduce_scatter(
        self,
        x: Array,
        op: Reduction = "sum",
        *,
        out: Array | None = None,
        multiplier: float = 1,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """Rank r gets block r of the reduction of all ranks' x.

        Args:
            x: This rank's contribution, shape (size * k, ...).
            op: As in all_reduce.
            out: Shape (k, ...). In place, it is block `rank` of x. None makes one.
            multiplier: As in all_reduce.
            **options: See CallOptions.

        Returns:
            The output; with async_op, a Work.
        """
        what = "reduce_scatter"
        op = resolved(op, x)
        if not isinstance(op, str):
            return self._fold_reduce_scatter(x, op, out, options)
        if self._is_quick and not options and native.try_call(self._native, what, x, out, op, 0):
            return out
        source = self._input(x, what, options, op=op)
        target = self._output(out, source, self._block(source, what), what, options)
        return self._call(
            what, source, target, target.count, options, operation=op, multiplier=multiplier
        )

    def broadcast(
        self, x: Array, root: int = 0, *, out: Array | None = None, **options: Unpack[CallOptions]
    ) -> Returned:
        """Every rank gets the root's x.

        Args:
            x: At the root, what is sent; elsewhere it is overwritten, unless `out` is given.
            root: The rank whose x is sent.
            out: As large as x; None works in place.
            **options: See CallOptions.

        Returns:
            The output; with async_op, a Work.
        """
        what = "broadcast"
        self._check_root(root, what)
        if self._is_quick and not options:
            given = x if out is None else out
            if native.try_call(self._native, what, x, given, "sum", root):
                return given
        if out is None and self.rank == root:
            source = self._input(x, what, options, writable=False)
            return self._call(what, source, source, source.count, options, root=root)
        if out is None or self.rank != root:
            target = self._view(x if out is None else out, "output", what, options, writable=True)
            return self._call(what, None, target, target.count, options, root=root)
        source = self._input(x, what, options, writable=out is x)
        target = source if out is x else self._output(out, source, source.shape, what, options)
        return self._call(what, source, target, source.count, options, root=root)

    def reduce(
        self,
        x: Array,
        op: Reduction = "sum",
        root: int = 0,
        *,
        out: Array | None = None,
        multiplier: float = 1,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """The root gets the reduction of all ranks' x.

        Args:
            x: This rank's contribution.
            op: As in all_reduce.
            root: The rank that gets the result.
            out: At the root, as large as x; None makes one. Elsewhere it is not used.
            multiplier: As in all_reduce.
            **options: See CallOptions.

        Returns:
            The output at the root, None elsewhere; with async_op, a Work.
        """
        what = "reduce"
        self._check_root(root, what)
        op = resolved(op, x)
        if not isinstance(op, str):
            return self._fold_reduce(x, op, root, out, options)
        source = self._input(x, what, options, writable=out is x and self.rank == root, op=op)
        target = None
        if self.rank == root:
            target = source if out is x else self._output(out, source, source.shape, what, options)
        return self._call(
            what,
            source,
            target,
            source.count,
            options,
            operation=op,
            root=root,
            multiplier=multiplier,
        )

    def gather(
        self, x: Array, root: int = 0, *, out: Array | None = None, **options: Unpack[CallOptions]
    ) -> Returned:
        """The root gets all ranks' x, along the first dimension.

        Args:
            x: This rank's contribution, shape (k, ...). In place at the root, block `root` of out.
            root: The rank that gets the result.
            out: At the root, shape (size * k, ...); None makes one. Elsewhere it is not used.
            **options: See CallOptions.

        Returns:
            The output at the root, None elsewhere; with async_op, a Work.
        """
        what = "gather"
        self._check_root(root, what)
        source = self._input(x, what, options)
        target = None
        if self.rank == root:
            target = self._output(out, source, self._joined(source), what, options)
        return self._call(what, source, target, source.count, options, root=root)

    def scatter(
        self,
        x: Array | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """Rank r gets block r of the root's x.

        Args:
            x: At the root, shape (size * k, ...). Elsewhere it is not used.
            root: The rank whose x is scattered.
            out: Shape (k, ...). Needed on all ranks but the root, which alone knows the shape. In
                place at the root, block `root` of x.
            **options: See CallOptions.

        Returns:
            The output; with async_op, a Work.
        """
        what = "scatter"
        self._check_root(root, what)
        if self.rank == root:
            source = self._input(x, what, options)
            target = self._output(out, source, self._block(source, what), what, options)
            return self._call(what, source, target, target.count, options, root=root)
        if out is None:
            raise MisuseError(
                f"scatter on rank {self.rank} needs out=: only the root, rank {root}, knows the "
                "shape and type of what is scattered"
            )
        target = self._view(out, "output", what, options, writable=True)
        return self._call(what, None, target, target.count, options, root=root)

    def all_to_all(
        self, x: Array, *, out: Array | None = None, **options: Unpack[CallOptions]
    ) -> Returned:
        """Rank r gets block r of every rank's x, in the order of ranks.

        Args:
            x: Shape (size * k, ...): block r is sent to rank r.
            out: As large as x; `out=x` works in place. None makes one.
            **options: See CallOptions.

        Returns:
            The output; with async_op, a Work.
        """
        what = "all_to_all"
        if self._is_quick and not options:
            out = plain_like(x) if out is None else out
            if native.try_call(self._native, what, x, out, "sum", 0):
                return out
        source = self._input(x, what, options, writable=out is x)
        self._block(source, what)
        target = source if out is x else self._output(out, source, source.shape, what, options)
        return self._call(what, source, target, source.count // self.size, options)

    def all_to_all_v(
        self,
        x: Array,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        *,
        send_displacements: Sequence[int] | None = None,
        recv_displacements: Sequence[int] | None = None,
        out: Array | None = None,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """Every rank sends every rank a part of its own length.

        Args:
            x: The parts, read as one row of elements.
            send_counts: Elements for each rank.
            recv_counts: Elements from each rank: what it sends to this one.
            send_displacements: The element of x at which each part starts; None: one after another.
            recv_displacements: The element of out at which each part starts; None: one after
                another.
            out: Where the parts arrive; None makes a row that just holds them.
            **options: See CallOptions.

        Returns:
            The output; with async_op, a Work.
        """
        what = "all_to_all_v"
        source = self._input(x, what, options)
        sends, send_end = self._parts("send", send_counts, send_displacements)
        receives, recv_end = self._parts("recv", recv_counts, recv_displacements)
        if send_end > source.count:
            raise MisuseError(
                f"the input of {what} on rank {self.rank} has {source.count} elements; send_counts "
                f"and send_displacements need {send_end}"
            )
        if out is None:
            out = empty_like(source, (recv_end,))
        target = self._view(out, "output", what, options, writable=True)
        self._check_type(source, target, what)
        if recv_end > target.count:
            raise MisuseError(
                f"the output of {what} on rank {self.rank} has {target.count} elements; "
                f"recv_counts and recv_displacements need {recv_end}"
            )
        return self._call(
            what, source, target, 0, options,
            send_counts=sends[0], send_displacements=sends[1],
            recv_counts=receives[0], recv_displacements=receives[1],
        )  # fmt: skip

    def barrier(self, **options: Unpack[CallOptions]) -> Work | None:
        """Returns when all ranks have called it; with async_op, a Work."""
        if self._is_quick and not options:
            native.try_call(self._native, "barrier", None, None, "sum", 0)
            return None
        return cast("Work | None", self._call("barrier", None, None, 0, options))


guard(globals())
