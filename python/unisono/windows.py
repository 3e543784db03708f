"""Windows: memory of each rank that the other ranks write and read without its part in it."""

import math
from types import TracebackType
from typing import Self

from unisono import _unisono as native
from unisono.arguments import guard
from unisono.arrays import Array, Returned, View, bytes_of, element_bytes, empty_like, shape_text
from unisono.errors import MisuseError
from unisono.scan_calls import Scans

__all__ = ["Window"]

# A place in a rank's part: a row of the array, or rows one after another.
Place = int | slice
_WORDS = ("int64", "uint64")


class Window:
    """An array of each rank, which all ranks of a communicator write to and read from.

    `Communicator.window` makes it. A place in it is a row, or rows one after another: along the
    first dimension of the rank's array, whose rows have the shape and type of this rank's rows. In
    an array of one dimension they are its elements. `window[rank, place] = x` is put, and
    `window[rank, place]` is get.

    Ranks of one host reach each other's memory where it lies. On another host a thread of the rank
    carries out what comes, also while the rank computes. A put to another host is there once a
    signal of this rank or an answer to it (get, fetch_add and so on, flush) has come later.

    As a context manager it is closed at the end of the block, unless an exception leaves it.

    Attributes:
        array: This rank's array.
    """

    array: Array

    def __init__(self, communicator: Scans, array: Array, dtype: str | None = None) -> None:
        self._communicator = communicator
        what = f"the window of rank {communicator.rank}"
        view = View(array, True, dtype, what)
        if view.device is not None:
            raise MisuseError(
                f"{what} is in the memory of CUDA device {view.device}; windows in Python are of "
                "CPU memory"
            )
        self.array = array
        self._view = view
        self._row_shape = view.shape[1:]
        self._row_bytes = element_bytes(view) * math.prod(self._row_shape)
        if self._row_bytes == 0:
            raise MisuseError(f"{what} has shape {view.shape}, whose rows have no elements")
        self._native = native.Window(communicator._native, view.address, bytes_of(view))
        self._is_closed = False

    def rows(self, rank: int) -> int:
        """Rows of a rank's part."""
        self._check_open()
        return int(self._native.bytes_of(rank) // self._row_bytes)

    def put(
        self,
        x: Array,
        rank: int,
        at: Place = 0,
        *,
        signal: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Copies x into the part of a rank. MPI_Put, and MPI_Win_flush_local.

        Args:
            x: As many elements as the place has, of the window's type. It may be changed
                afterwards. At a row it may also be as many rows as fit behind it.
            rank: The rank that owns the memory; it may be this one.
            at: The first row, or a slice of rows.
            signal: The number, 0 to 63, of a signal that the rank gets behind the data.
            timeout: Seconds until it fails; None takes the communicator's.
        """
        view = self._view_of(x, False, "the input of a put")
        first, rows = self._place(rank, at, bytes_of(view) // self._row_bytes)
        self._check(view, rows, "the input of a put")
        if signal is not None and not 0 <= signal < native.signals_of_a_pair:
            raise MisuseError(
                f"signal is {signal} on rank {self._communicator.rank}; it must be 0 to "
                f"{native.signals_of_a_pair - 1}, or None for none"
            )
        self._native.put(
            *(view.address, bytes_of(view), rank, first * self._row_bytes),
            signal=-1 if signal is None else signal,
            timeout=timeout,
        )

    def get(
        self,
        rank: int,
        at: Place = slice(None),
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Returned:
        """Copies rows of the part of a rank. MPI_Get, and MPI_Win_flush.

        Args:
            rank: The rank that owns the memory; it may be this one.
            at: A row, or a slice of rows; all by default.
            out: Where they are written; None makes an array like this rank's, of shape
                (rows, ...), and without its first dimension for one row.
            timeout: Seconds until it fails; None takes the communicator's.

        Returns:
            out.
        """
        first, rows = self._place(rank, at, 1)
        if out is None:
            shape = self._row_shape if isinstance(at, int) else (rows, *self._row_shape)
            out = empty_like(self._view, shape)
        view = self._view_of(out, True, "the output of a get")
        self._check(view, rows, "the output of a get")
        where = (view.address, bytes_of(view), rank, first * self._row_bytes)
        self._native.get(*where, timeout=timeout)
        return out

    def __setitem__(self, place: tuple[int, Place], x: Array) -> None:
        rank, at = place
        self.put(x, rank, at)

    def __getitem__(self, place: tuple[int, Place]) -> Returned:
        rank, at = place
        return self.get(rank, at)

    def fetch_add(self, rank: int, at: int, value: int, *, timeout: float | None = None) -> int:
        """Adds to an integer of 64 bits, and gives what it was before. MPI_Fetch_and_op.

        No other fetch_add, swap or compare_and_swap of any rank comes between; a put does not
        count. The sum wraps around. The window must be of int64 or uint64.

        Args:
            rank: The rank that owns the integer.
            at: Its place in the window, in elements.
            value: What is added.
            timeout: Seconds until it fails; None takes the communicator's.
        """
        return self._change("add", rank, at, value, 0, timeout)

    def swap(self, rank: int, at: int, value: int, *, timeout: float | None = None) -> int:
        """Replaces an integer, and gives what it was before; otherwise as fetch_add."""
        return self._change("swap", rank, at, value, 0, timeout)

    def compare_and_swap(
        self, rank: int, at: int, expected: int, value: int, *, timeout: float | None = None
    ) -> int:
        """Replaces an integer if it is `expected`. MPI_Compare_and_swap.

        Returns:
            What it was before; it was replaced if that is `expected`. Otherwise as fetch_add.
        """
        return self._change("compare_and_swap", rank, at, value, expected, timeout)

    def flush(self, rank: int | None = None, *, timeout: float | None = None) -> None:
        """Waits until all that this rank has put is there. MPI_Win_flush.

        Args:
            rank: What it has put to that rank; None: to all.
            timeout: Seconds until it fails; None takes the communicator's.
        """
        ranks = range(self._communicator.size) if rank is None else [rank]
        for each in ranks:
            native.flush(self._communicator._native, each, timeout)

    def fence(self) -> None:
        """Waits until all that any rank has put is there. Collective; MPI_Win_fence."""
        self.flush()
        self._communicator.barrier()

    def close(self) -> None:
        """Ends it: nothing is written to this rank's array afterwards. Collective; may be repeated.

        MPI_Win_free.
        """
        if not self._is_closed:
            self.fence()
            self._is_closed = True
            self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exception_type is None:
            self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise MisuseError(f"the window of rank {self._communicator.rank} is closed")

    def _view_of(self, array: Array, writable: bool, what: str) -> View:
        what = f"{what} on rank {self._communicator.rank}"
        view = View(array, writable, None, what)
        if view.device is not None:
            raise MisuseError(f"{what} is in device memory; windows in Python are of CPU memory")
        if element_bytes(view) != element_bytes(self._view):
            raise MisuseError(
                f"{what} has elements of type {view.type}, of {element_bytes(view)} bytes; the "
                f"window's are of type {self._view.type}"
            )
        return view

    def _place(self, rank: int, at: Place, rows: int) -> tuple[int, int]:
        """The first row of a place in a rank's part, and how many: `rows` where it names one."""
        of = self.rows(rank)
        if isinstance(at, slice):
            first, end, step = at.indices(of)
            if step != 1:
                raise MisuseError(
                    f"the place in the window of rank {rank} is every {step}th row on rank "
                    f"{self._communicator.rank}; rows must be one after another"
                )
            return first, max(0, end - first)
        first = at + of if at < 0 else at
        if first < 0 or first + rows > of:
            raise MisuseError(
                f"rank {self._communicator.rank} accesses rows {first} to {first + rows} of the "
                f"window of rank {rank}, which has {of} rows"
            )
        return first, rows

    def _check(self, view: View, rows: int, what: str) -> None:
        if bytes_of(view) != rows * self._row_bytes:
            wanted = shape_text((rows, *self._row_shape))
            raise MisuseError(
                f"{what} on rank {self._communicator.rank} has shape {shape_text(view.shape)}; "
                f"its place in the window has shape {wanted}"
            )

    def _change(
        self, operation: str, rank: int, at: int, value: int, expected: int, timeout: float | None
    ) -> int:
        self._check_open()
        name = f"{operation} on rank {self._communicator.rank}"
        if self._view.type not in _WORDS:
            raise MisuseError(
                f"{name} is for a window of type {self._view.type}; it must be of "
                f"{' or '.join(_WORDS)}"
            )
        is_signed = self._view.type == "int64"
        least, end = (-(2**63), 2**63) if is_signed else (0, 2**64)
        for number in (value, expected):
            if not least <= number < end:
                raise MisuseError(f"{name} has the value {number}, which is no {self._view.type}")
        elements = self._native.bytes_of(rank) // element_bytes(self._view)
        place = at + elements if at < 0 else at
        if not 0 <= place < elements:
            raise MisuseError(
                f"{name} is for element {at} of the window of rank {rank}, which has {elements}"
            )
        before = self._native.change_word(
            *(operation, value % 2**64, rank, 8 * place, expected % 2**64), timeout=timeout
        )
        return before - 2**64 if is_signed and before >= 2**63 else before


guard(globals())
