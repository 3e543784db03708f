"""Prefix reductions: programs of the language that a communicator registers when it needs them."""

from typing import Unpack

from unisono import _unisono as native
from unisono.arguments import guard
from unisono.arrays import Array, Returned
from unisono.calls import CallOptions
from unisono.lang.build import Build
from unisono.lang.program import Program, Shape, program
from unisono.operations import Reduction, resolved
from unisono.uneven_calls import UnevenCollectives

__all__ = ["Scans"]


def _up_to(shape: Shape, rank: int, index: int) -> list[tuple[int, int]]:
    return [(other, index) for other in range(rank + 1)]


def _before(shape: Shape, rank: int, index: int) -> list[tuple[int, int]] | None:
    return [(other, index) for other in range(rank)] or None


@program("custom", wanted=_up_to)
def inclusive_scan(p: Build) -> None:
    """A chain through all ranks: each adds its input to what it receives, and sends that on."""
    c = p.chunk(0, "input", 0).copy(0, "output", 0)
    for rank in range(1, p.ranks):
        c = p.chunk(rank, "input", 0).copy(rank, "output", 0).reduce(c)


@program("custom", wanted=_before)
def exclusive_scan(p: Build) -> None:
    """As inclusive_scan; a rank keeps what it receives, and adds its input in scratch memory."""
    sums = p.scratch("sums", 1)
    c = p.chunk(0, "input", 0)
    for rank in range(1, p.ranks):
        c = c.copy(rank, "output", 0)
        if rank + 1 < p.ranks:
            c = p.chunk(rank, "input", 0).copy(rank, sums, 0).reduce(c)


class Scans(UnevenCollectives):
    """Prefix reductions. Elements are combined in the order of ranks, from rank 0 on."""

    def __init__(self, communicator: native.Communicator) -> None:
        super().__init__(communicator)
        self._registered: set[str] = set()

    def scan(
        self,
        x: Array,
        op: Reduction = "sum",
        *,
        out: Array | None = None,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """Rank r gets the reduction of x of ranks 0 to r. MPI_Scan.

        The first scan of a communicator compiles and registers its program, which is collective.

        Args:
            x: This rank's contribution, of any shape.
            op: "sum", "product", "min" or "max", or one that ranks fold, as in all_reduce.
            out: As large as x; `out=x` works in place, on a copy of x. None makes one.
            **options: See CallOptions; `algorithm` is the program.

        Returns:
            The output; with async_op, a Work.
        """
        return self._scan(inclusive_scan, x, op, out, options)

    def exscan(
        self,
        x: Array,
        op: Reduction = "sum",
        *,
        out: Array | None = None,
        **options: Unpack[CallOptions],
    ) -> Returned:
        """Rank r gets the reduction of x of the ranks before it. MPI_Exscan.

        Args:
            x: As in scan.
            op: As in scan.
            out: As in scan. On rank 0, before which there is no rank, it is left alone.
            **options: As in scan.

        Returns:
            As scan. On rank 0 a new output holds anything.
        """
        return self._scan(exclusive_scan, x, op, out, options)

    def _scan(
        self, chain: Program, x: Array, op: Reduction, out: Array | None, options: CallOptions
    ) -> Returned:
        op = resolved(op, x)
        if not isinstance(op, str):
            what = "scan" if chain is inclusive_scan else "exscan"
            return self._fold_scan(what, x, op, out, options)
        if self.size == 1 and chain is exclusive_scan:  # a program without a result is refused
            source = self._input(x, chain.name, options, op=op)
            target = self._output(out, source, source.shape, chain.name, options)
            return self._call("barrier", source, target, 0, options)
        if chain.name not in self._registered:
            self.register(chain, nodes=1)
            self._registered.add(chain.name)
        return self.run(chain, x, op, out=out, **options)


guard(globals())
