"""Draws how compiling grows with ranks, from what compile_bench.py --grow wrote.

python bench/commands/compile_plot.py bench/results/compile.txt docs/images/compile_growth.svg
"""

import argparse
from pathlib import Path

from unisono.draw.chart import Axis, Series, draw_chart


def read(text: str) -> list[Series]:
    """The growth of each program: the last run of rows in which its ranks go up."""
    grown: dict[str, list[tuple[float, float]]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) != 10 or not words[1].isdigit():
            continue
        name, ranks, seconds = words[0], int(words[1]), float(words[8])
        points = grown.setdefault(name, [])
        if points and points[-1][0] >= ranks:
            points.clear()
        # Figures have three digits behind the point.
        points.append((ranks, max(seconds, 0.0005)))
    return [Series(name, points) for name, points in grown.items() if len(points) > 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    series = read(arguments.figures.read_text(encoding="utf-8"))
    chart = draw_chart(
        "Trace, passes and verification of a program",
        Axis("ranks", logarithmic=True, base=2, write=lambda ranks: f"{ranks:.0f}"),
        Axis("CPU seconds on one core", logarithmic=True),
        series,
    )
    arguments.picture.write_text(chart, encoding="utf-8")


if __name__ == "__main__":
    main()
