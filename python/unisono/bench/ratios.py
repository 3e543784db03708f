"""What rows of several implementations say: how many times as fast we are, point by point."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unisono.bench.peers import OURS
from unisono.bench.rows import Row


@dataclass(frozen=True)
class Point:
    """A case, and each implementation's row of it."""

    ours: Row
    peers: dict[str, Row]

    @property
    def best(self) -> Row:
        """The fastest peer's row."""
        return min(self.peers.values(), key=lambda row: row.time_us)

    def ratio(self, peer: str) -> float:
        """A peer's time divided by ours; of "best", the best peer's."""
        other = self.best if peer == "best" else self.peers[peer]
        return other.time_us / self.ours.time_us


@dataclass(frozen=True)
class Summary:
    """All points of a collective, or of all collectives.

    Attributes:
        means: Geometric means of the ratios, by peer, and of "best".
        worst: The point with the smallest ratio to the best peer.
    """

    name: str
    means: dict[str, float]
    worst: Point


def points_of(rows: Iterable[Row]) -> list[Point]:
    """What can be compared: collectives in their first order, sizes ascending."""
    by_case: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows:
        by_case.setdefault((row.collective, row.bytes), {})[row.implementation] = row
    order = list(dict.fromkeys(collective for collective, _ in by_case))
    points = []
    for key in sorted(by_case, key=lambda key: (order.index(key[0]), key[1])):
        found = dict(by_case[key])
        own = found.pop(OURS, None)
        if own and found:
            points.append(Point(own, found))
    return points


def peers_in(points: Sequence[Point]) -> list[str]:
    """The peers' names, in the order in which they appear."""
    return list(dict.fromkeys(name for point in points for name in point.peers))


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive values; 0 of none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 0.0


def summarise(points: Sequence[Point]) -> list[Summary]:
    """A line for each collective, then one for all."""
    collectives = dict.fromkeys(point.ours.collective for point in points)
    groups = {
        name: [point for point in points if point.ours.collective == name] for name in collectives
    }
    if len(groups) > 1:
        groups["all"] = list(points)
    return [_summary(name, group) for name, group in groups.items()]


def _summary(name: str, points: Sequence[Point]) -> Summary:
    means = {
        peer: geometric_mean([point.ratio(peer) for point in points if peer in point.peers])
        for peer in peers_in(points)
    }
    means["best"] = geometric_mean([point.ratio("best") for point in points])
    return Summary(name, means, min(points, key=lambda point: point.ratio("best")))
