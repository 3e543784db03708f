"""Running a plan on CUDA devices, a thread of this process for each rank."""

from collections.abc import Sequence
from dataclasses import dataclass

from unisono import _bench
from unisono import _unisono as native
from unisono.communicator import Communicator
from unisono.errors import MisuseError
from unisono.lang.run import Array, Buffers, arrange
from unisono.testing import run_ranks

__all__ = ["run_all_on_devices", "run_on_devices"]

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
    return run_all_on_devices([(plan, inputs)], operation=operation, timeout=timeout)[0]


def run_all_on_devices(
    runs: Sequence[tuple[native.Plan, Sequence[Array]]],
    *,
    operation: str = "sum",
    timeout: float = 30,
) -> list[list[Array]]:
    """As `run_on_devices`, for plans of equally many ranks, by one communicator after the other.

    Args:
        runs: Plans, each with one array a rank.
        operation: The reduction, of all.
        timeout: Seconds after which a rank that waits gives up.

    Returns:
        Of each plan one array a rank, in host memory.

    Raises:
        MachineError: There is no CUDA device, or kernels do not run on it.
        MisuseError: The inputs do not fit, the GPU engine does not run such plans, or they are of
            different numbers of ranks.
    """
    sizes = {plan.ranks for plan, _ in runs}
    if len(sizes) > 1:
        raise MisuseError(f"plans of {sorted(sizes)} ranks; those of one job have equally many")
    for plan, _ in runs:
        if plan.in_place and plan.collective in _ROOTED:
            raise MisuseError(
                f"plan {plan.name} is a {plan.collective} in place, which is so at the root alone; "
                "on devices it is run out of place: compile it so"
            )
    devices = native.cuda_device_count()
    if devices == 0:
        raise MisuseError("this process sees no CUDA device; leave out --device cuda")
    arranged = [(plan, *arrange(plan, inputs)) for plan, inputs in runs]

    def run_rank(comm: Communicator) -> None:
        own = [
            _Run(plan, count, type_name, buffers[comm.rank], operation)
            for plan, count, type_name, buffers in arranged
        ]
        largest = max(max(one.buffers.memory.nbytes, one.buffers.output.nbytes) for one in own)
        there = _bench.DeviceBench(comm._native, comm.rank % devices, max(largest, 1))
        registered = None
        for one in own:
            if one.plan is not registered:
                comm.register(one.plan)
                registered = one.plan
            comm.barrier()
            one.run(there)
        # Freeing device memory waits for kernels, which may wait for this rank's.
        comm.barrier()

    for ranks in sizes:
        run_ranks(ranks, run_rank, timeout=timeout)
    return [[one.output for one in buffers] for _, _, _, buffers in arranged]


@dataclass(frozen=True)
class _Run:
    """What one rank does with one plan: of host memory, as `arrange` gives it."""

    plan: native.Plan
    count: int
    type_name: str
    buffers: Buffers
    operation: str

    def run(self, there: _bench.DeviceBench) -> None:
        """Brings the input to the device, makes the call, and takes the output back."""
        memory, result = self.buffers.memory, self.buffers.output
        output = there.output_address
        if self.plan.in_place:
            output = there.input_address + self.buffers.begin_out * memory.itemsize
        else:
            there.copy(output, result.ctypes.data, result.nbytes)
        there.copy(there.input_address, memory.ctypes.data, memory.nbytes)
        call = native.Call(
            self.plan.collective,
            there.input_address + self.buffers.begin_in * memory.itemsize,
            output,
            self.count,
            self.type_name,
            self.operation,
            self.plan.root,
            options={"algorithm": self.plan.name, "protocol": self.plan.protocol},
            stream=there.stream,
        )
        there.run(call, by_nccl=False, is_ring=False, in_graph=False)
        there.copy(result.ctypes.data, output, result.nbytes)
