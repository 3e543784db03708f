"""Two builds in turn, and what the pairs of their measurements say.

A pair is one run of each build, right after each other, and each pair changes their order, so that
what the machine does meanwhile touches both alike. Measurements are times or sizes: less is better.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

# A case is slower when it takes more than 2 % longer.
TOLERATED = 1.02
# This share of the pairs lies outside the spread, at each of its ends.
OUTLIERS = 0.1

Build = TypeVar("Build")


def in_turn(turn: int, before: Build, after: Build) -> tuple[Build, Build]:
    """Both builds in the order of a turn."""
    return (before, after) if turn % 2 == 0 else (after, before)


@dataclass(frozen=True)
class Change:
    """How a case changed from one build to the other.

    Attributes:
        before: The median over the runs of the first build.
        after: The median over the runs of the second build.
        ratio: The median of the pairs' ratios, after / before.
        low: The least of the ratios, without the outliers.
        high: The largest of them, without the outliers.
        pairs: How many there are.
    """

    case: str
    before: float
    after: float
    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def is_slower(self) -> bool:
        """Whether it takes more than 2 % longer, and the spread confirms that it takes longer."""
        return self.ratio > TOLERATED and self.low > 1

    @property
    def may_be_slower(self) -> bool:
        """Whether it takes more than 2 % longer, but the spread includes 1."""
        return self.ratio > TOLERATED and self.low <= 1

    def __str__(self) -> str:
        return (
            f"{self.case:44} {self.before:12.2f} {self.after:12.2f} {self.ratio:8.3f}"
            f" ({self.low:.3f} to {self.high:.3f}, {self.pairs} pairs)"
        )


HEAD = f"{'case':44} {'before':>12} {'after':>12} {'ratio':>8}"


def change_of(case: str, before: Sequence[float], after: Sequence[float]) -> Change:
    """Compares the measurements of a case, one of each build a pair."""
    ratios = sorted(new / old for old, new in zip(before, after, strict=True))
    outliers = int(OUTLIERS * len(ratios))
    return Change(
        case,
        statistics.median(before),
        statistics.median(after),
        statistics.median(ratios),
        ratios[outliers],
        ratios[-1 - outliers],
        len(ratios),
    )


def changes(
    before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]
) -> list[Change]:
    """Compares all cases that every run of both builds has measured, above 0."""
    runs = [*before, *after]
    cases = [case for case in (runs[0] if runs else {}) if all(run.get(case) for run in runs)]
    return [change_of(case, [r[case] for r in before], [r[case] for r in after]) for case in cases]


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios."""
    return math.exp(statistics.fmean(map(math.log, ratios)))
