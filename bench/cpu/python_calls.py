"""Calls from Python on NumPy arrays and objects, and accesses to windows, by Unisono or by mpi4py.

    unisono run -n 2 bench/cpu/python_calls.py --json unisono.json
    mpiexec -n 2 python bench/cpu/python_calls.py --library mpi4py --json openmpi.json
    python bench/cpu/python_calls.py --compare unisono.json openmpi.json

The time of a call is that of the slowest rank: the mean of a batch, and of all batches the least
and the median. A message is half a round trip. Objects are NumPy arrays of so many bytes, which
mpi4py pickles as its communicator does (`mpi4py`) or with buffers out of band (`pkl5`). Two
ranks access each other's windows at the same time; a put is over when it is there.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (8, 256, 4096, 64 << 10, 1 << 20, 4 << 20)
BATCHES = 15
BATCH_SECONDS = 0.02
Calls = dict[str, Callable[[], Any]]


def arrays(size: int, ranks: int) -> tuple[Any, Any, Any, Any]:
    """A float32 array of the size and an output, and the same for a block of each rank."""
    x = np.ones(size // 4, np.float32)
    blocks = np.ones((ranks, size // 4), np.float32)
    return x, np.empty_like(x), blocks, np.empty_like(blocks)


def turns(rank: int, send: Callable[[], Any], receive: Callable[[], Any]) -> Callable[[], None]:
    """A round trip between ranks 0 and 1; the others do nothing."""

    def trip() -> None:
        if rank == 0:
            send()
            receive()
        elif rank == 1:
            receive()
            send()

    return trip


def of_unisono(comm: Any, size: int) -> Calls:
    x, out, blocks, gathered = arrays(size, comm.size)
    peer = 1 - comm.rank
    return {
        "message": turns(comm.rank, lambda: comm.send(x, peer), lambda: comm.recv(out, peer)),
        "all_reduce": lambda: comm.all_reduce(x, out=out),
        "broadcast": lambda: comm.broadcast(x),
        "all_gather": lambda: comm.all_gather(x, out=gathered),
        "all_to_all": lambda: comm.all_to_all(blocks, out=gathered),
        "object": turns(
            comm.rank, lambda: comm.send_object(x, peer), lambda: comm.receive_object(peer)
        ),
        "broadcast of an object": lambda: comm.broadcast_object(x),
        "all_gather of objects": lambda: comm.all_gather_object(x),
    }


def accesses_of_unisono(comm: Any, size: int) -> Calls:
    x, out = arrays(size, comm.size)[:2]
    words = np.zeros(1, np.int64)
    window, counter = comm.window(x.copy()), comm.window(words)
    peer = 1 - comm.rank

    def put() -> None:
        window.put(x, peer)
        window.flush(peer)

    def halo() -> None:
        window.put(x, peer, signal=0)
        comm.wait_signals(peer, 0)
        comm.signal(peer, 1)
        comm.wait_signals(peer, 1)

    return {
        "put": put,
        "get": lambda: window.get(peer, out=out),
        "halo": halo,
        "fetch_add": lambda: counter.fetch_add(peer, 0, 1),
    }


def accesses_of_mpi4py(comm: Any, size: int) -> Calls:
    from mpi4py import MPI

    x, out = arrays(size, comm.size)[:2]
    one, before = np.ones(1, np.int64), np.zeros(1, np.int64)
    memory, words = x.copy(), np.zeros(1, np.int64)
    window = MPI.Win.Create(memory, memory.itemsize, comm=comm)
    counter = MPI.Win.Create(words, 8, comm=comm)
    turn = MPI.Win.Create(memory, memory.itemsize, comm=comm)
    group = comm.group.Incl([1 - comm.rank])
    window.Lock_all()
    counter.Lock_all()
    peer = 1 - comm.rank

    def put() -> None:
        window.Put(x, peer)
        window.Flush(peer)

    def get() -> None:
        window.Get(out, peer)
        window.Flush(peer)

    def halo() -> None:
        turn.Post(group)
        turn.Start(group)
        turn.Put(x, peer)
        turn.Complete()
        turn.Wait()

    def fetch_add() -> None:
        counter.Fetch_and_op(one, before, peer)
        counter.Flush(peer)

    return {"put": put, "get": get, "halo": halo, "fetch_add": fetch_add}


def of_mpi4py(comm: Any, objects: Any, size: int) -> Calls:
    x, out, blocks, gathered = arrays(size, comm.size)
    peer = 1 - comm.rank
    return {
        "message": turns(comm.rank, lambda: comm.Send(x, peer), lambda: comm.Recv(out, peer)),
        "all_reduce": lambda: comm.Allreduce(x, out),
        "broadcast": lambda: comm.Bcast(x),
        "all_gather": lambda: comm.Allgather(x, gathered),
        "all_to_all": lambda: comm.Alltoall(blocks, gathered),
        "object": turns(
            comm.rank, lambda: objects.send(x, peer), lambda: objects.recv(source=peer)
        ),
        "broadcast of an object": lambda: objects.bcast(x),
        "all_gather of objects": lambda: objects.allgather(x),
    }


def measured(call: Callable[[], Any], slowest: Callable[[float], float]) -> list[float]:
    """Microseconds of a call in each batch."""
    batches: list[float] = []
    calls = 1
    while len(batches) < BATCHES:
        slowest(0.0)  # all ranks begin together
        start = time.perf_counter()
        for _ in range(calls):
            call()
        seconds = slowest(time.perf_counter() - start)
        if seconds < BATCH_SECONDS and not batches:
            calls *= 2
        else:
            batches.append(seconds / calls * 1e6)
    return batches


def run(
    calls_of: Callable[[int], Calls], slowest: Callable[[float], float]
) -> dict[str, dict[str, float]]:
    """By "call size": the least and the median of microseconds."""
    found = {}
    for size in SIZES:
        for name, call in calls_of(size).items():
            times = measured(call, slowest)
            half = 2 if name in ("message", "object") else 1
            found[f"{name} {size}"] = {
                "least_us": min(times) / half,
                "median_us": statistics.median(times) / half,
            }
    return found


def run_unisono() -> tuple[int, int, dict[str, dict[str, float]]]:
    import unisono

    with unisono.init() as comm:

        def slowest(seconds: float) -> float:
            return float(comm.all_reduce(np.array(seconds), "max"))

        def calls(size: int) -> Calls:
            accesses = accesses_of_unisono(comm, size) if comm.size == 2 else {}
            return of_unisono(comm, size) | accesses

        return comm.rank, comm.size, run(calls, slowest)


def run_mpi4py(is_out_of_band: bool) -> tuple[int, int, dict[str, dict[str, float]]]:
    from mpi4py import MPI
    from mpi4py.util import pkl5

    comm = MPI.COMM_WORLD
    objects = pkl5.Intracomm(comm) if is_out_of_band else comm

    def slowest(seconds: float) -> float:
        return float(comm.allreduce(seconds, MPI.MAX))

    def calls(size: int) -> Calls:
        accesses = accesses_of_mpi4py(comm, size) if comm.size == 2 else {}
        return of_mpi4py(comm, objects, size) | accesses

    return comm.rank, comm.size, run(calls, slowest)


def compare(files: list[Path]) -> None:
    """Prints the times of the first file, and how often they fit into the others' least."""
    results = [json.loads(path.read_text()) for path in files]
    names = [result["name"] for result in results]
    print(
        f"{'call':<24}{'bytes':>9}" + "".join(f"{name:>16}" for name in names) + "   best / first"
    )
    for row in results[0]["times"]:
        call, _, size = row.rpartition(" ")
        times = [result["times"][row]["least_us"] for result in results]
        ratio = min(times[1:]) / times[0]
        print(
            f"{call:<24}{size:>9}"
            + "".join(f"{one:>13.1f} us" for one in times)
            + f"{ratio:>12.2f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Times calls from Python.")
    parser.add_argument("--library", choices=("unisono", "mpi4py", "pkl5"), default="unisono")
    parser.add_argument("--name", help="what the library is called in the table")
    parser.add_argument("--json", type=Path, help="write the times to this file")
    parser.add_argument("--compare", type=Path, nargs="+", help="files: the first with the others")
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments.compare)
        return 0
    is_ours = arguments.library == "unisono"
    rank, ranks, times = run_unisono() if is_ours else run_mpi4py(arguments.library == "pkl5")
    if rank == 0:
        result = {"name": arguments.name or arguments.library, "ranks": ranks, "times": times}
        text = json.dumps(result, indent=1) + "\n"
        if arguments.json:
            arguments.json.write_text(text)
        else:
            print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
