"""What chunks hold while a plan runs: every value, what it was made of, and who holds it when.

Values are followed step by step in the order of the plan's logical times. A value is the sum of
input chunks; its makers are the values that it was copied or added up from.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from unisono.plans import Location, Plan, Schedule, Step, ThreadBlock

__all__ = ["Contents", "Value", "follow", "in_words"]

# Input chunks: (rank, chunk).
Sum = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Value:
    """What a chunk of a rank holds from a moment on.

    Attributes:
        rank: The rank that holds it.
        time: From when on: the end of the step that stored it; 0 for what was given.
        of: The input chunks whose sum it is; empty for what nobody gave.
        makers: Numbers of the values that it was made of.
        message: The number of the message that brought it, in the schedule; -1 if none did.
    """

    rank: int
    time: int
    of: Sum
    makers: tuple[int, ...] = ()
    message: int = -1


@dataclass
class Contents:
    """All values of a plan.

    Attributes:
        values: By number.
        stored: By step of the schedule, the values that it stored, chunk by chunk.
        sent: By message of the schedule, the values that it carried.
    """

    values: list[Value] = field(default_factory=list)
    stored: list[list[int]] = field(default_factory=list)
    sent: list[list[int]] = field(default_factory=list)
    _words: dict[Sum, str] = field(default_factory=dict)

    def words(self, number: int) -> str:
        """A value, for people. Equal sums, as all ranks hold in the end, are worded once."""
        of = self.values[number].of
        found = self._words.get(of)
        if found is None:
            found = self._words[of] = in_words(of)
        return found

    def largest(self, family: Iterable[int]) -> str:
        """Of some values, the sum of the most input chunks, for people."""
        return self.words(max(family, key=lambda number: len(self.values[number].of)))

    def families(self) -> list[list[int]]:
        """Values that have anything to do with each other: what a user calls one chunk's way."""
        root = list(range(len(self.values)))

        def find(number: int) -> int:
            while root[number] != number:
                root[number] = root[root[number]]
                number = root[number]
            return number

        for number, value in enumerate(self.values):
            for maker in value.makers:
                root[find(number)] = find(maker)
        found: dict[int, list[int]] = {}
        for number in range(len(self.values)):
            found.setdefault(find(number), []).append(number)
        moved = [family for family in found.values() if len(family) > 1]
        return sorted(moved, key=lambda family: min(self._first(n) for n in family))

    def _first(self, number: int) -> tuple[tuple[int, int], ...]:
        """Of the input chunks that a value is the sum of, the first; nothing for nothing."""
        of = self.values[number].of
        return (min(of),) if of else ()


def in_words(of: Sum) -> str:
    """A value, for people: "input[2] of ranks 0-3, 5"."""
    if not of:
        return "nothing"
    by_chunk: dict[int, list[int]] = {}
    for rank, chunk in sorted(of):
        by_chunk.setdefault(chunk, []).append(rank)
    return " + ".join(
        f"input[{chunk}] of rank{'s' if len(ranks) > 1 else ''} {_ranges(ranks)}"
        for chunk, ranks in by_chunk.items()
    )


def follow(plan: Plan, schedule: Schedule, on_step: Callable[[], None] = lambda: None) -> Contents:
    """The values of a plan, in the order in which they come to be.

    Args:
        plan: The plan.
        schedule: When its steps run.
        on_step: Called after each step.
    """
    return _Follower(plan, schedule, on_step).run()


class _Follower:
    def __init__(self, plan: Plan, schedule: Schedule, on_step: Callable[[], None]) -> None:
        self._plan, self._timed, self._on_step = plan, schedule.steps, on_step
        self._contents = Contents(
            stored=[[] for _ in schedule.steps], sent=[[] for _ in schedule.messages]
        )
        self._memory: dict[tuple[int, str, int], int] = {}
        self._given = {
            (rank, *plan.storage(rank, "input", chunk)): (rank, chunk)
            for rank in range(plan.ranks)
            for chunk in range(plan.input_blocks(rank) * plan.chunks_per_block)
        }
        self._into = {message.receiver: i for i, message in enumerate(schedule.messages)}
        self._out = {message.sender: i for i, message in enumerate(schedule.messages)}

    def run(self) -> Contents:
        steps = dict(self._steps())
        for index in sorted(steps, key=lambda index: (self._timed[index].start, index)):
            block, step = steps[index]
            self._do(index, block, step)
            self._on_step()
        return self._contents

    def _steps(self) -> Iterator[tuple[int, tuple[ThreadBlock, Step]]]:
        """By number in the schedule, which is ordered by rank, thread block and number."""
        index = 0
        for rank in range(self._plan.ranks):
            for block in self._plan.thread_blocks(rank):
                for step in block.steps:
                    yield index, (block, step)
                    index += 1

    def _add(self, value: Value) -> int:
        self._contents.values.append(value)
        return len(self._contents.values) - 1

    def _read(self, rank: int, buffer: str, chunk: int) -> int:
        """The value there; an initial value is created when it is first read."""
        place = (rank, *self._plan.storage(rank, buffer, chunk))
        if place not in self._memory:
            given = {self._given[place]} if place in self._given else set()
            self._memory[place] = self._add(Value(rank, 0, frozenset(given)))
        return self._memory[place]

    def _read_all(self, rank: int, place: Location | None, count: int) -> list[int]:
        if place is None:
            return []
        return [self._read(rank, place.buffer, place.chunk + i) for i in range(count)]

    def _do(self, index: int, block: ThreadBlock, step: Step) -> None:
        timed = self._timed[index]
        message = self._into.get(index, -1)
        received = self._contents.sent[message] if message >= 0 and step.receives else []
        is_token = step.operation in ("signal", "wait", "barrier")
        sources = [] if is_token else self._sources(timed.rank, step)
        lanes = zip(*(lane for lane in (received, *sources) if lane), strict=True)
        made = [] if is_token else [
            self._make(timed.rank, timed.end, makers, message if received else -1)
            for makers in lanes
        ]  # fmt: skip
        if step.destination is not None:
            rank = block.send_peer if step.operation == "put" else timed.rank
            for i, value in enumerate(made):
                place = self._plan.storage(
                    rank, step.destination.buffer, step.destination.chunk + i
                )
                self._memory[rank, *place] = value
            self._contents.stored[index] = made
        if step.sends and index in self._out:
            self._contents.sent[self._out[index]] = made

    def _sources(self, rank: int, step: Step) -> list[list[int]]:
        """What the step reads from memory, an operand after the other."""
        if step.operation == "read_reduce":
            own = self._read_all(rank, step.destination, step.count)
            return [own, *(self._read_all(peer, step.source, step.count) for peer in step.peers)]
        operands = [self._read_all(rank, step.source, step.count)]
        if step.operation == "reduce":
            operands.append(self._read_all(rank, step.destination, step.count))
        return operands

    def _make(self, rank: int, time: int, makers: Sequence[int], message: int) -> int:
        values = self._contents.values
        if len(makers) == 1 and message < 0 and values[makers[0]].rank == rank:
            # Only sent on, or copied in place: what it is made of says all.
            return makers[0]
        parts = [values[maker].of for maker in makers]
        of = parts[0] if len(parts) == 1 else frozenset().union(*parts)
        return self._add(Value(rank, time, of, tuple(makers), message))


def _ranges(numbers: Iterable[int]) -> str:
    """ "0-3, 5"."""
    parts: list[str] = []
    waiting = deque(numbers)
    while waiting:
        first = last = waiting.popleft()
        while waiting and waiting[0] == last + 1:
            last = waiting.popleft()
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ", ".join(parts)
