"""What tools/fault_soak calls right and wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "faults"))

from injections import KINDS, Injection, Kind, draw  # noqa: E402
from job import Outcome, judge  # noqa: E402

BEGAN = 1000.0


def kind_of(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def injection(name: str, victims: tuple[int, ...] = (1,), ranks: int = 3) -> Injection:
    return Injection(7, kind_of(name), ranks, 1, "", victims, 0.0, "all_reduce", "ring", 1)


def failed(peer: int, after: float = 0.5, kind: int = 3) -> Outcome:
    return Outcome("joined\nfailed", 3, kind, peer, False, BEGAN + after)


DONE = Outcome("joined\ndone\n", 0)
KILLED = Outcome("joined\n", -9)


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("kill_one", [failed(1), KILLED, failed(1)]),
        ("stop_long", [failed(1, 4), failed(1, 9), failed(1, 4)]),
        ("slow", [DONE, DONE, DONE]),
        ("descriptors", [failed(1, 8), failed(-1, 1, kind=2), failed(1, 8)]),
        ("descriptors", [DONE, DONE, DONE]),
    ],
)
def test_what_should_be_is_no_complaint(name: str, outcomes: list[Outcome]) -> None:
    verdict = judge(injection(name), outcomes, BEGAN)
    assert verdict.complaints == []
    assert verdict.is_named
    assert verdict.is_in_time


@pytest.mark.parametrize(
    ("name", "outcomes", "complaint"),
    [
        ("kill_one", [failed(0), KILLED, failed(1)], "survivors name [0, 1]"),
        ("kill_one", [failed(-1), KILLED, failed(-1)], "survivors name [-1]"),
        ("kill_one", [failed(1, 9), KILLED, failed(1)], "the last survivor ended after 9.0 s"),
        ("kill_one", [DONE, KILLED, failed(1)], "not all survivors failed"),
        ("kill_one", [Outcome("joined", None), KILLED, failed(1)], "rank 0 does not end"),
        ("kill_one", [Outcome("", -11), KILLED, failed(1)], "rank 0 was ended by signal 11"),
        ("slow", [DONE, KILLED, DONE], "rank 1 was ended by signal 9"),
        ("slow", [DONE, failed(0), DONE], "not all ranks went on"),
        ("fork", [DONE, Outcome("joined\nwrong: x", 4), DONE], "rank 1 got a wrong result"),
        ("stop_long", [failed(1, 4), DONE, failed(1, 4)], "rank 1, the victim, does not fail"),
        (
            "descriptors",
            [failed(1), failed(0), failed(1)],
            "rank 1, the victim, blames another",
        ),
    ],
)
def test_what_should_not_be_is_said(name: str, outcomes: list[Outcome], complaint: str) -> None:
    assert complaint in judge(injection(name), outcomes, BEGAN).complaints


def test_of_two_that_die_at_once_either_may_be_named_but_nobody_else() -> None:
    both = injection("kill_two", (1, 2), 4)
    outcomes = [failed(1), KILLED, KILLED, failed(2)]
    assert judge(both, outcomes, BEGAN).complaints == []
    outcomes[0] = failed(3)
    assert judge(both, outcomes, BEGAN).complaints == ["survivors name [2, 3]"]


def test_every_seed_leaves_a_survivor_and_gives_the_same_again() -> None:
    for seed in range(2000):
        drawn = draw(seed, KINDS)
        assert drawn == draw(seed, KINDS)
        assert all(0 <= victim < drawn.ranks for victim in drawn.victims)
        assert drawn.nodes >= drawn.kind.least_nodes
        if drawn.kind.fails and drawn.kind.name != "shared_memory":
            assert len(drawn.victims) < drawn.ranks
