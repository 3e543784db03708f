"""Workloads whose communication takes what NCCL's model predicts.

A collective begins once all ranks of its group have come to it, and a message once both ends have;
they end so much later as they take alone. Tasks of different streams do not slow each other down.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from unisono.errors import MisuseError
from unisono.simulate import nccl
from unisono.simulate.nccl_times import End, Times
from unisono.simulate.workload import SimulatedWorkload, Task, TaskTime, Workload, summed_up

_Test = Callable[["_Event"], bool]
_ENDS: tuple[End, ...] = ("time", "low", "high")
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")


@dataclass(frozen=True)
class _Meeting:
    """A collective or a message: who must come, and how long it takes then."""

    needed: int
    took_us: float


@dataclass
class _Event:
    """Tasks that begin and end together: one task, or all of a meeting.

    Attributes:
        waits: Tasks that must end before, as far as they have not.
        began: When the last of them has ended.
    """

    took_us: float
    needed: int
    members: list[int] = field(default_factory=list)
    waits: int = 0
    began: float = 0.0


def simulate_workload_nccl(
    machine: nccl.MachineFile, workload: Workload, *, shown_rank: int = 0
) -> SimulatedWorkload:
    """Runs a workload on NCCL's model; its ranks fill one node after another.

    Args:
        machine: Where.
        workload: What.
        shown_rank: Whose tasks the result lists.

    Returns:
        Its times, with the ends of an interval in which every call is as fast, or as slow, as
        NCCL's model allows. There are no messages of algorithms to count.

    Raises:
        MisuseError: The machine cannot run it, ranks of a group call different collectives, or
            wait for each other.
    """
    times, low, high = (Times(machine, end) for end in _ENDS)
    graph = _Graph(workload, times, shown_rank)
    done = graph.result()
    ends = [_Graph(workload, end, shown_rank).result().time_us for end in (low, high)]
    return replace(done, low_us=ends[0], high_us=ends[1])


def can_run_on_nccl(workload: Workload) -> bool:
    """Whether NCCL ran a recorded workload, and NCCL's model has all of its collectives."""
    return workload.is_recorded_of_nccl and all(
        task.call is None or task.call.collective in _COLLECTIVES
        for one in workload.lists
        for task in one.tasks
    )


