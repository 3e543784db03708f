"""Ranks that come late to collectives, or move their data slowly, again and again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.bench.rows import bus_factor
from unisono.profile.calls import Calls, Collective

__all__ = ["Lateness", "SlowRank", "Window", "lateness", "slow_ranks", "windows"]

Array = np.ndarray[Any, Any]
_MOST_CALLS, _LEAST_CALLS, _WINDOWS = 32, 4, 8
# A rank is an outlier where it differs from the median of the others by so many of their standard
# deviations, which the median deviation estimates, and by more than what is worth a look.
_DEVIATIONS = 3 * 1.4826
_LEAST_LATE_NS = 100_000
_LEAST_SHARE_OF_INTERVAL = 0.1  # of the time from one call to the next
_SLOW = 0.8  # of the others' bandwidth
# It is named where it is one in so many windows, and in so large a part of them.
_LEAST_WINDOWS, _LEAST_SHARE = 3, 0.5
_LEAST_RANKS = 3


@dataclass(frozen=True)
class Window:
    """Some collectives of a group, one after another; arrays by place in the group.

    Attributes:
        begin_s: When the first one began, from the first call of all.
        late: Median time in ns from the others' median start to the rank's own.
        moved: Median time in ns in which the rank moved data.
        bandwidth: The rank's median bus bandwidth in bytes/s; 0 of calls without data.
    """

    group: str
    ranks: tuple[int, ...]
    begin_s: float
    calls: int
    interval_ns: float
    late: Array
    moved: Array
    bandwidth: Array


@dataclass(frozen=True)
class SlowRank:
    """A rank that stands out.

    Attributes:
        how: "late": it starts after the others; "slow": its data move slower.
        windows: In how many of the group's `of` windows.
        median: How late in seconds; or its bandwidth as a part of the others'.
    """

    rank: int
    group: str
    how: str
    windows: int
    of: int
    median: float


@dataclass(frozen=True)
class Lateness:
    """For whom ranks of a group waited: the last one to start.

    Attributes:
        times: In how many calls it was the last.
        cost: How long all others together waited, until it came, for it and for those before it.
    """

    group: str
    rank: int
    times: int
    calls: int
    cost: float


def windows(calls: Calls) -> list[Window]:
    """The windows of each group, in time."""
    by_group: dict[tuple[str, tuple[int, ...]], list[Collective]] = {}
    for one in calls.collectives:
        by_group.setdefault((one.group, one.ranks), []).append(one)
    zero = min((int(one.started.min()) for one in calls.collectives), default=0)
    found = []
    for (group, ranks), ones in by_group.items():
        size = int(np.clip(len(ones) // _WINDOWS, _LEAST_CALLS, _MOST_CALLS))
        for first in range(0, len(ones) - size + 1, size):
            found.append(_window(group, ranks, ones[first : first + size], zero))
    return sorted(found, key=lambda one: one.begin_s)


def _window(group: str, ranks: tuple[int, ...], ones: list[Collective], zero: int) -> Window:
    starts = np.stack([one.started for one in ones])
    late = np.zeros(starts.shape)
    if len(ranks) > 1:
        for place in range(len(ranks)):
            late[:, place] = starts[:, place] - np.median(np.delete(starts, place, 1), axis=1)
    with_data = [one for one in ones if one.bytes and len(ranks) > 1]
    bandwidth = np.zeros(len(ranks))
    if with_data:
        bandwidth = np.median(
            [1e9 * one.bytes * bus_factor(one.kind, len(ranks)) / np.maximum(one.active(), 1)
             for one in with_data], axis=0,
        )  # fmt: skip
    firsts = starts.min(axis=1)
    return Window(
        group, ranks, float(firsts[0] - zero) / 1e9, len(ones), float(np.median(np.diff(firsts))),
        np.median(late, axis=0), np.median([one.active() for one in ones], axis=0), bandwidth,
    )  # fmt: skip


def slow_ranks(found: list[Window]) -> list[SlowRank]:
    """Ranks that are outliers in most windows of a group of three or more."""
    by_group: dict[tuple[str, tuple[int, ...]], list[Window]] = {}
    for window in found:
        by_group.setdefault((window.group, window.ranks), []).append(window)
    slow = []
    for (group, ranks), ones in by_group.items():
        if len(ranks) < _LEAST_RANKS:
            continue
        for how, is_outlier, median in (
            ("late", _is_late, lambda one, place: one.late[place] / 1e9),
            ("slow", _is_slow, _relative),
        ):
            slow += _persistent(group, ranks, ones, how, is_outlier, median)
    return sorted(slow, key=lambda one: (one.how, -one.windows / one.of, one.rank))


def _persistent(
    group: str, ranks: tuple[int, ...], ones: list[Window], how: str,
    is_outlier: Callable[[Window, int], bool], median: Callable[[Window, int], float],
) -> list[SlowRank]:  # fmt: skip
    found = []
    for place, rank in enumerate(ranks):
        flagged = [one for one in ones if is_outlier(one, place)]
        if len(flagged) >= max(_LEAST_WINDOWS, _LEAST_SHARE * len(ones)):
            value = float(np.median([median(one, place) for one in flagged]))
            found.append(SlowRank(rank, group, how, len(flagged), len(ones), value))
    return found


def _deviation(others: Array) -> float:
    return _DEVIATIONS * float(np.median(np.abs(others - np.median(others))))


def _is_late(window: Window, place: int) -> bool:
    others = np.delete(window.late, place)
    least = max(_LEAST_LATE_NS, _LEAST_SHARE_OF_INTERVAL * window.interval_ns, _deviation(others))
    return bool(window.late[place] - np.median(others) > least)


def _is_slow(window: Window, place: int) -> bool:
    others = np.delete(window.bandwidth, place)
    below = float(np.median(others)) - window.bandwidth[place]
    lost = window.moved[place] - float(np.median(np.delete(window.moved, place)))
    return bool(
        _relative(window, place) < _SLOW
        and below > _deviation(others)
        and lost > _LEAST_SHARE_OF_INTERVAL * window.interval_ns
    )


def _relative(window: Window, place: int) -> float:
    others = float(np.median(np.delete(window.bandwidth, place)))
    return float(window.bandwidth[place]) / others if others > 0 else 1.0


def lateness(calls: Calls) -> list[Lateness]:
    """By group and rank; those that cost most come first."""
    totals: dict[tuple[str, tuple[int, ...]], int] = {}
    lasts: dict[tuple[str, tuple[int, ...], int], list[float]] = {}
    for one in calls.collectives:
        if len(one.ranks) < 2:
            continue
        key = (one.group, one.ranks)
        totals[key] = totals.get(key, 0) + 1
        cost = float(one.waited().sum()) / 1e9
        lasts.setdefault((*key, one.ranks[int(one.started.argmax())]), []).append(cost)
    found = [
        Lateness(group, rank, len(costs), totals[group, ranks], sum(costs))
        for (group, ranks, rank), costs in lasts.items()
    ]
    return sorted(found, key=lambda one: -one.cost)
