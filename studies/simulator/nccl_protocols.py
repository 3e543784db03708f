"""NCCL's ring and tree in each of its protocols, one at a time, on the GPUs of this machine.

    NCCL_NVLS_ENABLE=0 python studies/simulator/nccl_protocols.py --ranks 4 --json OUT

By itself NCCL chooses, and does not say what. Here `unisono bench --device cuda --against nccl`
runs with NCCL_ALGO and NCCL_PROTO set, calls in CUDA graphs, and what it measured of NCCL is
written with the algorithm and the protocol next to it, as `unisono calibrate` and `unisono simulate
--against` read it (`--implementation nccl`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unisono.bench.device_rows import calls_of

ALL = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
# LL sends twice the bytes: NCCL would never take it for large calls.
LARGEST_LL = "4MiB"
CASES = (
    ("ring", "simple", ALL),
    ("ring", "ll128", ALL),
    ("ring", "ll", ALL),
    ("tree", "simple", ("all_reduce",)),
    ("tree", "ll128", ("all_reduce",)),
    ("tree", "ll", ("all_reduce",)),
)


def measure(
    algorithm: str, protocol: str, collectives: tuple[str, ...], ranks: int, largest: str
) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.json"
        command = [
            sys.executable, "-m", "unisono", "bench", *collectives, "--device", "cuda",
            "--against", "nccl", "-n", str(ranks), "--type", "bfloat16", "--min", "1KiB",
            "--max", LARGEST_LL if protocol == "ll" else largest, "--factor", "4",
            "--mode", "graph", "--seconds", "0.03", "--json", str(table),
        ]  # fmt: skip
        environment = os.environ | {
            "NCCL_ALGO": algorithm.capitalize(),
            "NCCL_PROTO": "Simple" if protocol == "simple" else protocol.upper(),
        }
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(table.read_text())["rows"]
    return [
        {
            "collective": row["collective"], "bytes": row["bytes"], "type": row["type"],
            "ranks": row["ranks"], "nodes": 1, "implementation": "nccl", "algorithm": algorithm,
            "protocol": protocol, "time_us": row["peer_us"], "calls": calls_of(row["bytes"]),
        }
        for row in rows
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--max", default="1GiB", help="the largest size")
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for algorithm, protocol, collectives in CASES:
        rows += measure(algorithm, protocol, collectives, given.ranks, given.max)
        print(f"{algorithm} {protocol}: {len(rows)} rows", flush=True)
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        source = f"studies/simulator/nccl_protocols.py, {date}, in CUDA graphs"
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        given.json.write_text(f'{{"source": "{source}", "rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
