"""Which of the simulator's two models of the network measurements favour.

    python studies/simulator/models.py [--refit]

Nodes over shaped links (one rank a node at 40 Mbit/s, and four nodes of two ranks at 200 Mbit/s)
and 4 H200, as the stored results have them. Of each model: the errors, and how often the plan that
it says is fastest, among those measured, took at most 10 % longer than the fastest measured.
On 4 H200, half of the points are held back from the fit, and only those show errors: the shipped
numbers were fitted in `flows`; --refit fits them in each model anew (some minutes).
"""

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
from netbed import at_rate
from unisono.simulate import (
    Measurement,
    Predictor,
    calibrate,
    load_cluster,
    read_measurements,
    with_numbers,
)
from unisono.simulate.calibrate import split
from unisono.simulate.cluster import ClusterFile

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "studies" / "results"
MODELS = ("loggops", "flows")
AS_GOOD = 1.10
FITTED = re.compile(r"on 2 nodes: \{'([a-z_.]+)': ([0-9.]+)\}")
H200 = {
    "4 H200, interpreted": (
        "hgx_h200_4", ["gpu_bench_interpreted_4.txt", "gpu_bench_interpreted_slots_4.txt"],
    ),
    "4 H200, specialised kernels": (
        "hgx_h200_4_specialised", ["gpu_bench_specialised_4.txt", "gpu_bench_zero_copy_4.txt"],
    ),
}  # fmt: skip


def read_netbed() -> tuple[ClusterFile, list[Measurement]]:
    """What netbed.py printed, and its cluster with the number that it had fitted on two nodes."""
    text = (RESULTS / "simulate_netbed.txt").read_text()
    said = FITTED.search(text)
    if said is None:
        raise SystemExit("simulate_netbed.txt does not say what was fitted on two nodes")
    file = with_numbers(at_rate("40mbit").file, {said[1]: float(said[2])}, "fitted on two nodes")
    rows = []
    for words in map(str.split, text.splitlines()):
        if len(words) == 7 and words[0].isdigit() and words[6].endswith("%"):
            nodes, collective, algorithm, size, took_ms = words[:5]
            rows.append(
                Measurement(
                    collective, algorithm, "simple", int(nodes), int(nodes), int(size), "float32",
                    float(took_ms) * 1000,
                )
            )  # fmt: skip
    return file, rows


def read_netbed_of_pairs() -> tuple[ClusterFile, list[Measurement]]:
    """All algorithms at 16 MiB on four nodes of two ranks."""
    rows = []
    text = (ROOT / "bench" / "results" / "netbed_4x2.txt").read_text()
    for words in map(str.split, text.splitlines()):
        if len(words) == 8 and re.fullmatch(r"[0-9.]+", words[2]):
            rows.append(
                Measurement(
                    words[0], words[1], "simple", 8, 4, 16 << 20, "float32", float(words[2]) * 1000
                )
            )
    return at_rate("200mbit").file, rows


def choices(predictor: Predictor, rows: list[Measurement]) -> Iterator[bool]:
    """Whether the fastest by the model is about the fastest measured, of calls alike."""
    alike: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for row in rows:
        alike[row.collective, row.ranks, row.nodes, row.bytes, row.slots, row.slot_bytes].append(
            row
        )
    for group in alike.values():
        if len({(row.algorithm, row.protocol, row.channels) for row in group}) > 1:
            chosen = min(group, key=predictor.time_us)
            yield chosen.time_us <= AS_GOOD * min(row.time_us for row in group)


def show(title: str, files: dict[str, ClusterFile], rows: list[Measurement],
         held: list[Measurement]) -> None:  # fmt: skip
    """A row for each model.

    Args:
        title: What was measured.
        files: By model: the cluster.
        rows: All measurements, for the choices.
        held: Those that nothing was fitted to, for the errors.
    """
    for model in MODELS:
        predictor = Predictor(files[model], model)
        off = [abs(error.relative) for error in predictor.errors(held)]
        right = list(choices(predictor, rows))
        print(
            f"{title:<40}{model:<9}{len(off):>7}{median(off):>9.1%}{np.quantile(off, 0.9):>9.1%}"
            f"{f'{sum(right)} of {len(right)}':>16}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--refit", action="store_true")
    parser.add_argument("--rounds", type=int, default=8, help="of a fit, at most")
    given = parser.parse_args()
    print(f"$ python studies/simulator/models.py {' '.join(sys.argv[1:])}".rstrip())
    print(f"{'':<40}{'model':<9}{'points':>7}{'median':>9}{'90th':>9}{'choices right':>16}")
    for title, (file, rows) in {
        "one rank a node, 40 Mbit/s": read_netbed(),
        "four nodes of two ranks, 200 Mbit/s": read_netbed_of_pairs(),
    }.items():
        show(title, dict.fromkeys(MODELS, file), rows, rows)
    for title, (name, tables) in H200.items():
        cluster = load_cluster(name)
        rows = [
            row
            for table in tables
            for row in read_measurements(RESULTS / table)
            # Hand-written in LL on that day's engine.
            if row.algorithm != "one_shot" or name != "hgx_h200_4"
        ]
        files = dict.fromkeys(MODELS, cluster.file)
        if given.refit:
            files = {
                model: calibrate(cluster, rows, model=model, rounds=given.rounds).file
                for model in MODELS
            }
        show(title, files, rows, split(rows)[1])


if __name__ == "__main__":
    main()
