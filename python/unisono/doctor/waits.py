"""The graph of who waits for whom: calls under way, and the calls that keep their ranks busy."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unisono.doctor.job import Job
from unisono.doctor.match import SHIFT, Lanes
from unisono.records.parts import ENDED, State

__all__ = ["Node", "Waits"]

Array = np.ndarray[Any, Any]
_DIRECTIONS = {"send": "recv", "recv": "send", "point_to_point": "point_to_point"}


@dataclass
class Node:
    """A call that some rank has made and not ended.

    Attributes:
        slot: The place of a collective in its record; -1 for a message.
        rows: For each rank that made it, its row in the table of calls.
        absent: Ranks whose dumps show that they have not made it.
        unknown: Ranks whose dumps are missing.
        blockers: Calls that its ranks must end before, and the ranks that are busy with them.
    """

    group: int
    slot: int
    rows: dict[int, int]
    absent: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    blockers: dict[int, set[int]] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The collective's number in its group; -1 for a message."""
        return self.slot >> SHIFT if self.slot >= 0 else -1


class Waits:
    """The graph of a job.

    Attributes:
        slots: The slot of each call.
        nodes: Calls under way; edges are their `blockers`.
        last: By process and group, the last slot that the process has made.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._lanes = Lanes(job)
        self.slots, self.last = self._lanes.slots, self._lanes.last
        self.nodes: list[Node] = []
        # By process, its calls under way in the order that it made them: row and node.
        self.open: dict[int, list[tuple[int, int]]] = {}
        for key, number in job.last_enqueued.items():
            if number >= 0 and key[0] not in job.hidden:
                self.last[key] = max(self.last.get(key, -1), number << SHIFT)
        self._add_collectives()
        self._add_messages()
        for index, node in enumerate(self.nodes):
            self._find_blockers(index, node)

    def rows(self, process: int, group: int | None = None) -> Array:
        """The collectives of a process, or those in one group, in the order that it made them."""
        if group is not None:
            return self._lanes.rows(process, group)
        mine = self.all_rows(process)
        return mine[self.slots[mine] >= 0]

    def all_rows(self, process: int) -> Array:
        """The calls of a process, messages too, in the order that it made them."""
        rows = self.job.rows.get(process, range(0))
        return np.arange(rows.start, rows.stop)

    def earlier(self, group: int, slot: int, most: int) -> Array:
        """The collectives of a group, at most so many numbers before a slot."""
        rows = self._lanes.of_group(group)
        slots = self.slots[rows]
        return rows[(slots < slot) & (slots >= slot - (most << SHIFT))]

    def state(self, row: int) -> State:
        """The state of a call."""
        return State(int(self.job.calls["state"][row]))

    def _add_collectives(self) -> None:
        calls = self.job.calls
        is_open = np.flatnonzero((self.slots >= 0) & (calls["state"] != ENDED))
        # The first of each process and group: later ones wait for it.
        order = np.lexsort(
            (self.slots[is_open], calls["group"][is_open], calls["process"][is_open])
        )
        is_open = is_open[order]
        first = np.ones(len(is_open), bool)
        first[1:] = (np.diff(calls["process"][is_open]) != 0) | (
            np.diff(calls["group"][is_open]) != 0
        )
        wanted = {(int(calls["group"][row]), int(self.slots[row])) for row in is_open[first]}
        for group, slot in sorted(wanted):
            part = self._lanes.of_group(group)
            rows = part[self.slots[part] == slot]
            node = Node(group, slot, {int(calls["process"][row]): int(row) for row in rows})
            self._find_others(node)
            self._add(node)

    def _find_others(self, node: Node) -> None:
        group = self.job.groups[node.group]
        for process, covered in zip(group.members, group.covered, strict=True):
            if process in node.rows:
                continue
            if not covered:
                node.unknown.append(process)
            elif self.last.get((process, node.group), -1) < node.slot:
                node.absent.append(process)

    def _add_messages(self) -> None:
        calls = self.job.calls
        kinds = self.job.kinds
        is_message = (calls["peer"] >= 0) & (calls["state"] != ENDED)
        waiting: dict[tuple[int, int, str, int], list[int]] = {}
        for row in map(int, np.flatnonzero(is_message)):
            kind, peer = kinds[calls["kind"][row]], self._peer(row)
            if kind in _DIRECTIONS and peer is not None:
                key = (int(calls["group"][row]), int(calls["process"][row]), kind, peer)
                waiting.setdefault(key, []).append(row)
        for (group, process, kind, peer), rows in sorted(waiting.items()):
            answers = waiting.get((group, peer, _DIRECTIONS[kind], process), [])
            # One node for the first message of each pair and direction: later ones wait for it.
            if answers and (process, kind) > (peer, _DIRECTIONS[kind]):
                continue
            node = Node(group, -1, {process: rows[0]})
            if answers:
                node.rows[peer] = answers[0]
            elif self._is_covered(group, peer):
                node.absent.append(peer)
            else:
                node.unknown.append(peer)
            self._add(node)

    def _peer(self, row: int) -> int | None:
        group = self.job.groups[int(self.job.calls["group"][row])]
        place = int(self.job.calls["peer"][row])
        return group.members[place] if place < group.size else None

    def _is_covered(self, group: int, process: int) -> bool:
        of = self.job.groups[group]
        return of.covered[of.members.index(process)]

    def _add(self, node: Node) -> None:
        for process, row in node.rows.items():
            if self.state(row) is not State.ended:
                self.open.setdefault(process, []).append((row, len(self.nodes)))
                self.open[process].sort()
        self.nodes.append(node)

    def first_open(self, process: int) -> int | None:
        """The first call that keeps a process busy, as an index of `nodes`."""
        mine = self.open.get(process)
        return mine[0][1] if mine else None

    def _find_blockers(self, index: int, node: Node) -> None:
        """A rank that has not made the call, or not begun it, is busy with an earlier one."""
        for process in node.absent:
            first = self.first_open(process)
            if first is not None and first != index:
                node.blockers.setdefault(first, set()).add(process)
        for process, row in node.rows.items():
            state = self.state(row)
            first = self.first_open(process)
            if state is not State.scheduled or first is None or first == index:
                continue
            if self.open[process][0][0] < row:
                node.blockers.setdefault(first, set()).add(process)

    def reached_from(self, index: int) -> set[int]:
        """The calls that a call waits for, and itself."""
        seen, ahead = {index}, [index]
        while ahead:
            for one in self.nodes[ahead.pop()].blockers:
                if one not in seen:
                    seen.add(one)
                    ahead.append(one)
        return seen

    def cycle(self, index: int) -> list[int]:
        """Calls that wait for each other, beginning from one of them; empty if there are none."""
        paths: dict[int, list[int]] = {index: [index]}
        ahead = [index]
        for one in _growing(ahead):
            for other in sorted(self.nodes[one].blockers):
                if other == index:
                    return paths[one]
                if other not in paths:
                    paths[other] = [*paths[one], other]
                    ahead.append(other)
        return []


def _growing(items: list[int]) -> Iterator[int]:
    place = 0
    while place < len(items):
        yield items[place]
        place += 1
