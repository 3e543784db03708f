"""What PyTorch's edge costs: an all-reduce of 8 bytes on 2 ranks, by each way into the library.

    torchrun --nproc-per-node 2 bench/cpu/torch_overhead.py [--json FILE]

Ways: the C++ API; the C++ backend of unisono.torch, called through torch.distributed; and the way
that decision 0011 did not take, a subclass of ProcessGroup in Python, which is written here for the
comparison. All use one communicator, take turns, and show the median of the rounds.

On a busy machine the time that passes says little; the processor time of a group of one rank, which
waits for nobody, still says what each way adds.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import platform
import shlex
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import unisono.torch
from unisono import _unisono as native

BASE = "C++ API"
ROUNDS = 15
CALLS = 2000


class PythonWork(dist._Work):
    """An operation that was complete when it was returned."""

    def wait(self, timeout=None) -> bool:
        return True


class PythonGroup(dist.ProcessGroup):
    """The all-reduce of a process group, written in Python."""

    def __init__(self, communicator: native.Communicator) -> None:
        super().__init__(communicator.rank, communicator.size)
        self._communicator = communicator

    def allreduce(self, tensors, options=None):
        tensor = tensors[0]
        address = tensor.data_ptr()
        self._communicator.run(
            native.Call("all_reduce", address, address, tensor.numel(), "float32", "sum")
        )
        return PythonWork()

    def getBackendName(self) -> str:  # noqa: N802
        return "unisono in Python"


@functools.cache
def cpp_loop() -> Callable[[int, int, int, int], float]:
    """The loop of torch_overhead.cc."""
    library = Path(native.__file__)
    source = Path(__file__).with_suffix(".cc")
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "loop.so"
        subprocess.run(
            [
                *shlex.split(os.environ.get("CXX", "c++")),
                *("-std=c++20", "-O2", "-fPIC", "-shared", f"-I{library.parent / 'include'}"),
                *(str(source), "-o", str(binary), f"-L{library.parent}", f"-l:{library.name}"),
                f"-Wl,-rpath,{library.parent}",
            ],
            check=True,
        )
        function = ctypes.CDLL(str(binary)).time_all_reduce
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    return function


def timed(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """Microseconds a call."""
    begin = clock()
    for _ in range(CALLS):
        call()
    return (clock() - begin) / CALLS * 1e6


def ways_into(group: dist.ProcessGroup, clock: Callable[[], float]) -> dict:
    """Each way, as a function that returns microseconds a call."""
    handle = unisono.torch._extension.communicator_handle(group._get_backend(torch.device("cpu")))
    in_python = PythonGroup(native.Communicator.from_handle(handle))
    options = dist.AllreduceOptions()
    options.asyncOp = False
    cpp = cpp_loop()
    x = torch.zeros(2)

    def awaited() -> None:
        dist.all_reduce(x, group=group, async_op=True).wait()

    def in_cpp() -> float:
        begin = clock()
        assert cpp(handle, x.data_ptr(), x.numel(), CALLS) >= 0
        return (clock() - begin) / CALLS * 1e6

    calls = {
        "C++ backend, its binding alone": lambda: group.allreduce([x], options),
        "C++ backend, dist.all_reduce": lambda: dist.all_reduce(x, group=group),
        "C++ backend, async_op=True and wait": awaited,
        "Python subclass, its method alone": lambda: in_python.allreduce([x], options).wait(),
        "Python subclass, dist.all_reduce": lambda: dist.all_reduce(x, group=in_python),
    }
    timers = {name: functools.partial(timed, call, clock) for name, call in calls.items()}
    return {BASE: in_cpp, **timers}


def measure(group: dist.ProcessGroup, clock: Callable[[], float]) -> dict[str, list[float]]:
    """The times of each way, round by round, in turn."""
    ways = ways_into(group, clock)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            dist.barrier()
            times[name].append(way())
    return times


def show(title: str, times: dict[str, list[float]]) -> dict[str, float]:
    """Prints a table; the medians."""
    medians = {name: statistics.median(each) for name, each in times.items()}
    print(title)
    for name, median in medians.items():
        print(f"  {name:38} {median:8.2f}   above the C++ API {median - medians[BASE]:8.2f}")
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the result there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("unisono")
    ranks = dist.get_world_size()
    alone = [dist.new_group([rank]) for rank in range(ranks)][dist.get_rank()]
    together = measure(dist.group.WORLD, time.perf_counter)
    own = measure(alone, time.process_time)
    if dist.get_rank() == 0:
        print(f"all-reduce of 8 bytes, PyTorch {torch.__version__}, µs a call, median")
        wall = show(f"{ranks} ranks, time that passes", together)
        cpu = show("1 rank, its processor time: what the edge alone costs, whoever else runs", own)
        if arguments.json:
            result = {
                "date": time.strftime("%Y-%m-%d"),
                "pytorch": torch.__version__,
                "python": platform.python_version(),
                "machine": platform.machine(),
                "cores": os.cpu_count(),
                "load": os.getloadavg()[0],
                "rounds": ROUNDS,
                "calls": CALLS,
                f"{ranks}_ranks_wall_us": wall,
                "1_rank_cpu_us": cpu,
            }
            arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
