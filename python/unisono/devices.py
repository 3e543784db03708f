"""Running a plan on CUDA devices, a thread of this process for each rank."""

from collections.abc import Sequence

from unisono import _unisono as native
from unisono.communicator import Communicator
from unisono.errors import MisuseError
from unisono.lang.run import Array, Buffers, arrange
from unisono.testing import run_ranks

__all__ = ["run_on_devices"]

_ROOTED = ("broadcast", "reduce", "gather", "scatter")


def run_on_devices(
    plan: native.Plan,
    inputs: Sequence[Array],
    *,
    operation: str = "sum",
    timeout: float = 30,
) -> list[Array]:
    """As `unisono.lang.run`, in the memory of CUDA devices and by the GPU engine.

    Ranks are threads that register the plan with a communicator and call it on a stream. Rank r
    takes device r; where there are fewer, ranks share them, as many as a device can run at once.

    Args:
        plan: The plan.
        inputs: One array a rank, in host memory.
        operation: The reduction.
        timeout: Seconds after which a rank that waits gives up.

    Returns:
        One array a rank, in host memory.

    Raises:
        MachineError: There is no CUDA device, or kernels do not run on it.
        MisuseError: The inputs do not fit, or the GPU engine does not run such plans.
    """
    if plan.in_place and plan.collective in _ROOTED:
        raise MisuseError(
            f"plan {plan.name} is a {plan.collective} in place, which is so at the root alone; on "
            "devices it is run out of place: compile it so"
        )
    devices = native.cuda_device_count()
    if devices == 0:
        raise MisuseError("this process sees no CUDA device; leave out --device cuda")
    count, type_name, buffers = arrange(plan, inputs)
    run_ranks(
        plan.ranks,
        lambda comm: _run_rank(
            comm, plan, buffers[comm.rank], count, type_name, operation, comm.rank % devices
        ),
        timeout=timeout,
    )
    return [one.output for one in buffers]


def _run_rank(
    comm: Communicator,
    plan: native.Plan,
    one: Buffers,
    count: int,
    type_name: str,
    operation: str,
    device: int,
) -> None:
    comm.register(plan)
    there = native.DeviceBench(comm._native, device, max(one.memory.nbytes, one.output.nbytes, 1))
    size = one.memory.itemsize
    output = there.output_address
    if plan.in_place:
        output = there.input_address + one.begin_out * size
    else:
        there.copy(output, one.output.ctypes.data, one.output.nbytes)
    there.copy(there.input_address, one.memory.ctypes.data, one.memory.nbytes)
    comm.barrier()
    there.run(
        native.Call(
            plan.collective,
            there.input_address + one.begin_in * size,
            output,
            count,
            type_name,
            operation,
            plan.root,
            algorithm=plan.name,
            protocol=plan.protocol,
            stream=there.stream,
        ),
        by_nccl=False,
        is_ring=False,
        in_graph=False,
    )
    there.copy(one.output.ctypes.data, output, one.output.nbytes)
    # Freeing device memory waits for kernels, which may wait for this rank's.
    comm.barrier()
