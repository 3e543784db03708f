"""Two builds in turn, and what the pairs of their measurements say.

    python bench/turns.py CASE BEFORE AFTER [--pairs 11] [-o FILE] [-- ARGUMENTS of both]
    python bench/turns.py lines BEFORE/call_bench AFTER/call_bench --pairs 41 -- 2
    python bench/turns.py verify BEFORE AFTER
    python bench/turns.py device BEFORE AFTER -- -n 2 --in-place

A pair is one run of each build, right after each other, and each pair changes their order, so that
what the machine does meanwhile touches both alike. Measurements are times or sizes: less is better.
BEFORE and AFTER are commands, or folders to import `unisono` from (`pip install --target`).
turn_cases.py has the cases.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from report import finish
from turn_cases import CASES, Times

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


def measure_in_turn(
    case: str, builds: tuple[str, str], pairs: int, arguments: Sequence[str]
) -> list[Change]:
    """Runs both builds and compares all that they measured."""
    found: tuple[list[Times], list[Times]] = ([], [])
    for turn in range(pairs):
        for build in in_turn(turn, 0, 1):
            found[build].append(CASES[case].measure(builds[build], arguments))
    return changes(*found)


def table_of(found: Sequence[Change]) -> list[str]:
    """A row for each case, and the mean of all."""
    ratios = [one.ratio for one in found]
    rows = [f"{one}{'  slower' if one.is_slower else ''}" for one in found]
    mean = (
        f"geometric mean {geometric_mean(ratios):.3f}, least {min(ratios):.3f}, " if found else ""
    )
    return [HEAD, *rows, f"{mean}{len(found)} cases; ratios are AFTER / BEFORE"]


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def main() -> None:
    """Runs the command line."""
    cases = "; ".join(f"{name}: {case.what}" for name, case in CASES.items())
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], epilog=cases)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("-o", "--output", type=Path)
    # argparse gives no words after "--" to a list that options may precede.
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:at])
    builds, arguments = (args.before, args.after), sys.argv[at + 1 :]
    finish(table_of(measure_in_turn(args.case, builds, args.pairs, arguments)), args.output)


if __name__ == "__main__":
    main()
