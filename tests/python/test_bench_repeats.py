"""A repeat of the bench is so long that the ranks' unequal starts do not count.

Times are given to the functions that decide, so nothing here depends on the machine's speed.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from unisono.bench import measure
from unisono.bench.cases import Case, Request
from unisono.bench.compare import _Turns
from unisono.bench.group import Command, Group, Times
from unisono.bench.peers import Variant
from unisono.bench.repeats import (
    BARRIERS,
    MAX_CALLS,
    MAX_REPEATS,
    must_guess_again,
    plan_repeats,
    skew_seconds,
)

BARRIERS_TAKE = (0.0, 1e-6, 1e-4, 0.0076, 0.05)
CALLS_TAKE = (2e-7, 1e-5, 0.0076, 0.0121, 0.3)


@pytest.mark.parametrize("barrier", BARRIERS_TAKE)
@pytest.mark.parametrize("call", CALLS_TAKE)
def test_a_repeat_lasts_twenty_barriers(barrier: float, call: float) -> None:
    for budget in (0.001, 0.1, 10.0):
        repeats, calls = plan_repeats(call, budget, barrier_seconds=barrier)
        assert calls == MAX_CALLS or calls * call >= BARRIERS * barrier * (1 - 1e-6)
        assert repeats == 1 or repeats * calls * call <= budget


def test_on_links_of_5_ms_a_repeat_has_20_calls() -> None:
    assert plan_repeats(0.0076, 0.1, barrier_seconds=0.0076) == (1, 20)
    assert plan_repeats(0.0147, 1.0, barrier_seconds=0.0076) == (6, 11)


def test_without_slow_links_two_milliseconds_are_enough() -> None:
    assert plan_repeats(1e-4, 0.1, barrier_seconds=1e-5) == (9, 20)
    assert plan_repeats(1e-7, 0.1, barrier_seconds=1e-7) == (9, 1000)
    assert plan_repeats(0.5, 0.1) == (1, 1)


@pytest.mark.parametrize("iterations", [1, 2, 9, 17, 18, 20, 100])
def test_given_iterations_are_kept_in_longer_and_fewer_repeats(iterations: int) -> None:
    for call, barrier in itertools.product(CALLS_TAKE, BARRIERS_TAKE):
        repeats, calls = plan_repeats(call, 0.1, iterations, barrier)
        assert iterations / 2 <= repeats * calls <= iterations
        assert repeats == MAX_REPEATS or repeats * calls == iterations
        if repeats > 1:
            assert calls * call >= BARRIERS * barrier * (1 - 1e-6)
    assert plan_repeats(1.0, 0.0, 20) == (9, 2)


def test_a_short_row_is_not_believed() -> None:
    assert must_guess_again(0.0175, 1, 0.0076)
    assert must_guess_again(0.0175, 2, 0.0076)
    assert not must_guess_again(0.080, 10, 0.0076)
    assert not must_guess_again(0.9, 1, 0.0076)


def test_the_skew_is_found_from_calls_alone_and_in_a_row() -> None:
    call, skew = 0.0076, 0.0099
    for calls in (2, 3, 50):
        assert skew_seconds(call + skew, call + skew / calls, calls) == pytest.approx(skew)
    assert skew_seconds(1e-6, 2e-6, 2) == 0.0


class SlowLink:
    """A communicator of two ranks whose barriers end late; time passes only in its calls."""

    CALL, BARRIER = 0.0076, 0.0099

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.late = 0.0
        self.rank, self.size = 0, 2
        self._native = self
        monkeypatch.setattr(measure.time, "perf_counter", lambda: self.now)

    def barrier(self) -> None:
        """Ends on this rank so much before it ends on the other, for which the next call waits."""
        self.now += self.BARRIER
        self.late = self.BARRIER

    def run(self, call: object) -> None:
        self.now += self.CALL + self.late
        self.late = 0.0

    def all_reduce(self, values: np.ndarray, *_: object, out: np.ndarray) -> np.ndarray:
        return values


def test_a_call_on_a_slow_link_is_timed_without_the_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = SlowLink(monkeypatch)
    monkeypatch.setattr(measure, "Buffers", lambda *_: FakeBuffers())
    for iterations in (0, 60):
        request = Request(iterations=iterations)
        case = Case("all_reduce", 2, "float32", 2)
        found = measure.measure(case, link, request, 1)  # type: ignore[arg-type]
        assert found.time_us == pytest.approx(link.CALL * 1e6, rel=0.07)
        assert found.calls >= BARRIERS


class FakeBuffers:
    call = None

    def prepare(self) -> None:
        pass

    def wrong(self) -> int:
        return 0


class SlowGroup:
    """Ranks of a library whose repeats begin unequally."""

    def __init__(self, call_us: float, skew_us: float) -> None:
        self.call_us, self.skew_us = call_us, skew_us

    def measure(self, command: Command, timeout: float) -> Times:
        return Times([self.call_us + self.skew_us / command.calls] * command.repeats, 0)


@pytest.mark.parametrize("call_us", [20.0, 800.0, 7600.0])
def test_a_comparison_corrects_for_unequal_starts(call_us: float) -> None:
    variant = Variant("gloo", "", lambda group: None)
    group: Group = SlowGroup(call_us, 9900.0)  # type: ignore[assignment]
    case = Case("all_reduce", 2, "float32", 2)
    result = _Turns(case, Request(), {variant: group}, print).take()[variant]
    assert result.us == [pytest.approx(call_us, rel=1.1 / BARRIERS)] * 15
