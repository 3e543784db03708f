"""Predicted and measured times of NCCL, a picture for each site that nothing was fitted to.

    python studies/simulator/unfitted_plots.py [--output FOLDER]

Each site of tables.yaml is predicted by a fit to all others, as unfitted.py does. Lines are
predictions, hollow marks measurements. Writes SITE.svg of every site; about a minute.
"""

import argparse
from collections import defaultdict
from pathlib import Path

from unfitted import ROOT, Found, fits_of, leave_out, read_sites
from unisono import _unisono as native
from unisono.draw.chart import Axis, Series, draw_chart
from unisono.draw.numbers import time_us as written


def size(value: float) -> str:
    return native.format_bytes(max(0, round(value)))


def picture(site: str, found: Found) -> str:
    """A site's calls by collective and ranks."""
    predicted: dict[str, list[tuple[float, float]]] = defaultdict(list)
    measured: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _, point, time_us in sorted(found, key=lambda one: one[1].call.bytes):
        call = point.call
        name = f"{call.collective}, {call.ranks} ranks"
        predicted[name].append((float(call.bytes), time_us))
        measured[name].append((float(call.bytes), point.time_us))
    series = []
    for name in sorted(predicted):
        series.append(Series(name, predicted[name]))
        series.append(Series(f"{name}, measured", measured[name], of=name, is_measured=True))
    return draw_chart(
        f"{site}: predicted by the other sites",
        Axis("size (the larger of input and output)", True, size, base=2),
        Axis("time", True, written),
        series,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--output", type=Path, default=ROOT / "docs" / "images" / "unfitted", help="a folder"
    )
    given = parser.parse_args()
    sites, _, _ = read_sites()
    found, _ = leave_out(sites, fits_of([frozenset((one.name,)) for one in sites]))
    given.output.mkdir(parents=True, exist_ok=True)
    for site in sites:
        own = [one for one in found if one[0] == site.name]
        (given.output / f"{site.name}.svg").write_text(picture(site.name, own))


if __name__ == "__main__":
    main()
