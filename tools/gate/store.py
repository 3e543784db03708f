"""What a gate has measured, in a file that it goes on from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

BEFORE, AFTER = "before", "after"
# A part that failed so often is left out, unless it is named.
TRIES = 2


@dataclass(frozen=True)
class Run:
    """One run of one part by one build.

    Attributes:
        build: "before" or "after".
        values: Times or sizes by case; less is better.
        nccl: What NCCL took in the same run, by case.
        failed: Why there are no values; empty if there are.
    """

    part: str
    turn: int
    build: str
    seconds: float
    values: Mapping[str, float] = field(default_factory=dict)
    nccl: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""


class Store:
    """The runs of a folder, one JSON object a line of its file `runs.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "runs.jsonl"
        self.runs: list[Run] = []
        # A line that was cut off when the gate was killed is measured again.
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            try:
                self.runs.append(Run(**json.loads(line)))
            except (ValueError, TypeError):
                continue

    def add(self, run: Run) -> None:
        """Keeps a run at once."""
        self.runs.append(run)
        # A line that was cut off has no end.
        text = self._path.read_text() if self._path.exists() else ""
        with self._path.open("a") as file:
            file.write("\n" * (text != "" and not text.endswith("\n")))
            file.write(json.dumps(asdict(run)) + "\n")

    def done(self, part: str, build: str) -> dict[int, Run]:
        """The runs of a part by a build that have values, by turn."""
        found = (run for run in self.runs if (run.part, run.build) == (part, build))
        return {run.turn: run for run in found if not run.failed}

    def forget_half_turns(self, part: str) -> None:
        """Leaves out runs of turns that one build has run: they may be of another machine."""
        before, after = self.done(part, BEFORE), self.done(part, AFTER)
        halves = before.keys() ^ after.keys()
        self.runs = [
            run for run in self.runs if run.part != part or run.failed or run.turn not in halves
        ]

    def failures(self, part: str) -> list[Run]:
        """The runs of a part that failed and were not made good since."""
        return [
            run
            for run in self.runs
            if run.part == part and run.failed and run.turn not in self.done(part, run.build)
        ]

    def pairs(self, part: str) -> tuple[list[Run], list[Run]]:
        """The runs of both builds, of the turns in which both have values."""
        before, after = self.done(part, BEFORE), self.done(part, AFTER)
        turns = sorted(before.keys() & after.keys())
        return [before[turn] for turn in turns], [after[turn] for turn in turns]

    def expected_seconds(self, part: str) -> float:
        """The longest that a run of a part took; 0 before the first."""
        return max((run.seconds for run in self.runs if run.part == part), default=0.0)


def missing(
    store: Store, part: str, turns: int, order: Sequence[Sequence[str]]
) -> list[tuple[int, str]]:
    """Turns and builds that are still to be run, in their order.

    Args:
        order: The builds of turn t, in the order in which they run, at t modulo its length.
    """
    return [
        (turn, build)
        for turn in range(turns)
        for build in order[turn % len(order)]
        if turn not in store.done(part, build)
    ]