class _Graph:
    """A workload's tasks as events; ranks in the same state are one class."""

    def __init__(self, workload: Workload, times: Times, shown_rank: int) -> None:
        self.workload, self.times, self.shown = workload, times, shown_rank
        self.list_of = {
            rank: number for number, one in enumerate(workload.lists) for rank in one.ranks
        }
        outside = [rank for rank in self.list_of if not 0 <= rank < workload.ranks]
        if outside:
            raise MisuseError(
                f"{workload.name}: rank {min(outside)} has tasks; there are {workload.ranks} ranks"
            )
        self.groups = {
            name: {rank: tuple(group) for group in groups for rank in group}
            for name, groups in workload.communicators.items()
        }
        self.classes = self._classes()
        self.representatives: dict[int, int] = {}
        for rank in sorted(self.classes):
            self.representatives.setdefault(self.classes[rank], rank)
        self.events: list[_Event] = []
        self.event_of: dict[tuple[int, int, int], int] = {}
        self.served: dict[tuple[str, str, int, str], None] = {}

    def _classes(self) -> dict[int, int]:
        """Ranks that do the same with others that do: the coarsest stable partition."""
        absolute = any(
            task.kind in ("send", "recv") and not task.communicator
            for one in self.workload.lists
            for task in one.tasks
        )
        # Messages between two given ranks tell all ranks apart.
        found = {rank: rank if absolute else number for rank, number in self.list_of.items()}
        over: dict[str, set[int]] = {}
        for one in self.workload.lists:
            for task in one.tasks:
                if task.communicator:
                    offsets = over.setdefault(task.communicator, set())
                    offsets |= {task.peer, -task.peer} - {0}
        count = len(set(found.values()))
        while True:
            seen = {name: self._seen(name, offsets, found) for name, offsets in over.items()}
            names: dict[object, int] = {}
            found = {
                rank: names.setdefault((cls, *(one.get(rank) for one in seen.values())), len(names))
                for rank, cls in found.items()
            }
            if len(names) == count:
                return found
            count = len(names)

    def _seen(self, name: str, offsets: set[int], classes: dict[int, int]) -> dict[int, object]:
        """By rank: the classes and nodes of its group, and the classes of its messages' peers."""
        local = self.times.local
        seen: dict[int, object] = {}
        for group in set(self.groups.get(name, {}).values()):
            members = tuple(sorted({classes.get(one, -1) for one in group}))
            alike = (members, len(group), len({one // local for one in group}))
            for place, rank in enumerate(group):
                peers = (group[(place + offset) % len(group)] for offset in sorted(offsets))
                seen[rank] = (
                    alike, *((classes.get(one, -1), one // local == rank // local) for one in peers)
                )  # fmt: skip
        return seen

    def result(self) -> SimulatedWorkload:
        """Runs all events."""
        after = self._build()
        ended = self._run(after)
        iterations = [0.0] * self.workload.iterations
        for (_, iteration, _), event in self.event_of.items():
            iterations[iteration] = max(iterations[iteration], ended[event])
        cls = self.classes.get(self.shown)
        tasks = []
        for number, one in enumerate(self.workload.lists):
            if cls is None or self.list_of.get(self.shown) != number:
                continue
            for iteration in range(self.workload.iterations):
                for place, task in enumerate(one.tasks):
                    event = self.event_of[cls, iteration, place]
                    began = self.events[event].began
                    tasks.append(
                        TaskTime(
                            task.name,
                            task.kind,
                            task.stream,
                            iteration,
                            began,
                            ended[event],
                            task.communicator,
                        )
                    )
        local = self.times.local
        return summed_up(
            self.workload,
            SimulatedWorkload(
                name=self.workload.name, ranks=self.workload.ranks,
                nodes=-(-self.workload.ranks // local), time_us=max(ended, default=0.0),
                iterations_us=iterations, compute_us=0.0, communication_us=0.0, exposed_us=0.0,
                messages=0, events=len(self.events),
                simulated_ranks=len(self.representatives), not_collapsed="",
                algorithms=list(self.served), tasks=tasks,
            ),
        )  # fmt: skip

    def _build(self) -> list[list[int]]:
        """Makes the events; returns what waits for each of them."""
        meetings: dict[object, int] = {}
        called: dict[object, object] = {}
        after: list[list[int]] = []
        for cls, rank in self.representatives.items():
            tasks = self.workload.lists[self.list_of[rank]].tasks
            counts: dict[object, int] = {}
            streams: dict[str, int] = {}
            for iteration in range(self.workload.iterations):
                for place, task in enumerate(tasks):
                    event = self._event(cls, rank, task, counts, meetings, called)
                    while len(after) < len(self.events):
                        after.append([])
                    self.events[event].needed -= 1
                    self.event_of[cls, iteration, place] = event
                    before = {self.event_of[cls, iteration, other] for other in task.after}
                    if task.stream in streams:
                        before.add(streams[task.stream])
                    streams[task.stream] = event
                    for one in before - {event}:
                        after[one].append(event)
                        self.events[event].waits += 1
        return after

    def _event(
        self, cls: int, rank: int, task: Task, counts: dict[object, int],
        meetings: dict[object, int], called: dict[object, object],
    ) -> int:  # fmt: skip
        if task.kind == "compute":
            self.events.append(_Event(task.duration_ns / 1e3, 1))
            return len(self.events) - 1
        key, meeting, call = self._meeting(cls, rank, task)
        number = counts[key] = counts.get(key, -1) + 1
        whole = (key[:-1] if task.kind != "collective" else key, number)
        if called.setdefault(whole, call) != call:
            raise MisuseError(
                f"{self.workload.name}: call {number} over '{task.communicator}' is {call} on rank "
                f"{rank} ({task.name}) and {called[whole]} on another rank of its group"
            )
        if whole not in meetings:
            self.events.append(_Event(meeting.took_us, meeting.needed))
            meetings[whole] = len(self.events) - 1
        return meetings[whole]

    def _meeting(
        self, cls: int, rank: int, task: Task
    ) -> tuple[tuple[object, ...], _Meeting, object]:
        """What identifies a meeting, its members and time, and what all of them must agree on."""
        local = self.times.local
        if task.communicator and rank not in self.groups.get(task.communicator, {}):
            raise MisuseError(
                f"{self.workload.name}: rank {rank} has a task ({task.name}) over "
                f"'{task.communicator}', and is in none of its groups"
            )
        if task.kind == "collective" and task.call is not None:
            call, group = task.call, self.groups[task.communicator][rank]
            if call.collective not in _COLLECTIVES:
                raise MisuseError(
                    f"{self.workload.name}: NCCL's model has no {call.collective}; it has "
                    f"{', '.join(_COLLECTIVES)}"
                )
            members = tuple(sorted({self.classes.get(one, -1) for one in group}))
            if -1 in members:
                missing = next(one for one in group if one not in self.classes)
                raise MisuseError(
                    f"{self.workload.name}: rank {missing} is in a group of '{task.communicator}', "
                    f"and has no {call.collective} ({task.name})"
                )
            nodes = len({one // local for one in group})
            what = (call.collective, call.size_bytes, len(group), nodes)
            took = self.times.us(*what) if len(group) > 1 else 0.0
            chosen = self.times.choice(*what) if len(group) > 1 else "none"
            served = (task.communicator, call.collective, call.size_bytes, chosen)
            self.served.setdefault(served)
            return (
                (task.communicator, members),
                _Meeting(len(members), took),
                (call.collective, call.size_bytes),
            )
        peer = self._peer(rank, task)
        offset = task.peer if task.communicator else 0
        ends = (cls, self.classes[peer], offset)
        sender, receiver, way = ends if task.kind == "send" else (ends[1], ends[0], -offset)
        key = ("message", task.communicator, sender, receiver, way, task.tag, task.kind)
        took = self.times.message_us(task.size_bytes, 1 if peer // local == rank // local else 2)
        return key, _Meeting(2, took), task.size_bytes

    def _peer(self, rank: int, task: Task) -> int:
        peer = task.peer
        if task.communicator:
            group = self.groups[task.communicator][rank]
            peer = group[(group.index(rank) + task.peer) % len(group)]
        if peer not in self.classes:
            raise MisuseError(
                f"{self.workload.name}: rank {rank} has a {task.kind} ({task.name}) with rank "
                f"{peer}, which has no tasks"
            )
        return peer

    def _run(self, after: Sequence[Sequence[int]]) -> list[float]:
        """When each event ends."""
        if any(event.needed > 0 for event in self.events):
            raise MisuseError(
                f"{self.workload.name}: {self._stuck(lambda event: event.needed > 0)}"
            )
        ready = deque(i for i, event in enumerate(self.events) if event.waits == 0)
        ended = [-1.0] * len(self.events)
        while ready:
            number = ready.popleft()
            event = self.events[number]
            ended[number] = event.began + event.took_us
            for other in after[number]:
                waiting = self.events[other]
                waiting.began = max(waiting.began, ended[number])
                waiting.waits -= 1
                if waiting.waits == 0:
                    ready.append(other)
        if -1.0 in ended:
            raise MisuseError(
                f"{self.workload.name}: {self._stuck(lambda event: event.waits > 0)}, as tasks "
                "wait for each other"
            )
        return ended

    def _stuck(self, is_meant: _Test) -> str:
        """The first task whose event is meant, in words."""
        cls, place = next(
            (cls, place)
            for (cls, _, place), number in self.event_of.items()
            if is_meant(self.events[number])
        )
        rank = self.representatives[cls]
        task = self.workload.lists[self.list_of[rank]].tasks[place]
        return f"rank {rank} waits in {task.kind} '{task.name}' for others that do not come"
