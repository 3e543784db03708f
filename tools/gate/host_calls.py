"""One rank: times calls of the Python API on host memory, in every version of Unisono.

    unisono run -n 2 tools/gate/host_calls.py all_gather,send_recv 8,1024 OUT.json

Sizes are bytes, of the larger of a rank's input and output. A time is the median over repeats of
the slowest rank's; a message's is half that of a round trip between ranks 2i and 2i + 1. It uses
the public API alone, so that builds of different versions are measured alike.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import unisono

# The pure functions of the bench, from the gate's own checkout: an older build has others.
sys.path.append(str(Path(__file__).resolve().parents[2] / "python" / "unisono" / "bench"))
from repeats import must_guess_again, plan_repeats

BUDGET_SECONDS = 0.1
GUESSES = 3
BARRIERS = 5


def call_of(comm: unisono.Communicator, collective: str, size: int) -> Callable[[], object]:
    """What makes one call on buffers of that size."""
    count = max(1, size // 4)
    if collective == "all_gather":
        mine = np.ones(max(1, count // comm.size), np.float32)
        every = np.empty(mine.size * comm.size, np.float32)
        return lambda: comm.all_gather(mine, out=every)
    given, result = np.ones(count, np.float32), np.empty(count, np.float32)
    if collective == "all_reduce":
        return lambda: comm.all_reduce(given, out=result)
    if collective != "send_recv":
        raise SystemExit(f"{collective} is not timed here")
    peer = comm.rank ^ 1
    if peer >= comm.size:
        return lambda: None
    if comm.rank % 2 == 0:
        return lambda: (comm.send(given, peer), comm.recv(result, peer))
    return lambda: (comm.recv(result, peer), comm.send(given, peer))


class Timer:
    """Rows of calls on one communicator; all ranks learn the same times."""

    def __init__(self, comm: unisono.Communicator) -> None:
        self._comm = comm

    def slowest(self, seconds: float) -> float:
        return float(self._comm.all_reduce(np.array([seconds]), op="max")[0])

    def row(self, call: Callable[[], object], calls: int) -> float:
        """Seconds of calls back to back, of the slowest rank."""
        self._comm.barrier()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return self.slowest(time.perf_counter() - began)

    def call_us(self, call: Callable[[], object]) -> float:
        barrier = min(self.row(self._comm.barrier, 1) for _ in range(BARRIERS))
        calls = 1
        for _ in range(GUESSES):
            row = self.row(call, calls)
            plan = plan_repeats(row / calls, BUDGET_SECONDS, 0, barrier)
            if not must_guess_again(row, calls, barrier):
                break
            calls = plan[1]
        repeats, calls = plan
        times = [self.row(call, calls) / calls for _ in range(max(3, repeats))]
        return 1e6 * statistics.median(times)


def main(collectives: str, sizes: str, out: str) -> None:
    """Times all, and writes them on rank 0."""
    with unisono.init() as comm:
        timer = Timer(comm)
        values = {}
        for collective in collectives.split(","):
            for size in map(int, sizes.split(",")):
                time_us = timer.call_us(call_of(comm, collective, size))
                trips = 2 if collective == "send_recv" else 1
                values[f"{collective} {size}"] = time_us / trips
        if comm.rank == 0:
            Path(out).write_text(json.dumps({"values": values}))
        comm.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
