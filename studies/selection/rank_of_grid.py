"""One rank of the selection's grid: `python studies/selection/rank_of_grid.py JOB`; see grid.py.

JOB is a folder with job.json: points, each a list of cases of one collective and count, and which
of them the table chooses. Rank 0 writes to `times` there, for each point one JSON line: a list of
times in us for each case, of the slowest rank, one for each turn.

All plans of a point share its buffers and take turns, first each of them twice, then those that
were near the best in many rounds. What the machine does meanwhile so touches all alike.

A turn is a row of calls. A broadcast's root need not wait for the others: of calls in a row only
the first takes as long as one alone. So each rank is the root twice, and after it that which its
last call reaches last by a chain: every second call begins when the one before has ended.
"""

import json
import os
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import unisono
from unisono import _unisono as native
from unisono.bench.cases import Case, read_cases
from unisono.bench.measure import Buffers

# Of the best of a point's first look: plans that are timed again.
CONTENDERS = 1.7
MIN_CALLS, MAX_CALLS = 4, 1000


class Timer:
    """Turns of calls on one communicator; every rank learns the same times."""

    def __init__(self, communicator: unisono.Communicator, turn_seconds: float) -> None:
        self._communicator, self._turn_seconds = communicator, turn_seconds

    def wrong(self, buffers: Buffers, call: native.Call) -> int:
        """Elements that a call leaves wrong, on all ranks together."""
        buffers.prepare()
        self._communicator.barrier()
        self._communicator._native.run(call)
        found = np.array([buffers.wrong()])
        self._communicator.all_reduce(found, out=found)
        return int(found[0])

    def calls_of(self, case: Case, buffers: Buffers) -> list[native.Call]:
        """Those of a turn, again and again."""
        if case.collective != "broadcast":
            return [buffers.call_by(case.algorithm, case.protocol)]
        roots = [(case.root - turn) % case.ranks for turn in range(case.ranks)]
        made = [buffers.call_by(case.algorithm, case.protocol, root) for root in roots]
        return [call for call in made for _ in range(2)]

    def once(self, row: list[native.Call], calls: int) -> float:
        """Seconds of a call, of the slowest rank, in a row of so many."""
        run = self._communicator._native.run
        self._communicator.barrier()
        started = time.perf_counter()
        for call in islice(cycle(row), calls):
            run(call)
        seconds = np.array([(time.perf_counter() - started) / calls])
        self._communicator.all_reduce(seconds, "max", out=seconds)
        return float(seconds[0])

    def calls_in_a_turn(self, row: list[native.Call]) -> int:
        """Few first, so that what only a first call does is not counted."""
        self.once(row, len(row))
        took = self.once(row, 2)
        if took < self._turn_seconds / 10:
            took = self.once(row, 10)
        return min(MAX_CALLS, max(MIN_CALLS, round(self._turn_seconds / max(took, 1e-8))))

    def turn(self, row: list[native.Call], calls: int) -> float:
        """Microseconds of a call in a row; one is made before, for the caches."""
        self._communicator._native.run(row[0])
        return 1e6 * self.once(row, calls)


def time_point(
    cases: list[Case], chosen: int, buffers: Buffers, timer: Timer, rounds: int
) -> list[list[float]]:
    """Checks and times the plans of a point."""
    rows = [timer.calls_of(case, buffers) for case in cases]
    wrong = [timer.wrong(buffers, row[0]) for row in rows]
    if any(wrong):
        raise SystemExit(f"{max(wrong)} wrong elements by {cases[wrong.index(max(wrong))]}")
    counts = [timer.calls_in_a_turn(row) for row in rows]
    times: list[list[float]] = [[] for _ in cases]

    def in_turn(some: list[int]) -> None:
        for index in some:
            times[index].append(timer.turn(rows[index], counts[index]))

    everyone = list(range(len(cases)))
    in_turn(everyone)
    in_turn(everyone[::-1])
    limit = CONTENDERS * min(min(took) for took in times)
    close = [index for index in everyone if min(times[index]) <= limit or index == chosen]
    for turn in range(rounds):
        in_turn(close[:: 1 if turn % 2 else -1])
    return times


def main(folder: Path) -> None:
    """Times all points of a job."""
    job: dict[str, Any] = json.loads((folder / "job.json").read_text())
    with unisono.init() as communicator:
        results = (folder / "times").open("w") if communicator.rank == 0 else None
        timer = Timer(communicator, job["turn_seconds"])
        for point, chosen in zip(job["points"], job["chosen"], strict=True):
            cases = read_cases(point)
            buffers = Buffers(cases[0], communicator, job["seed"])
            times = time_point(cases, chosen, buffers, timer, job["rounds"])
            if results is not None:
                print(json.dumps(times), file=results, flush=True)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except unisono.Error as error:
        sys.exit(f"rank {os.environ.get('UNISONO_RANK', '?')}: {error}")
