"""Processes that play seeds of chaos, and what the seeds came to.

A process has one seed at a time. So where it crashes the seed is known, and nothing else is lost.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

from unisono import _unisono as native
from unisono.errors import MachineError

# After so many seeds a worker makes room for another: a rank that was killed keeps its memory, as
# it stood in the middle of using it.
_SEEDS_A_WORKER = 250
# Every so many seeds one is played twice, and must be the same run. The number of shapes does not
# divide it, so each shape has its share.
_TWICE_EVERY = 16
# Ranks and nodes, by turns.
_SHAPES = ((4, 2), (8, 2), (8, 3))
MOST_STORIES = 3


@dataclass(frozen=True)
class Kind:
    """What all seeds have in common.

    Attributes:
        ranks: Of each job; None: the seed decides, and with it the nodes.
        nodes: That the ranks are on; None: the seed decides, or 2 where `ranks` is given.
        operations: Of each job.
        strikes: In each job.
    """

    ranks: int | None
    nodes: int | None
    operations: int
    strikes: int

    def shape_of(self, seed: int) -> tuple[int, int]:
        """How many ranks a seed has, and on how many nodes."""
        ranks, nodes = _SHAPES[seed % len(_SHAPES)]
        if self.ranks is not None:
            ranks, nodes = self.ranks, min(self.ranks, 2)
        return ranks, self.nodes or nodes

    def fewest_ranks(self) -> int:
        """The number of ranks of the smallest job."""
        return self.ranks or min(ranks for ranks, _ in _SHAPES)


@dataclass
class Found:
    """What seeds came to, added up.

    Attributes:
        seeds: Played.
        calls: That succeeded, over all ranks.
        failures: Calls that ended in an error.
        events: Of the simulated worlds.
        virtual_seconds: That went by in them.
        repeated: Seeds that were played twice.
        places: Where a strike may come.
        shapes: How many seeds had so many ranks on so many nodes, as "8 on 3".
        wrong: By seed, what did not hold.
        stories: By seed, of the shortest failure.
    """

    seeds: int = 0
    calls: int = 0
    failures: int = 0
    events: int = 0
    virtual_seconds: float = 0.0
    repeated: int = 0
    places: set[str] = field(default_factory=set)
    shapes: dict[str, int] = field(default_factory=dict)
    wrong: dict[int, list[str]] = field(default_factory=dict)
    stories: dict[int, str] = field(default_factory=dict)

    def add(self, other: "Found") -> None:
        """Takes in what other seeds came to."""
        self.seeds += other.seeds
        self.calls += other.calls
        self.failures += other.failures
        self.events += other.events
        self.virtual_seconds += other.virtual_seconds
        self.repeated += other.repeated
        self.places |= other.places
        for shape, seeds in other.shapes.items():
            self.shapes[shape] = self.shapes.get(shape, 0) + seeds
        self.wrong |= other.wrong
        self.stories |= other.stories


def play_seed(seed: int, shrinks: bool, kind: Kind) -> Found:
    """Plays one seed, twice where it is its turn; `shrinks`: a failure is made shorter."""
    ranks, nodes = kind.shape_of(seed)
    twice = seed % _TWICE_EVERY == 0
    played = native.play_chaos(
        seed, ranks, nodes, kind.operations, kind.strikes, twice=twice, shrinks=shrinks
    )
    found = Found(
        seeds=1,
        calls=played.calls,
        failures=played.failures,
        events=played.events,
        virtual_seconds=played.seconds,
        repeated=int(twice),
        places=set(played.places),
        shapes={f"{ranks} on {nodes}": 1},
    )
    wrong = list(played.wrong)
    if not played.is_repeatable:
        wrong.append("the seed gave another run the second time")
    if wrong:
        found.wrong[seed] = wrong
        found.stories[seed] = played.story
    return found


# Plays a seed; whether its failure is to be made shorter.
Play = Callable[[int, bool], Found]


def _work(orders: Connection, play: Play) -> None:
    os.environ["UNISONO_LOG"] = "off"  # errors are what a worker provokes
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that gives orders ends this one
    orders.send(None)  # from here on an end of this process is a seed's doing
    while order := orders.recv():
        orders.send(play(*order))


class _Worker:
    """A process that plays one seed at a time."""

    def __init__(self, play: Play) -> None:
        # Spawned, so that it has no threads or locks of this process.
        context = multiprocessing.get_context("spawn")
        self.orders, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, play), daemon=True)
        self.process.start()
        theirs.close()
        self.seed = -1
        self.seeds_left = _SEEDS_A_WORKER
        self.has_begun = False

    def play(self, seed: int, shrinks: bool) -> None:
        self.seed = seed
        self.seeds_left -= 1
        self.orders.send((seed, shrinks))

    def result(self) -> Found | None:
        """What the seed came to; None: the process has only just begun."""
        try:
            found: Found | None = self.orders.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            how = _described(self.process.exitcode)
            if not self.has_begun:
                raise MachineError(f"a process that was to play seeds ended {how}") from None
            self.seeds_left = 0
            return Found(
                seeds=1,
                wrong={self.seed: [f"the process that played it ended {how}"]},
                stories={self.seed: "A crash leaves no story; the seed alone crashes again.\n"},
            )
        self.has_begun = True
        return found

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.orders.close()


def _described(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"with {signal.Signals(-exit_code).name}"
    return f"with exit code {exit_code}"


def play_all(
    seeds: Iterator[int], play: Play, jobs: int, until: float, tell: Callable[[Found], None]
) -> Found:
    """Plays the seeds in so many processes; begins no more once the clock is at `until`.

    Args:
        seeds: In the order in which they begin.
        play: What a process does with a seed.
        jobs: How many processes there are.
        until: On the clock `time.monotonic`.
        tell: Called after each seed with what has been found so far.
    """
    found = Found()
    workers: dict[object, _Worker] = {}

    def go_on(worker: _Worker | None) -> None:
        seed = next(seeds, None) if time.monotonic() < until else None
        if worker is not None and (seed is None or worker.seeds_left == 0):
            worker.end()
            worker = None
        if seed is not None:
            worker = worker or _Worker(play)
            workers[worker.orders] = worker
            worker.play(seed, len(found.stories) < MOST_STORIES)

    try:
        for _ in range(jobs):
            go_on(None)
        while workers:
            for orders in wait([worker.orders for worker in workers.values()]):
                result = workers[orders].result()
                if result is None:
                    continue
                found.add(result)
                tell(found)
                go_on(workers.pop(orders))
    finally:
        for worker in workers.values():
            worker.end()
    return found
