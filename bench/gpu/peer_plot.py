"""Draws how many times as fast Unisono is as NCCL, by size, from a result of the GPU bench.

python bench/gpu/peer_plot.py bench/results/gpu_nccl_4.json docs/images/nccl_4_h200.svg
"""

import argparse
import json
from pathlib import Path
from typing import Any

from unisono.draw.chart import Axis, Series, draw_chart

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
UNITS = ("B", "KiB", "MiB", "GiB")


def size(amount: float) -> str:
    """Bytes with the largest unit that leaves a number of at least one."""
    power = 0
    while amount >= 1024 and power + 1 < len(UNITS):
        amount /= 1024
        power += 1
    return f"{amount:.0f} {UNITS[power]}"


def read(result: dict[str, Any]) -> list[Series]:
    """NCCL's time over ours of each collective, out of place and in CUDA graphs."""
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in COLLECTIVES}
    for row in result["rows"]:
        if row["collective"] in points and row["mode"] == "graph" and not row["in_place"]:
            ratio = row["peer_us"] / row["time_us"]
            points[row["collective"]].append((row["bytes"], ratio))
    return [Series(name, sorted(found)) for name, found in points.items() if found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    result = json.loads(arguments.result.read_text(encoding="utf-8"))
    (ranks,) = {row["ranks"] for row in result["rows"]}
    chart = draw_chart(
        f"Unisono compared with NCCL on {ranks} GPUs, {result['request']['types'][0]}, CUDA graphs",
        Axis("bytes of the call", logarithmic=True, base=2, write=size),
        Axis("NCCL's time / Unisono's time", logarithmic=True, base=2, write=lambda y: f"{y:g}"),
        read(result),
    )
    arguments.picture.write_text(chart, encoding="utf-8")


if __name__ == "__main__":
    main()
