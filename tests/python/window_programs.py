"""What ranks do with windows in tests; run as a program, it does one of them as a rank of a job."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable

import numpy as np
import unisono
from unisono import Communicator

TYPES = ("uint8", "int16", "float32", "int64", "float64")


def random_rounds(comm: Communicator) -> None:
    """Ranks put and get at random; each cell has one writer a round, and all ranks know the model.

    The cells of a rank are not as many as those of another, and places are not aligned.
    """
    for number, kind in enumerate(TYPES):
        draws = np.random.default_rng(number)
        lengths = draws.integers(1, 40_000, comm.size)
        model = [draws.integers(0, 100, length).astype(kind) for length in lengths]
        mine = model[comm.rank].copy()
        with comm.window(mine) as window:
            comm.barrier()
            for _ in range(4):
                for target, cells in enumerate(model):
                    cuts = np.sort(draws.integers(0, len(cells) + 1, 6))
                    for first, end in itertools.pairwise(cuts):
                        writer = int(draws.integers(comm.size))
                        data = draws.integers(0, 100, end - first).astype(kind)
                        cells[first:end] = data
                        if writer == comm.rank:
                            window.put(data, target, slice(first, end))
                window.fence()
                np.testing.assert_array_equal(mine, model[comm.rank])
                for target, cells in enumerate(model):
                    first, end = sorted(np.random.default_rng().integers(0, len(cells) + 1, 2))
                    got = window.get(target, slice(first, end))
                    np.testing.assert_array_equal(got, cells[first:end])
                comm.barrier()


def random_words(comm: Communicator) -> None:
    """Sums of what all ranks add at random are right, and no value is given twice."""
    words = 5
    mine = np.zeros(words, "int64")
    draws = np.random.default_rng(comm.rank)
    added = np.zeros((comm.size, words), "int64")
    seen = []
    with comm.window(mine) as window:
        for _ in range(60):
            target, word = int(draws.integers(comm.size)), int(draws.integers(1, words))
            value = int(draws.integers(-1000, 1000))
            window.fetch_add(target, word, value)
            added[target, word] += value
            seen.append(window.fetch_add(0, 0, 1))
        window.fence()
        np.testing.assert_array_equal(mine[1:], comm.all_reduce(added)[comm.rank, 1:])
    every = np.sort(comm.all_gather(np.array(seen)))
    np.testing.assert_array_equal(every, np.arange(60 * comm.size))


def lock(comm: Communicator) -> None:
    """A lock by compare_and_swap keeps ranks from each other's read, change and write."""
    mine = np.zeros(2, "uint64")
    turns = 15
    with comm.window(mine) as window:
        for _ in range(turns):
            while window.compare_and_swap(0, 0, 0, comm.rank + 1) != 0:
                pass
            value = int(window[0, 1])
            window[0, 1] = np.array([value + 1], "uint64")
            window.flush(0)
            assert window.swap(0, 0, 0) == comm.rank + 1
        window.fence()
        if comm.rank == 0:
            assert mine.tolist() == [0, turns * comm.size]


def queue(comm: Communicator) -> None:
    """Ranks append to a queue of rank 0: a place by fetch_add, an item by put, and a signal."""
    items = 20
    tail = np.zeros(1, "int64")
    slots = np.full((items * comm.size, 3), -1, "int32")
    with comm.window(tail) as counter, comm.window(slots) as window:
        for item in range(items):
            place = counter.fetch_add(0, 0, 1)
            window.put(np.array([comm.rank, item, place], "int32"), 0, place, signal=7)
        if comm.rank == 0:
            comm.wait_signals(range(comm.size), 7, count=items)
            assert sorted(map(tuple, slots[:, :2].tolist())) == [
                (rank, item) for rank in range(comm.size) for item in range(items)
            ]
            np.testing.assert_array_equal(slots[:, 2], np.arange(items * comm.size))
            # Items of one rank are in the order of its appends.
            for rank in range(comm.size):
                np.testing.assert_array_equal(slots[slots[:, 0] == rank, 1], np.arange(items))
            assert not comm.test_signals(range(comm.size), 7)


def halo(comm: Communicator) -> None:
    """Sweeps over a ring of cells, whose borders go to the neighbours by put and signal."""
    cells, sweeps = 16, 12
    start = np.random.default_rng(3).random(cells * comm.size)
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    own = np.zeros(cells + 2)
    own[1:-1] = start[comm.rank * cells : (comm.rank + 1) * cells]
    with comm.window(own) as window:
        for _ in range(sweeps):
            window.put(own[1:2], left, cells + 1, signal=0)
            window.put(own[-2:-1], right, 0, signal=1)
            comm.wait_signals(right, 0)
            comm.wait_signals(left, 1)
            own[1:-1] = (own[:-2] + own[1:-1] + own[2:]) / 3
            # The neighbours may overwrite the borders only now.
            comm.signal(left, 2)
            comm.signal(right, 2)
            if left == right:
                comm.wait_signals(left, 2, count=2)
            else:
                comm.wait_signals([left, right], 2)
        found = comm.all_gather(own[1:-1].copy())
    for _ in range(sweeps):
        start = (np.roll(start, 1) + start + np.roll(start, -1)) / 3
    np.testing.assert_array_equal(found, start)


def computing_target(comm: Communicator) -> None:
    """A rank that makes no call serves the others; it sees what they have put."""
    mine = np.zeros(3, "int64")
    with comm.window(mine) as window:
        if comm.rank == 0:
            while mine[1] != comm.size - 1:  # no call of unisono
                pass
        else:
            window.put(np.array([comm.rank], "int64"), 0, 2)
            window.flush(0)
            window.fetch_add(0, 1, 1)


def killed_target(comm: Communicator) -> None:
    """The last rank dies without a word, and rank 0 is told so by what it asks it for."""
    mine = np.zeros(1 << 20, "int64")
    window = comm.window(mine)
    last = comm.size - 1
    comm.barrier()
    if comm.rank == last:
        os.kill(os.getpid(), signal.SIGKILL)
    if comm.rank == 0:
        try:
            while True:
                window.get(last)
        except unisono.Error as error:
            print(f"told: {error}", flush=True)
    os._exit(0)


PROGRAMS: dict[str, Callable[[Communicator], None]] = {
    each.__name__: each
    for each in (random_rounds, random_words, lock, queue, halo, computing_target, killed_target)
}

if __name__ == "__main__":
    with unisono.init(timeout=60) as communicator:
        for name in sys.argv[1:]:
            PROGRAMS[name](communicator)
    print("done", flush=True)
