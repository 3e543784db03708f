"""What lies between a collective's arguments and the native call: views, shapes, checks."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from math import prod
from typing import Any

from unisono import _unisono as native
from unisono.arrays import Array, Returned, View, bytes_of, empty_like, rows, shape_text
from unisono.errors import ArgumentTypeError, Error, MisuseError
from unisono.streams import DeviceOptions, stream_of
from unisono.work import Work

__all__ = ["CallOptions", "Calls", "DeviceOptions"]

# The methods that all ranks call together.
_COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "all_to_all_v",
    "all_gather_v",
    "gather_v",
    "scatter_v",
    "reduce_scatter_v",
    "broadcast_object",
    "all_gather_object",
    "barrier",
    "run",
)


class CallOptions(DeviceOptions, total=False):
    """What every collective takes besides its own arguments.

    Attributes:
        async_op: Start the call and return a `Work`; the arrays must be left alone until it is
            complete. Its wait() returns what the call would have returned. Calls of several steps,
            which are those of objects and of operations that ranks fold, need the same async_op on
            all ranks; the first one that is started splits the communicator, which is collective.
        algorithm: The algorithm, as `unisono plan list` names it; else the selection table chooses.
        protocol: "simple", "ll" or "ll128"; None lets the selection choose.
        channels: Channels; 0 lets the table choose.
        timeout: Seconds until the call fails; else the communicator's.
        dtype: Read the elements as this type of the same size: "float8_e4m3", "float8_e5m2"
            (of arrays of uint8) or "bfloat16" (of uint16).

    Those of device memory are DeviceOptions'.
    """

    async_op: bool
    algorithm: str | None
    protocol: str | None
    channels: int
    timeout: float | None
    dtype: str | None


class Calls:
    """Checks the calls of one rank in one communicator, and makes them.

    Attributes:
        rank: This rank's number, from 0.
        size: The number of ranks.
    """

    def __init__(self, communicator: native.Communicator) -> None:
        self._native = communicator
        self.rank: int = communicator.rank
        self.size: int = communicator.size
        self._is_native = False  # the last call came as far as the native one
        # Whether a call of plain arrays may go without views: ranks that compare calls tell more.
        self._is_quick = not communicator.compares_calls
        if communicator.compares_calls:
            for name in _COLLECTIVES:
                setattr(self, name, self._telling(getattr(self, name)))

    def _telling(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, which also reports to the others why this rank could not make the call.

        They would wait for it else.
        """

        @wraps(method)
        def tell(*arguments: Any, **options: Any) -> Any:
            self._is_native = False
            try:
                return method(*arguments, **options)
            except Exception as error:
                if not self._is_native:
                    with suppress(Error):  # of this rank's part, which is raised below
                        self._native.refuse_call(str(error))
                    self._is_native = True  # a method that called this one must not report, too
                raise

        return tell

    def _call(
        self,
        collective: str,
        source: View | None,
        target: View | None,
        count: int,
        options: CallOptions,
        *,
        operation: str = "sum",
        root: int = 0,
        multiplier: float = 1,
        send_counts: Sequence[int] = (),
        send_displacements: Sequence[int] = (),
        recv_counts: Sequence[int] = (),
        recv_displacements: Sequence[int] = (),
    ) -> Returned:
        unknown = options.keys() - CallOptions.__annotations__.keys()
        if unknown:
            raise ArgumentTypeError(
                f"{collective} got an unexpected argument '{min(unknown)}'; options are "
                f"{', '.join(CallOptions.__annotations__)}"
            )
        typed = source or target
        words = typed.words if typed else 1
        if words != 1:
            send_counts, send_displacements, recv_counts, recv_displacements = (
                [words * one for one in elements]
                for elements in (send_counts, send_displacements, recv_counts, recv_displacements)
            )
        call = native.Call(
            collective,
            source.address if source else 0,
            target.address if target else 0,
            count * words,
            typed.word if typed else "uint8",
            operation,
            root,
            multiplier,
            options,
            stream_of(options.get("stream"), (source, target), collective, self.rank),
            send_counts,
            send_displacements,
            recv_counts,
            recv_displacements,
        )
        result = target.source if target else None
        self._is_native = True
        if options.get("async_op", False):
            return Work(self._native, self._native.submit(call), result, (source, target))
        self._native.run(call)
        return result

    def _view(
        self,
        array: Array | None,
        which: str,
        what: str,
        options: CallOptions,
        *,
        writable: bool,
        op: str | None = None,
    ) -> View:
        where = f"the {which} of {what} on rank {self.rank}"
        return View(array, writable, options.get("dtype"), where, op)

    def _input(
        self,
        x: Array | None,
        what: str,
        options: CallOptions,
        *,
        writable: bool = False,
        op: str | None = None,
    ) -> View:
        return self._view(x, "input", what, options, writable=writable, op=op)

    def _output(
        self, out: Array | None, like: View, shape: tuple[int, ...], what: str, options: CallOptions
    ) -> View:
        if out is None:
            out = empty_like(like, shape)
        target = self._view(out, "output", what, options, writable=True, op=like.operation)
        self._check_type(like, target, what)
        if target.count != prod(shape):
            raise MisuseError(
                f"the output of {what} on rank {self.rank} has shape {shape_text(target.shape)}; "
                f"for an input of shape {shape_text(like.shape)} on {self.size} ranks it must "
                f"have shape {shape_text(shape)}"
            )
        return target

    def _check_type(self, source: View, target: View, what: str) -> None:
        if source.type != target.type:
            raise MisuseError(
                f"the output of {what} on rank {self.rank} has type {target.type} and the input "
                f"{source.type}; they must be the same"
            )

    def _check_root(self, root: int, what: str) -> None:
        if not 0 <= root < self.size:
            raise MisuseError(
                f"root is {root} in {what} on rank {self.rank}; it must be 0 to {self.size - 1}"
            )

    def _joined(self, source: View) -> tuple[int, ...]:
        first, rest = rows(source)
        return (first * self.size, *rest)

    def _block(self, source: View, what: str) -> tuple[int, ...]:
        first, rest = rows(source)
        if first % self.size != 0:
            raise MisuseError(
                f"the input of {what} on rank {self.rank} has shape {source.shape}; its first "
                f"dimension must be divisible by the number of ranks, {self.size}"
            )
        return (first // self.size, *rest)

    def _parts(
        self, which: str, counts: Sequence[int], displacements: Sequence[int] | None
    ) -> tuple[tuple[list[int], list[int]], int]:
        """Counts and displacements as lists, and where the last part ends."""
        lengths = [int(count) for count in counts]
        if displacements is None:
            starts = [sum(lengths[:i]) for i in range(len(lengths))]
        else:
            starts = [int(start) for start in displacements]
        ends = [
            start + length for start, length in zip(starts, lengths, strict=False) if length > 0
        ]
        return (lengths, starts), max(ends, default=0)

    @property
    def failure(self) -> Error | None:
        """What has ended this communicator; its `rank` is at fault. None while it is of use."""
        try:
            self._native.check_failure()
        except Error as error:
            return error
        return None

    def register_memory(self, array: Array) -> None:
        """Makes a CUDA array's memory known to the other ranks, before it is first used.

        Calls on it are then zero-copy from the first one on; otherwise from the second or third.
        The whole allocation that contains it is registered until it is freed. Local: waits until
        the others have mapped it, at most a second.

        Args:
            array: In the memory of the communicator's device.

        Raises:
            MisuseError: It is not in that device's memory, or no device is known yet.
            MachineError: The driver cannot share it: it is of cudaMallocAsync, say.
        """
        view = View(array, False, None, f"the array to be registered on rank {self.rank}")
        self._native.register_memory(view.address, bytes_of(view))
