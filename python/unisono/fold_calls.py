"""Reductions by operations that the core does not have: the core moves data, ranks fold it.

Contributions are combined in the order of ranks, whatever the call and the size, so that all ranks
get the same bits, and the last rank's scan is the all_reduce. There are two ways:

- **Whole.** A rank that gets a result receives the arrays of all ranks and folds them. It holds n
  times the input, on n ranks.
- **In parts**, of an element-wise operation on more than `MOST_WHOLE_BYTES` of other ranks' data.
  Each rank receives one part of all ranks' arrays and folds it; the folded parts are then sent
  where they are wanted. A rank holds twice the input and moves as many bytes as in a ring.

Which way is taken depends on what all ranks know, so that they agree.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from unisono.arrays import Array, Returned, View, bytes_of
from unisono.calls import CallOptions
from unisono.chained import Chained
from unisono.errors import MisuseError
from unisono.operations import Operation

__all__ = ["MOST_WHOLE_BYTES", "Folds"]

# Two calls of parts cost more than one call of whole arrays, up to about so many bytes of others.
MOST_WHOLE_BYTES = 64 << 10


class Folds(Chained):
    """The reductions that a rank folds: see `unisono.fold_calls`."""

    def _fold_all_reduce(
        self, x: Array, op: Operation, out: Array | None, options: CallOptions
    ) -> Returned:
        what = "all_reduce"
        source = self._folded(x, op, what, options)
        target = source if out is x else self._output(out, source, source.shape, what, options)
        if self._is_whole(source, op):
            return self._fold_whole(what, source, target, op, range(self.size), options)
        if options.get("async_op", False):
            return self._later(what, x, op, out=out, **_waiting(options))
        lengths = self._even_parts(source.count)
        total = self._folded_part(source, lengths, op, options)
        self._send_parts(total, [len(total)] * self.size, [0] * self.size, target, lengths, options)
        return target.source

    def _fold_reduce(
        self, x: Array, op: Operation, root: int, out: Array | None, options: CallOptions
    ) -> Returned:
        what = "reduce"
        source = self._folded(x, op, what, options)
        target = None
        if self.rank == root:
            target = source if out is x else self._output(out, source, source.shape, what, options)
        if self._is_whole(source, op):
            gathered, view = None, None
            if target is not None:
                gathered = np.empty((self.size, *source.shape), _numpy(source).dtype)
                view = self._view(gathered, "input", what, options, writable=True)
            started = self._call("gather", source, view, source.count, options, root=root)
            return self._finish(started, gathered, target, op, options)
        if options.get("async_op", False):
            return self._later(what, x, op, root, out=out, **_waiting(options))
        lengths = self._even_parts(source.count)
        total = self._folded_part(source, lengths, op, options)
        sent = [len(total) if rank == root else 0 for rank in range(self.size)]
        received = lengths if self.rank == root else [0] * self.size
        self._send_parts(total, sent, [0] * self.size, target, received, options)
        return None if target is None else target.source

    def _fold_reduce_scatter(
        self, x: Array, op: Operation, out: Array | None, options: CallOptions
    ) -> Returned:
        what = "reduce_scatter"
        source = self._folded(x, op, what, options)
        target = self._output(out, source, self._block(source, what), what, options)
        blocks = np.empty((self.size, *target.shape), _numpy(source).dtype)
        view = self._view(blocks, "input", what, options, writable=True)
        started = self._call("all_to_all", source, view, target.count, options)
        return self._finish(started, blocks, target, op, options)

    def _fold_reduce_scatter_v(
        self, x: Array, lengths: Sequence[int], op: Operation, out: View, options: CallOptions
    ) -> Returned:
        source = self._folded(x, op, "reduce_scatter_v", options)
        started, parts = self._move_parts(source, lengths, options)
        return self._finish(started, parts, out, op, options)

    def _fold_scan(
        self, what: str, x: Array, op: Operation, out: Array | None, options: CallOptions
    ) -> Returned:
        """A scan, or an exscan, whose output on rank 0 is left alone."""
        source = self._folded(x, op, what, options)
        target = source if out is x else self._output(out, source, source.shape, what, options)
        is_inclusive = what == "scan"
        if self._is_whole(source, op):
            ranks = range(self.rank + is_inclusive)
            return self._fold_whole(what, source, target, op, ranks, options)
        if options.get("async_op", False):
            return self._later(what, x, op, out=out, **_waiting(options))
        lengths = self._even_parts(source.count)
        _, parts = self._move_parts(source, lengths, options)
        with self._ends_all():
            for before, part in pairwise(parts):
                # The first argument is what has been combined so far, as in a reduction.
                total = before.copy()
                op.combine(total, part)
                part[...] = total
        length = lengths[self.rank]
        last = self.size - (not is_inclusive)  # ranks whose prefixes are wanted, from the first on
        sent = [0] * (self.size - last) + [length] * last
        starts = [0] * (self.size - last) + [rank * length for rank in range(last)]
        received = lengths if self.rank >= self.size - last else [0] * self.size
        self._send_parts(parts.reshape(-1), sent, starts, target, received, options)
        return target.source

    def _fold_whole(
        self,
        what: str,
        source: View,
        target: View,
        op: Operation,
        ranks: range,
        options: CallOptions,
    ) -> Returned:
        """Gathers the arrays of all ranks, and folds those of `ranks`, from 0 on."""
        gathered = np.empty((self.size, *source.shape), _numpy(source).dtype)
        view = self._view(gathered, "input", what, options, writable=True)
        started = self._call("all_gather", source, view, source.count, options)
        return self._finish(started, gathered[ranks.start : ranks.stop], target, op, options)

    def _finish(
        self,
        started: Returned,
        parts: Any,
        target: View | None,
        op: Operation,
        options: CallOptions,
    ) -> Returned:
        """Folds what a call has moved, when it is complete."""

        def finish(_: Returned) -> Returned:
            if target is None:
                return None
            if len(parts):
                _fold(parts, _numpy(target).reshape(parts.shape[1:]), op)
            return target.source

        if options.get("async_op", False):
            started._then(finish, target)
            return started
        return finish(started)

    def _folded(self, x: Array, op: Operation, what: str, options: CallOptions) -> View:
        """The input, checked before anything is started."""
        where = f"the input of {what} on rank {self.rank}"
        for name in ("algorithm", "dtype"):
            if options.get(name) is not None:
                raise MisuseError(
                    f"{name} is {options[name]!r} in {what} by {op.name} on rank {self.rank}; "
                    "there is none for an operation that ranks fold"
                )
        source = self._input(x, what, options)
        if source.device is not None:
            raise MisuseError(
                f"{where} is in the memory of CUDA device {source.device}; {op.name} takes arrays "
                "in CPU memory"
            )
        op.check_type(_numpy(source).dtype, where)
        return source

    def _is_whole(self, source: View, op: Operation) -> bool:
        return not op.elementwise or bytes_of(source) * (self.size - 1) <= MOST_WHOLE_BYTES

    def _even_parts(self, count: int) -> list[int]:
        return [count // self.size + (rank < count % self.size) for rank in range(self.size)]

    def _move_parts(
        self, source: View, lengths: Sequence[int], options: CallOptions
    ) -> tuple[Returned, Any]:
        """Moves this rank's part of all ranks' arrays to it: a Work, and the parts by rank."""
        mine = lengths[self.rank]
        parts = np.empty((self.size, mine), _numpy(source).dtype)
        what = "all_to_all_v"
        started = self._call(
            what, source, self._view(parts, "output", what, options, writable=True), 0,
            options, send_counts=lengths, send_displacements=_starts(lengths),
            recv_counts=[mine] * self.size,
            recv_displacements=[rank * mine for rank in range(self.size)],
        )  # fmt: skip
        return started, parts

    def _folded_part(
        self, source: View, lengths: Sequence[int], op: Operation, options: CallOptions
    ) -> Any:
        _, parts = self._move_parts(source, lengths, options)
        with self._ends_all():
            _fold(parts, parts[0], op)
        return parts[0]

    def _send_parts(
        self,
        x: Any,
        sent: Sequence[int],
        starts: Sequence[int],
        target: View | None,
        received: Sequence[int],
        options: CallOptions,
    ) -> None:
        """Sends folded parts to the ranks that want them."""
        self._call(
            "all_to_all_v", self._input(x, "all_to_all_v", options), target, 0, options,
            send_counts=sent, send_displacements=starts,
            recv_counts=received, recv_displacements=_starts(received),
        )  # fmt: skip

    @contextmanager
    def _ends_all(self) -> Iterator[None]:
        """Aborts the communicator if a function fails: other ranks wait for what it folds."""
        try:
            yield
        except BaseException:
            self._native.abort()
            raise


def _waiting(options: CallOptions) -> CallOptions:
    return {**options, "async_op": False}


def _fold(parts: Any, out: Any, op: Operation) -> None:
    """Combines arrays in order; `out` may be the first of them."""
    out[...] = parts[0]
    for part in parts[1:]:
        op.combine(out, part)


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *accumulate(lengths[:-1])]


def _numpy(view: View) -> Any:
    """The memory of a view in CPU memory, as a NumPy array of its shape."""
    source: Any = view.source
    if isinstance(source, np.ndarray):
        return source
    return np.asarray(source if hasattr(source, "__array__") else memoryview(source))
