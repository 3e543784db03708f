"""Trains the same model over Gloo and over Unisono, and sets one beside the other.

    python examples/train_gpt/compare.py [--seconds 100] [--parallel ddp] [--output FOLDER]

Gloo trains for its half of the time; Unisono makes as many steps. Both read the same batches and
start from the same weights, so their losses differ only by the order in which gradients are added.
The exit status is 0 only if they stay within the bound.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from parallel import KINDS
from report import write_report
from rich.console import Console
from rich.table import Table

RANKS = 4
# A float32 sum over 4 ranks differs between two orders by at most 2 * 4 * 2^-24 = 5e-7 of the sum
# of its parts' sizes; 7e-7 in the loss is what was seen after 21 steps. AdamW divides a gradient by
# its own size, so such differences grow as training goes on; the bound leaves room for some hundred
# steps, and is less than what the loss moves in one step.
BOUND = 0.01

console = Console()


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=100, help="of training, of both together")
    parser.add_argument("--parallel", choices=KINDS, default="ddp")
    parser.add_argument("--output", type=Path, default=Path("demo/train_gpt"), metavar="FOLDER")
    arguments = parser.parse_args()
    common = ["--parallel", arguments.parallel]
    gloo = run("gloo", arguments.output, [*common, *endless(arguments.seconds / 2)])
    steps = len(gloo["losses"])
    unisono = run("unisono", arguments.output, [*common, "--steps", str(steps)])
    console.print(table_of(gloo, unisono))
    apart = max(
        abs(one[1] - other[1]) for one, other in zip(gloo["losses"], unisono["losses"], strict=True)
    )
    apart = max(apart, abs(gloo["tested_loss"] - unisono["tested_loss"]))
    fine = apart <= BOUND
    verdict = f"losses differ by at most {apart:.2g} in {steps} steps (bound {BOUND:g})"
    console.print(f"[{'green' if fine else 'bold red'}]{verdict}[/]", highlight=False)
    report = arguments.output / "report.html"
    write_report(report, [gloo, unisono], f"{verdict[0].upper()}{verdict[1:]}.")
    console.print(f"report: {report}", highlight=False)
    return 0 if fine else 1


def endless(seconds: float) -> list[str]:
    """Options for a run that ends by the clock."""
    return ["--steps", "100000", "--seconds", str(seconds)]


def run(backend: str, output: Path, options: list[str]) -> dict[str, Any]:
    """One training; what it wrote."""
    folder = output / backend
    script = Path(__file__).with_name("train.py")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}",
        f"--master-port={port}", str(script), "--backend", backend, "--output", str(folder),
        *options,
    ]  # fmt: skip
    done = subprocess.run(command, env={"OMP_NUM_THREADS": "1", **os.environ})
    if done.returncode:
        sys.exit(f"training over {backend} failed with exit code {done.returncode}")
    return json.loads((folder / "result.json").read_text())


def table_of(gloo: dict[str, Any], unisono: dict[str, Any]) -> Table:
    """Their numbers, and the ratios."""
    table = Table(header_style="bold", pad_edge=False, box=None)
    for name in ("", "gloo", "unisono", "ratio"):
        table.add_column(name, justify="right" if name else "left")

    def add(label: str, key: str, write: str, scale: float = 1, more_is_better: bool = True):
        a, b = scale * gloo[key], scale * unisono[key]
        ratio = b / a if more_is_better else a / b
        table.add_row(label, format(a, write), format(b, write), f"{ratio:.2f}")

    add("tokens/s", "tokens_per_second", ",.0f")
    add("communication in a step (ms)", "communication_seconds", ".2f", 1e3, more_is_better=False)
    add("loss on unseen text", "tested_loss", ".5f", more_is_better=False)
    last = (gloo["losses"][-1][1], unisono["losses"][-1][1])
    table.add_row("loss of the last step", *(f"{loss:.5f}" for loss in last))
    return table


if __name__ == "__main__":
    sys.exit(main())
