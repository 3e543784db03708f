"""How far predictions may be off: from the errors on sites that were left out of the fit.

Intervals hold 80 % of the measured times of a site that nobody has fitted. They are as wide as the
errors on other sites were, in calls of a like size on one node or on several.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unisono.simulate.nccl.choice import Call
from unisono.simulate.nccl.fit import Point
from unisono.simulate.nccl.timing import Array

_PART = 0.8
# Sizes up to these are alike.
_SIZES = (("small", 64 << 10), ("middle", 64 << 20), ("large", 1 << 62))


def kind_of(call: Call) -> str:
    """What calls are alike in how well they are predicted."""
    size = next(name for name, limit in _SIZES if call.bytes <= limit)
    return f"{size}_{'one' if call.nodes == 1 else 'several'}"


@dataclass(frozen=True)
class Site:
    """A place whose machines are measured; it is left out as a whole."""

    name: str
    points: list[Point]


class Errors:
    """The errors of sites that were left out."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[float, float]]] = {}

    def add(self, site: Site, times_us: Array) -> None:
        """What was predicted for a site's points."""
        kinds = [kind_of(point.call) for point in site.points]
        for point, kind, time in zip(site.points, kinds, times_us, strict=True):
            off = abs(float(np.log(time / point.time_us)))
            self._found.setdefault(kind, []).append((off, 1 / kinds.count(kind)))

    def quantiles(self) -> dict[str, float]:
        """By kind, with sites weighted alike."""
        return {kind: _quantile(found) for kind, found in sorted(self._found.items())}


def _quantile(found: Sequence[tuple[float, float]]) -> float:
    values, weights = np.array(found).T
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    # One site more, of which nothing is known, stands for the one that is asked about.
    return float(values[order][min(np.searchsorted(reached, _PART * (reached[-1] + 1)),
                                   len(values) - 1)])  # fmt: skip


@dataclass(frozen=True)
class Widths:
    """Logarithms of the factors by which a time may be off, by kind of call."""

    by_kind: Mapping[str, float]

    def of(self, call: Call) -> float:
        """The interval of a call; the widest where there were none of its kind."""
        return self.by_kind.get(kind_of(call), max(self.by_kind.values()))

    def interval_us(self, call: Call, time_us: float) -> tuple[float, float]:
        """Around a predicted time."""
        factor = float(np.exp(self.of(call)))
        return time_us / factor, time_us * factor

    def holds(self, point: Point, ratio: float) -> bool:
        """Whether a prediction that is `ratio` times the measured time holds it."""
        return abs(float(np.log(ratio))) <= self.of(point.call)


def widths_of(errors: Errors) -> Widths:
    """The widths of the errors of sites that were left out."""
    return Widths(errors.quantiles())
