"""Calls get their places in the order of their groups, whatever the order and numbers of a dump."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st
from unisono.doctor import Job
from unisono.doctor.match import SHIFT, Lanes
from unisono.records.parts import Claim, Columns, Part

GROUPS = 3
RANKS = 4
# Group and number; a message has none. The calls of a batch share a number.
CALLS = st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(-1, 5)), max_size=20)


def part(rank: int, calls: list[tuple[int, int]], file: str) -> Part:
    columns = Columns()
    for place, (group, number) in enumerate(calls):
        columns.add(group, "all_reduce" if number >= 0 else "send", number=number,
                    peer=-1 if number >= 0 else 0, times=(1 + place, 0, 0))  # fmt: skip
    claims = [Claim(f"g{one}", f"g{one}", RANKS, rank, tuple(range(RANKS)))
              for one in range(GROUPS)]  # fmt: skip
    return Part(file, "a", "1", ("world", rank), claims, columns.arrays(), [*columns.kinds],
                [*columns.types])  # fmt: skip


@given(st.lists(CALLS, min_size=RANKS, max_size=RANKS))
def test_slots_follow_numbers_and_tell_batches_apart(program: list[list[tuple[int, int]]]) -> None:
    job = Job([part(rank, calls, f"{rank}") for rank, calls in enumerate(program)])
    lanes = Lanes(job)
    row = 0
    seen: Counter[tuple[int, int, int]] = Counter()
    rows: dict[tuple[int, int], list[int]] = defaultdict(list)
    last: dict[tuple[int, int], int] = {}
    for process, calls in enumerate(program):
        for group, number in calls:
            slot = -1
            if number >= 0:
                slot = (number << SHIFT) + seen[process, group, number]
                seen[process, group, number] += 1
                rows[process, group].append(row)
                last[process, group] = max(slot, last.get((process, group), -1))
            assert lanes.slots[row] == slot
            row += 1
    assert lanes.last == last
    for group in range(GROUPS):
        of_group = [lanes.rows(process, group).tolist() for process in range(RANKS)]
        assert of_group == [rows[process, group] for process in range(RANKS)]
        assert lanes.of_group(group).tolist() == list(chain.from_iterable(of_group))


@given(st.lists(CALLS, min_size=RANKS, max_size=RANKS), st.integers(0, 1 << RANKS))
def test_files_of_one_process_become_one_range_in_the_order_of_time(
    program: list[list[tuple[int, int]]], halved: int
) -> None:
    """A process leaves one file, or one with every other of its calls and one with the rest."""
    whole, parts = [], []
    for rank, calls in enumerate(program):
        one = part(rank, calls, f"{rank}")
        whole.append(one)
        if halved >> rank & 1:
            for first in range(2):
                other = part(rank, calls, f"{rank}-{first}")
                other.format = "ab"[first]
                other.calls = {name: values[first::2] for name, values in other.calls.items()}
                parts.append(other)
        else:
            parts.append(part(rank, calls, f"{rank}"))
    one_each, several = Job(whole), Job(parts)
    assert several.rows == one_each.rows
    for name, values in one_each.calls.items():
        assert several.calls[name].tolist() == values.tolist(), name
