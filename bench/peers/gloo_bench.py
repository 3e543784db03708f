"""Gloo in the comparison, through PyTorch: `gloo_bench.py SOCKET RANK RANKS STORE`.

It does what worker.h says, in Python, and needs PyTorch but not Unisono. STORE is a file by which
the ranks find each other.
"""

import mmap
import os
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

_TIMEOUT = timedelta(seconds=120)


def pages(count: int) -> torch.Tensor:
    """Whole pages of the kernel, as in the compiled workers."""
    return torch.frombuffer(mmap.mmap(-1, max(4 * count, 1)), dtype=torch.float32, count=count)


_spread = torch.empty(0)


def spread(count: int) -> torch.Tensor:
    """The part of inputs that depends on the index alone, kept because it takes long."""
    global _spread
    if _spread.numel() < count:
        _spread = ((torch.arange(count) * 2654435761 % (1 << 32)) >> 19).float()
    return _spread[:count]


class Worker:
    """One command: its buffers, calls and what they must give."""

    def __init__(self, collective: str, count: int, in_place: bool) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.collective, self.count = collective, count
        blocks = self.size * count
        inputs = blocks if collective in ("reduce_scatter", "all_to_all") else count
        outputs = blocks if collective in ("all_gather", "all_to_all") else count
        self.output = pages(outputs)
        # PyTorch's all_reduce and broadcast have one form, in place.
        if collective in ("all_reduce", "broadcast"):
            self.input = self.output
        elif collective == "all_gather" and in_place:
            self.input = self.output[self.rank * count : (self.rank + 1) * count]
        else:
            self.input = pages(inputs)
        self.salt = 0
        self.call = self._call()

    def _call(self) -> Callable[[], object]:
        given, result = self.input, self.output
        if self.collective == "send_recv":
            peer = self.rank ^ 1
            if peer >= self.size:
                return lambda: None
            if self.rank % 2 == 0:
                return lambda: (dist.send(given, peer), dist.recv(result, peer))
            return lambda: (dist.recv(result, peer), dist.send(given, peer))
        return {
            "all_reduce": lambda: dist.all_reduce(result),
            "all_gather": lambda: dist.all_gather_into_tensor(result, given),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(result, given),
            "broadcast": lambda: dist.broadcast(result, 0),
            "all_to_all": lambda: dist.all_to_all_single(result, given),
        }[self.collective]

    def values(self, start: int, count: int, rank: int) -> torch.Tensor:
        """Elements of a rank's input; worker.cc's input_value."""
        return spread(start + count)[start:] + (self.salt + rank)

    def fill(self) -> None:
        """Poisons the output, then writes new inputs."""
        self.salt = (self.salt + 17) % 64
        self.output.fill_(-1)
        if self.collective != "broadcast" or self.rank == 0:
            self.input.copy_(self.values(0, self.input.numel(), self.rank))

    def wrong(self) -> int:
        """Wrong elements of the output."""
        count, own = self.count, self.rank
        if self.collective == "send_recv":
            if own ^ 1 >= self.size:
                return 0
            expected = self.values(0, count, own ^ 1)
        elif self.collective in ("all_reduce", "reduce_scatter"):
            start = own * count if self.collective == "reduce_scatter" else 0
            expected = self.size * self.values(start, count, 0) + self.size * (self.size - 1) / 2
        elif self.collective == "broadcast":
            expected = self.values(0, count, 0)
        else:
            start = own * count if self.collective == "all_to_all" else 0
            blocks = [self.values(start, count, rank) for rank in range(self.size)]
            expected = torch.cat(blocks)
        return int((self.output != expected).sum())

    def measure(self, warm_up: int, repeats: int, calls: int) -> tuple[int, list[float]]:
        """Wrong elements, and nanoseconds of a call for each repeat."""
        wrong, times = 0, []
        self.fill()
        dist.barrier()
        for index in range(warm_up):
            self.call()
            if index == 0:
                wrong += self.wrong()
        trips = 2 if self.collective == "send_recv" else 1
        for _ in range(repeats):
            self.fill()
            dist.barrier()
            begin = time.perf_counter_ns()
            for _ in range(calls):
                self.call()
            times.append((time.perf_counter_ns() - begin) / calls / trips)
        # A reduction in place goes on from its own results; there only the first call is checked.
        if self.collective != "all_reduce":
            wrong += self.wrong()
        dist.barrier()
        return wrong, times


def serve(path: str) -> None:
    """Serves the driver until it says quit or goes away."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(path)
        lines = channel.makefile("rw", buffering=1)
        lines.write(f"hello {dist.get_rank()} Gloo of PyTorch {torch.__version__}\n")
        for line in lines:
            if line.strip() == "quit":
                return
            _, collective, *numbers = line.split()
            count, in_place, warm_up, repeats, calls = map(int, numbers)
            try:
                worker = Worker(collective, count, bool(in_place))
                wrong, times = worker.measure(warm_up, repeats, calls)
            except (RuntimeError, ValueError) as error:
                lines.write("fail " + " ".join(str(error).split()) + "\n")
                raise
            lines.write(f"times {wrong} {' '.join(f'{one:.3f}' for one in times)}\n")


def main(path: str, rank: int, ranks: int, store: str) -> None:
    """Joins the other ranks and serves the driver."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=_TIMEOUT
    )
    serve(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
