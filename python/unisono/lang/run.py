"""Running a plan on host memory, all ranks in one process."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unisono import _unisono as native
from unisono.errors import MisuseError

__all__ = ["Array", "Buffers", "arrange", "run"]

Array = npt.NDArray[np.generic]


def run(
    plan: native.Plan,
    inputs: Sequence[Array],
    *,
    operation: str = "sum",
    timeout: float = 30,
) -> list[Array]:
    """What every rank has in its output after the plan has run on these inputs.

    All ranks run in the calling thread, over the engine and the shared memory that communicators
    use. The inputs stay as they are, also for a plan in place.

    Args:
        plan: The plan.
        inputs: One array a rank, all of one type and block size: an all-reduce's inputs have one
            block, an all-to-all's `ranks`. Ranks without input give an empty array.
        operation: The reduction.
        timeout: Seconds after which a plan that does not move on is given up.

    Returns:
        One array a rank, of as many blocks as the collective puts out there.

    Raises:
        MisuseError: The inputs do not fit the plan.
    """
    count, type_name, buffers = arrange(plan, inputs)
    native.run_plan(
        plan,
        [one.memory.ctypes.data + one.begin_in * one.memory.itemsize for one in buffers],
        [one.output.ctypes.data for one in buffers],
        count,
        type_name,
        operation,
        timeout,
    )
    return [one.output for one in buffers]


@dataclass(frozen=True)
class Buffers:
    """A rank's memory for one run.

    Attributes:
        memory: What holds the input; in place, the output too.
        begin_in: The element of it where the input begins.
        begin_out: In place, the element of it where the output begins.
        output: The output: part of the memory in place, else an array of its own.
    """

    memory: Array
    begin_in: int
    begin_out: int
    output: Array


def arrange(plan: native.Plan, inputs: Sequence[Array]) -> tuple[int, str, list[Buffers]]:
    """Elements of a block, their type, and every rank's memory with its input in it.

    Raises:
        MisuseError: The inputs do not fit the plan.
    """
    if len(inputs) != plan.ranks:
        raise MisuseError(f"{len(inputs)} inputs; {plan.name} has {plan.ranks} ranks")
    types = {array.dtype for array in inputs}
    if len(types) != 1:
        raise MisuseError(f"inputs of types {sorted(map(str, types))}; they must be of one type")
    counts = {
        array.size // plan.input_blocks(rank)
        for rank, array in enumerate(inputs)
        if plan.input_blocks(rank) and (array.size or not _may_be_empty(plan, rank))
    }
    if len(counts) > 1:
        raise MisuseError(f"inputs with blocks of {sorted(counts)} elements; blocks are equal")
    count = counts.pop() if counts else 0
    buffers = []
    for rank, array in enumerate(inputs):
        size_in, size_out = plan.input_blocks(rank) * count, plan.output_blocks(rank) * count
        if array.size != size_in and (array.size > 0 or not _may_be_empty(plan, rank)):
            raise MisuseError(
                f"rank {rank}'s input has {array.size} elements, which are not "
                f"{plan.input_blocks(rank)} blocks of {count}"
            )
        memory = np.zeros(max(size_in, size_out) if plan.in_place else size_in, array.dtype)
        begin_in, begin_out = _places(plan, rank, count)
        memory[begin_in : begin_in + array.size] = array.ravel()
        output = memory[begin_out : begin_out + size_out]
        if not plan.in_place:
            # What the plan does not write shows.
            output = np.frombuffer(b"\xa5" * (size_out * array.itemsize), array.dtype).copy()
        buffers.append(Buffers(memory, begin_in, begin_out, output))
    return count, types.pop().name, buffers


def _may_be_empty(plan: native.Plan, rank: int) -> bool:
    """Whether the rank brings nothing: in place, a broadcast's other ranks only receive."""
    rooted = plan.collective in ("broadcast", "scatter")
    return plan.input_blocks(rank) == 0 or (rooted and rank != plan.root)


def _places(plan: native.Plan, rank: int, count: int) -> tuple[int, int]:
    """Where input and output begin in the memory that they share in place."""
    own = rank * count
    if not plan.in_place:
        return 0, 0
    if plan.collective == "all_gather" or (plan.collective == "gather" and rank == plan.root):
        return own, 0
    if plan.collective == "reduce_scatter" or (plan.collective == "scatter" and rank == plan.root):
        return 0, own
    return 0, 0
