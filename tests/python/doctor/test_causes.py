"""Several culprits at once, and ranks that their partners have left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from python.doctor.flights import Flight, Made, steps, write_flights
from unisono.doctor import Diagnosis, diagnose, read_files

WORLD = {"world": [0, 1, 2, 3]}
HALVES = {"even": [0, 2, 4, 6], "odd": [1, 3, 5, 7], "world": list(range(8))}


def examine(folder: Path, groups: dict[str, list[int]], flights: list[Flight]) -> Diagnosis:
    return diagnose(read_files([write_flights(folder, groups, flights)]))


def behind(before: int, late: Flight) -> list[Flight]:
    """Ranks 0, 1 and 3 are in the call after the one that the late rank is in."""
    others = [*steps("world", before), Made("world", before + 1, 20, 20.01),
              Made("world", before + 2, 21)]  # fmt: skip
    return [late if rank == 2 else Flight([*others]) for rank in range(4)]


@pytest.mark.parametrize("only_open", [False, True])
def test_a_rank_whose_partners_are_all_past_a_call_has_not_ended_it(
    tmp_path: Path, only_open: bool
) -> None:
    flights = behind(9, Flight([*steps("world", 9), Made("world", 10, 20)]))
    if only_open:
        for one in flights:
            one.calls = [made for made in one.calls if not made.ended_s]
    found = examine(tmp_path, WORLD, flights)
    assert (found.verdict, found.ranks) == ("network", ["rank 2"]), found.paragraph
    assert "all others are past it: ranks 0, 1 and 3" in found.evidence[0]


@pytest.mark.parametrize("ahead_s", [-3000.0, 0.0, 3000.0])
def test_a_dump_that_was_written_before_the_others_went_on_shows_nothing(
    tmp_path: Path, ahead_s: float
) -> None:
    """Whatever the clocks of the hosts: they are told apart by the calls before."""
    calls = [*steps("world", 9), Made("world", 10, 20)]
    flights = behind(9, Flight(calls, taken_s=20.005, ahead_s=ahead_s))
    found = examine(tmp_path / "early", WORLD, flights)
    assert not found.ranks, found.paragraph
    late = behind(9, Flight(calls, ahead_s=ahead_s))
    found = examine(tmp_path / "late", WORLD, late)
    assert found.ranks == ["rank 2"], found.paragraph


def test_without_a_common_call_a_clock_may_be_a_minute_off(tmp_path: Path) -> None:
    flights = behind(9, Flight([Made("world", 10, 20)], taken_s=45))
    for one in flights:
        one.calls = [made for made in one.calls if not made.ended_s]
    found = examine(tmp_path, WORLD, flights)
    assert found.verdict == "undecided"
    assert "before the others went on" in " ".join(found.evidence)


def test_all_independent_causes_are_named_and_no_rank_that_waits(tmp_path: Path) -> None:
    """Rank 2 has not made a call of its group, rank 5 made another one in its own."""
    flights = []
    for rank in range(8):
        group = "odd" if rank % 2 else "even"
        calls = [*steps("world", 9), *steps(group, 9)]
        if rank != 2:
            calls.append(Made(group, 10, 20, elements=32 if rank == 5 else 64))
        flights.append(Flight(calls))
    found = examine(tmp_path, HALVES, flights)
    assert (found.verdict, found.ranks, found.difference) == ("other call", ["rank 5"], "size")
    [other] = found.others
    assert (other.verdict, other.ranks) == ("stuck outside communication", ["rank 2"])
    assert 0 < other.confidence <= 1
    assert other.text.startswith("Independent of it, a call that is stuck is all_reduce, call 10")
    assert found.document()["others"][0]["ranks"] == ["rank 2"]


def test_what_follows_from_a_cause_is_none(tmp_path: Path) -> None:
    """Rank 2 stands; the odd ranks wait in the call of all ranks for the even ones."""
    flights = []
    for rank in range(8):
        calls = [*steps("world", 9), *steps("odd" if rank % 2 else "even", 9)]
        if rank % 2:
            calls += [Made("odd", 10, 20, 20.01), Made("world", 10, 21)]
        elif rank != 2:
            calls.append(Made("even", 10, 20))
        flights.append(Flight(calls))
    found = examine(tmp_path, HALVES, flights)
    assert found.ranks == ["rank 2"]
    assert not found.others
