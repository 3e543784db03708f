"""Two builds of call_bench in turn: `python bench/call_turns.py BASE NEW RUNS [ARGUMENTS of both]`.

BASE and NEW may be commands with arguments of their own, of other benches that print such lines.

Runs of a few tenths of a second take turns, and each pair changes its order, so that what the
machine does meanwhile touches both alike. Prints for each case the medians and the first quartiles
of both in us, and the ratio of the new build to the base: the median over the pairs with its
quartiles, and of the least times. Where other programs run, quartiles say more than medians.
"""

import re
import shlex
import statistics
import subprocess
import sys

from turns import in_turn

LINE = re.compile(r"(\w+) +(\d+ \w+) +([\d.]+) us")


def times_of(program: str, arguments: list[str]) -> dict[str, float]:
    """Each case's time in us."""
    done = subprocess.run(
        [*shlex.split(program), *arguments], capture_output=True, text=True, check=True
    )
    return {
        f"{found[1]} {found[2]}": float(found[3])
        for found in map(LINE.match, done.stdout.splitlines())
        if found
    }


def main() -> None:
    base, new, runs, *arguments = sys.argv[1:]
    times: dict[str, dict[str, list[float]]] = {}
    for run in range(int(runs)):
        for program in in_turn(run, base, new):
            for case, time in times_of(program, arguments).items():
                times.setdefault(case, {base: [], new: []})[program].append(time)
    for case, both in times.items():
        before, after = both[base], both[new]
        ratios = [b / a for a, b in zip(before, after, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        medians, quartiles = (
            " ".join(f"{statistics.quantiles(times)[at]:8.3f}" for times in (before, after))
            for at in (1, 0)
        )
        print(
            f"{case:24} {medians} us, quartiles {quartiles} us, "
            f"pairs {middle:.3f} ({low:.3f} to {high:.3f}), least {min(after) / min(before):.3f}"
        )


if __name__ == "__main__":
    main()
