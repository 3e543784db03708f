"""Device memory of a communicator by the size of its calls, compared with PyTorch's NCCL.

    unisono run -n 4 bench/gpu/memory.py

A GPU for each rank. Each line is taken after calls of every collective of that size: what
`Communicator.memory()` reports, and by how much the device's free memory has shrunk since before
the communicator was first used there, kernels and all; of NCCL the latter. In MiB, on the rank
where it is most.
"""

import socket
import sys
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
import unisono

MIB = 1 << 20
SIZES = (1 << 10, 64 << 10, 1 << 20, 4 << 20, 64 << 20)

Calls = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def used_bytes() -> int:
    """Of the device, by all programs."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def of_unisono(comm: unisono.Communicator) -> Calls:
    """Every collective on an input, an output, and a part of a rank's size."""

    def calls(given: torch.Tensor, taken: torch.Tensor, part: torch.Tensor) -> None:
        comm.all_reduce(given, out=taken)
        comm.all_gather(part, out=taken)
        comm.reduce_scatter(given, out=part)
        comm.all_to_all(given, out=taken)
        comm.broadcast(taken)

    return calls


def of_nccl(given: torch.Tensor, taken: torch.Tensor, part: torch.Tensor) -> None:
    """The same."""
    dist.all_reduce(taken)
    dist.all_gather_into_tensor(taken, part)
    dist.reduce_scatter_tensor(part, given)
    dist.all_to_all_single(taken, given)
    dist.broadcast(taken, 0)


def main() -> int:
    """Measures, and prints on rank 0."""
    with unisono.init() as control, control.split(0, control.rank) as comm:
        torch.cuda.set_device(control.rank)
        port = control.broadcast(np.array([free_port()], np.int64))[0]
        dist.init_process_group(
            "nccl",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=control.rank,
            world_size=control.size,
        )
        given = torch.ones(SIZES[-1] // 2, dtype=torch.bfloat16, device="cuda")
        taken, part = torch.empty_like(given), given.new_empty(given.numel() // control.size)
        rows = []
        for calls in (of_unisono(comm), of_nccl):
            before = used_bytes()
            for size in SIZES:
                count = size // 2
                calls(given[:count], taken[:count], part[: count // control.size])
                rows.append([comm.memory()["device_bytes"], used_bytes() - before])
        most = control.all_reduce(np.array(rows, np.int64), op="max") / MIB
        if control.rank == 0:
            print(f"{'bytes':>10} {'reported':>10} {'taken':>10} {'by NCCL':>10}")
            for i, size in enumerate(SIZES):
                own, nccl = most[i], most[i + len(SIZES)]
                print(f"{size:10} {own[0]:10.1f} {own[1]:10.1f} {nccl[1]:10.1f}")
        control.barrier()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
