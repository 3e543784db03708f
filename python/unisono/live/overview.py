"""Where each rank of a running job is: its last calls, whom it waits for, and the verdict."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from unisono.doctor import Diagnosis, diagnose
from unisono.doctor.job import Job
from unisono.live.parts import Heard, hear
from unisono.live.sockets import Answer
from unisono.records.parts import ENDED, SILENCES, State

__all__ = ["Communicator", "JobView", "Line", "Overview", "Place"]

_MOST_WAITS = 3


@dataclass
class Place:
    """A rank in a communicator. Numbers are of the communicator's collectives; -1: none is known.

    Attributes:
        rank: In the job, such as "rank 3".
        enqueued: The last call that it made.
        started: The last that was seen to begin; calls on GPUs are not before they have ended.
        completed: The last that has ended.
        call: The first one that is under way.
        seconds: For how long that has been under way.
        waits_for: Ranks of the job, and what it waits for of each.
        silence: Why it said nothing.
    """

    rank: str
    enqueued: int = -1
    started: int = -1
    completed: int = -1
    call: str = ""
    seconds: float = 0.0
    waits_for: dict[str, str] = field(default_factory=dict)
    silence: str = ""

    def state(self) -> tuple[Any, ...]:
        """Equal for ranks that are at the same place."""
        return (self.enqueued, self.started, self.completed, self.call,
                tuple(self.waits_for.items()), self.silence)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """Ranks that are at the same place, as a table shows them."""

    ranks: str
    enqueued: str
    started: str
    completed: str
    under_way: str
    waits_for: str


@dataclass
class Communicator:
    """A communicator of a job, and its ranks by their place in it."""

    name: str
    size: int
    places: list[Place]

    @property
    def is_busy(self) -> bool:
        """Whether calls are under way, or a rank says nothing."""
        return any(place.call or place.waits_for or place.silence for place in self.places)

    def lines(self) -> list[Line]:
        """One for ranks that are at the same place."""
        ordered = sorted(self.places, key=lambda one: repr(one.state()))
        return [_line(list(same)) for _, same in groupby(ordered, key=Place.state)]


@dataclass
class JobView:
    """A job.

    Attributes:
        elsewhere: Ranks on other hosts, whom no rank here could ask.
    """

    identifier: str
    size: int
    answered: int
    elsewhere: int
    silent: dict[int, str]
    processes: dict[int, int]
    communicators: list[Communicator]
    diagnosis: Diagnosis

    def paragraph(self) -> str:
        """What is going on."""
        told = [self.diagnosis.paragraph]
        told += [f"Rank {rank} {why}." for rank, why in list(self.silent.items())[:8]
                 if f"rank {rank}" not in self.diagnosis.ranks]  # fmt: skip
        if self.elsewhere:
            told.append(f"{self.elsewhere} of its {self.size} ranks are on other hosts, and no "
                        "rank here could ask them: see --hosts.")  # fmt: skip
        return " ".join(told)


def _line(places: Sequence[Place]) -> Line:
    one = places[0]
    seconds = max(place.seconds for place in places)
    enqueued, started, completed = (
        str(number) if number >= 0 else "-" for number in (one.enqueued, one.started, one.completed)
    )
    waits = [f"{whom}: {what}" for whom, what in one.waits_for.items()]
    return Line(
        _spans([place.rank for place in places]), enqueued, started, completed,
        f"{one.call} ({seconds:.1f} s)" if one.call and seconds else one.call,
        one.silence or "; ".join(waits[:_MOST_WAITS]),
    )  # fmt: skip


def _spans(labels: Sequence[str]) -> str:
    """Such as "0-6, 8-15"."""
    names = [one.removeprefix("rank ") for one in labels]
    numbers = sorted(int(one) for one in names if one.isdecimal())
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans]
    return ", ".join([*shown, *(one for one in names if not one.isdecimal())])


class Overview:
    """What the ranks on this host say of their jobs."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.jobs = [_view(one) for one in hear(answers)]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "format": "unisono-ras", "version": 1,
            "jobs": [
                {
                    "job": job.identifier, "ranks": job.size, "answered": job.answered,
                    "elsewhere": job.elsewhere,
                    "silent": {str(rank): why for rank, why in job.silent.items()},
                    "processes": {str(rank): one for rank, one in job.processes.items()},
                    "verdict": job.diagnosis.verdict, "confidence": job.diagnosis.confidence,
                    "blamed": job.diagnosis.ranks, "paragraph": job.paragraph(),
                    "communicators": [
                        {**asdict(one), "lines": [asdict(line) for line in one.lines()]}
                        for one in job.communicators
                    ],
                }
                for job in self.jobs
            ],
        }  # fmt: skip


