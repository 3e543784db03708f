"""GOAL schedules as workloads, which every model of the network and every report can take."""

import heapq
from typing import Any

from unisono import _unisono as native
from unisono.errors import MisuseError
from unisono.simulate.cluster import Cluster, with_numbers
from unisono.simulate.workload import (
    SimulatedWorkload,
    Task,
    TaskList,
    Workload,
    simulate_workload,
)

_ANY = 0xFFFFFFFF
_Operations = list[tuple[str, int, int, int, int, list[int], list[int]]]


def simulate_goal(
    cluster: Cluster, schedule: native.GoalSchedule, name: str, **options: Any
) -> SimulatedWorkload:
    """Simulates a schedule with any model of the network: its messages go through slots.

    Nothing is launched, so messages cost what Simple's cost without the launch. Options are those
    of `simulate_workload`.

    Raises:
        MisuseError: As `workload_of_goal`, or ranks wait for each other.
    """
    file = with_numbers(cluster.file, {"protocols.simple.launch": 0.0}, "GOAL launches nothing")
    return simulate_workload(Cluster(file), workload_of_goal(schedule, name), **options)


def workload_of_goal(schedule: native.GoalSchedule, name: str) -> Workload:
    """The workload of a schedule.

    An operation stands on the stream of one that it requires, if no other does, or on a stream of
    its own: what GOAL leaves unordered stays so. Calculations of one cpu that nothing orders may
    therefore overlap here, as they may not for `run_goal`.

    Raises:
        MisuseError: A receive takes messages of any rank or tag, or an operation waits for the
            start of another: workloads have neither.
    """
    made = Workload(name, schedule.ranks, message_channels=1)
    for rank in range(schedule.ranks):
        made.lists.append(_RankTasks(rank, schedule.operations_of(rank)).tasks())
    return made


class _RankTasks:
    def __init__(self, rank: int, operations: _Operations) -> None:
        self.rank = rank
        self.operations = operations
        self.made = TaskList([rank])
        self.places: dict[int, int] = {}  # of operations, among the tasks
        self.last: dict[str, int] = {}  # operations, by stream
        self.stream: dict[int, str] = {}

    def tasks(self) -> TaskList:
        for number in self.in_order():
            self.add(number)
        return self.made

    def in_order(self) -> list[int]:
        """Each operation after those that it requires, otherwise as they are numbered."""
        waits = [len(operation[5]) for operation in self.operations]
        waiters: list[list[int]] = [[] for _ in self.operations]
        for number, operation in enumerate(self.operations):
            if operation[6]:
                raise MisuseError(
                    f"rank {self.rank}, operation {number} waits for the start of another "
                    "(irequires), which workloads cannot; simulate it without other models"
                )
            for other in operation[5]:
                waiters[other].append(number)
        ready = [number for number, count in enumerate(waits) if count == 0]
        order = []
        while ready:
            number = heapq.heappop(ready)
            order.append(number)
            for waiter in waiters[number]:
                waits[waiter] -= 1
                if waits[waiter] == 0:
                    heapq.heappush(ready, waiter)
        return order

    def add(self, number: int) -> None:
        kind, size, peer, tag, cpu, required, _ = self.operations[number]
        before = next((one for one in required if self.last[self.stream[one]] == one), None)
        stream = self.stream[before] if before is not None else f"cpu {cpu}, {len(self.last)}"
        after = tuple(sorted(self.places[one] for one in required if one != before))
        if kind == "calc":
            place = self.made.compute(f"calc {size}", size, stream=stream, after=after)
        else:
            place = self.message(number, kind, size, peer, tag, stream, after)
        self.places[number] = place
        self.stream[number] = stream
        self.last[stream] = number

    def message(
        self, number: int, kind: str, size: int, peer: int, tag: int, stream: str,
        after: tuple[int, ...],
    ) -> int:  # fmt: skip
        if _ANY in (peer, tag):
            raise MisuseError(
                f"rank {self.rank}, operation {number} receives from any rank or with any tag, "
                "which workloads cannot; simulate it without other models"
            )
        is_send = kind == "send"
        return self.made.add(
            Task(
                "send" if is_send else "recv",
                f"{kind} {'to' if is_send else 'from'} {peer}",
                stream,
                after,
                peer=peer,
                # A message without bytes still orders its two ends.
                size_bytes=max(size, 1),
                tag=tag,
            )
        )
