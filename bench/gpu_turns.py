"""Two installed builds in turn on GPUs: `unisono bench --device cuda` of each, and the ratio.

    python bench/gpu_turns.py BEFORE AFTER -n 2 [--runs 5] [--in-place] [--max 1GiB] [-o OUT.txt]

BEFORE and AFTER are folders to import `unisono` from (`pip install --target`). Collectives in
bfloat16 from 1 KiB on, eager and in graphs, with --in-place in place, too, each run in processes of
its own. The ratio is BEFORE's time / AFTER's: the median over the pairs of runs, and the least and
most.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from report import finish
from turns import geometric_mean, in_turn

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
SLOWER = 0.97

Key = tuple[str, str, str, int]


def times_of(site: Path, args: argparse.Namespace) -> dict[Key, float]:
    """Microseconds of a call by collective, place, mode and bytes."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [
                *(sys.executable, "-m", "unisono.cli", "bench"),
                *(args.collective or COLLECTIVES),
                *("--device", "cuda", "-n", str(args.ranks), "--type", "bfloat16"),
                *("--min", "1KiB", "--max", args.max, "--factor", str(args.factor)),
                *("--seconds", "0.02", *(["--in-place"] if args.in_place else [])),
                *("--json", file.name),
            ],
            env=os.environ | {"PYTHONPATH": str(site)}, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        rows = json.loads(Path(file.name).read_text())["rows"]
    return {
        (row["collective"], "in place" if row["in_place"] else "", row["mode"], row["bytes"]):
            row["time_us"]
        for row in rows
    }  # fmt: skip


def main() -> None:
    """Runs both in turn and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--collective", action="append", help="once for each")
    parser.add_argument("--in-place", action="store_true")
    parser.add_argument("--max", default="256MiB")
    parser.add_argument("--factor", type=int, default=16)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    found: dict[Path, list[dict[Key, float]]] = {args.before: [], args.after: []}
    for run in range(args.runs):
        for site in in_turn(run, args.before, args.after):
            found[site].append(times_of(site.resolve(), args))
    lines = [
        f"{'collective':16}{'place':10}{'mode':8}{'bytes':>11}{'before':>10}{'after':>10}   ratio"
    ]
    medians: dict[str, list[float]] = {}
    for key in found[args.before][0]:
        before = [one[key] for one in found[args.before]]
        after = [one[key] for one in found[args.after]]
        ratios = [b / a for b, a in zip(before, after, strict=True)]
        middle = statistics.median(ratios)
        medians.setdefault(key[2], []).append(middle)
        lines.append(
            f"{key[0]:16}{key[1]:10}{key[2]:8}{key[3]:11}{statistics.median(before):10.2f}"
            f"{statistics.median(after):10.2f}   {middle:.3f} ({min(ratios):.3f} to "
            f"{max(ratios):.3f}){'  slower' if middle < SLOWER else ''}"
        )
    for mode, ratios in medians.items():
        mean = geometric_mean(ratios)
        lines.append(f"{mode}: geometric mean {mean:.3f}, least {min(ratios):.3f}")
    finish(lines, args.output)


if __name__ == "__main__":
    main()