def _view(heard: Heard) -> JobView:
    # Those with calls under way come first.
    communicators = sorted(_communicators(heard.job, _now(heard)), key=lambda one: not one.is_busy)
    return JobView(
        heard.identifier, heard.size, len(heard.here) - len(heard.silent),
        max(heard.size - len(heard.here), 0), heard.silent, heard.processes,
        communicators, diagnose(heard.job),
    )  # fmt: skip


def _now(heard: Heard) -> dict[str, int]:
    """By a rank's label, the wall clock at its answer."""
    return {one.label: one.written_ns for one in heard.job.processes}


def _communicators(job: Job, now: dict[str, int]) -> list[Communicator]:
    silence = {process: hint.text for process, hint, _ in job.hints
               if hint.kind in SILENCES}  # fmt: skip
    made: dict[tuple[int, int], Place] = {}
    for index, group in enumerate(job.groups):
        for process in group.members:
            made[process, index] = Place(job.label(process), silence=silence.get(process, ""))
    calls = job.calls
    for key, rows in _by_owner(job):
        _fill(job, made[key], rows, now)
    for process, hint, at in job.hints:
        if hint.kind == "waiting" and at >= 0:
            members = job.groups[at].members
            known = 0 <= hint.peer < len(members)
            whom = job.label(members[hint.peer]) if known else "any rank"
            made[process, at].waits_for[whom] = hint.text
    for row in map(int, np.flatnonzero((calls["peer"] >= 0) & (calls["state"] < ENDED))):
        at, process = int(calls["group"][row]), int(calls["process"][row])
        place, peer = made[process, at], int(calls["peer"][row])
        whom = job.label(job.groups[at].members[peer])
        place.waits_for.setdefault(whom, f"{job.kinds[calls['kind'][row]]} of "
                                         f"{int(calls['size'][row])} bytes")  # fmt: skip
    return [
        Communicator(group.name, group.size, [made[process, index] for process in group.members])
        for index, group in enumerate(job.groups)
    ]


def _by_owner(job: Job) -> list[tuple[tuple[int, int], list[int]]]:
    """The collectives of each process in each group, in the order of their numbers."""
    calls = job.calls
    rows = np.flatnonzero(calls["number"] >= 0)
    order = np.lexsort((calls["number"][rows], calls["group"][rows], calls["process"][rows]))

    def owner(row: int) -> tuple[int, int]:
        return int(calls["process"][row]), int(calls["group"][row])

    return [(key, list(mine)) for key, mine in groupby(map(int, rows[order]), owner)]


def _fill(job: Job, place: Place, rows: list[int], now: dict[str, int]) -> None:
    calls = job.calls
    is_open = [row for row in rows if calls["state"][row] < ENDED]
    ended = [row for row in rows if calls["state"][row] == ENDED]
    begun = [row for row in rows if calls["started"][row] > 0 or calls["state"][row] == ENDED]
    place.enqueued = int(calls["number"][rows[-1]])
    place.completed = int(calls["number"][ended[-1]]) if ended else -1
    place.started = int(calls["number"][begun[-1]]) if begun else -1
    shown = is_open or [row for row in rows if calls["state"][row] == int(State.failed)]
    if not shown:
        return
    row = shown[0]
    kind, size = job.kinds[calls["kind"][row]], int(calls["size"][row])
    place.call = f"{kind}, {size} bytes" + ("" if is_open else ", failed")
    if is_open and calls["created"][row] and now[place.rank]:
        place.seconds = max(now[place.rank] - int(calls["created"][row]), 0) / 1e9
