"""Trains the same model over Gloo and over Unisono in turn, and compares the two.

    torchrun --nproc-per-node 4 examples/train_gpt/compare.py [--seconds 120] [--parallel ddp,fsdp]

The same processes hold a model for each backend. The two start from the same weights and read the
same batches; one makes some steps, then the other, so that both see the machine as it is at the
time. Speeds are medians over these rounds. The exit status is 0 only if the losses stay within the
bound.
"""

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import unisono.torch  # noqa: F401 (registers the backend)
from parallel import KINDS
from report import write_report
from rich.console import Console
from rich.table import Table
from training import Training, add_options, is_over

BACKENDS = ("gloo", "unisono")
# Steps before anything is measured, in which memory and connections are made; steps of a round.
FIRST_STEPS, ROUND_STEPS = 3, 5
# A float32 sum over 4 ranks differs between two orders by at most 2 * 4 * 2^-24 = 5e-7 of the sum
# of its parts' sizes; 7e-7 in the loss is what was seen after 21 steps. AdamW divides a gradient by
# its own size, so such differences grow as training goes on (0.03 was seen after 293 steps); the
# bound is for the first steps, and is less than what the loss moves in one of them.
BOUND = 0.01
BOUND_STEPS = 40


def main() -> int:
    arguments = parse_arguments()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["WORLD_SIZE"])))
    dist.init_process_group("gloo")
    console = Console(quiet=dist.get_rank() != 0, highlight=False)
    seconds = arguments.seconds / len(arguments.parallel)
    pairs = []
    for kind in arguments.parallel:
        with console.status(f"{kind}, {seconds:.0f} s"):
            pairs.append(compare(arguments, kind, seconds))
        console.print(row_of(pairs[-1]))
    fine = all(apart(pair, BOUND_STEPS) <= BOUND for pair in pairs)
    if dist.get_rank() == 0:
        show(console, pairs, arguments)
    dist.destroy_process_group()
    return 0 if fine else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120, help="of training, in all")
    parser.add_argument("--parallel", type=kinds, default=KINDS, metavar=",".join(KINDS))
    add_options(parser)
    # One sequence for each of four ranks: the less they compute, the more communication counts.
    parser.set_defaults(batch=4, context=64)
    parser.add_argument("--output", type=Path, default=Path("demo/train_gpt"), metavar="FOLDER")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write FILE.txt and FILE.json")
    return parser.parse_args()


def kinds(text: str) -> tuple[str, ...]:
    named = tuple(text.split(","))
    if unknown := set(named) - set(KINDS):
        raise argparse.ArgumentTypeError(f"{sorted(unknown)} are not among {', '.join(KINDS)}")
    return named


def compare(arguments: argparse.Namespace, kind: str, seconds: float) -> list[dict[str, Any]]:
    """The results of one kind of parallelism, Gloo's and Unisono's."""
    trainings = [Training(arguments, backend, kind) for backend in BACKENDS]
    for training in trainings:
        run(training, FIRST_STEPS)
        training.record()
        run(training, ROUND_STEPS)
        training.stop_recording(ROUND_STEPS)
    speeds: list[list[float]] = [[], []]
    begin = time.monotonic()
    while not speeds[0] or not is_over(time.monotonic() - begin, seconds):
        # Neither is always the first.
        for index in (0, 1) if len(speeds[0]) % 2 == 0 else (1, 0):
            dist.barrier()
            from_here = time.perf_counter()
            run(trainings[index], ROUND_STEPS)
            spent = time.perf_counter() - from_here
            speeds[index].append(ROUND_STEPS * trainings[index].tokens_in_step / spent)
    for training, each in zip(trainings, speeds, strict=True):
        training.result.tokens_per_second = statistics.median(each)
        training.test()
    return [
        asdict(training.result) | {"rounds": each}
        for training, each in zip(trainings, speeds, strict=True)
    ]


def run(training: Training, steps: int) -> None:
    first = len(training.result.losses)
    for step in range(first, first + steps):
        training.step(step)


def apart(pair: list[dict[str, Any]], steps: int | None = None) -> float:
    """The largest difference between two losses of the same step, of the first steps or all."""
    losses = zip(*(one["losses"][:steps] for one in pair), strict=True)
    return max(abs(one[1] - other[1]) for one, other in losses)


ROWS = (
    ("tokens/s", "tokens_per_second", ",.0f", 1),
    ("communication in a step (ms)", "communication_seconds", ".2f", 1e3),
    ("loss on unseen text", "tested_loss", ".5f", 1),
)


def row_of(pair: list[dict[str, Any]]) -> str:
    """One kind in a line."""
    gloo, ours = pair
    ratio = ours["tokens_per_second"] / gloo["tokens_per_second"]
    return (
        f"{gloo['parallel']}: {ratio:.2f} times Gloo's tokens/s in {len(gloo['rounds'])} rounds; "
        f"losses differ by at most {apart(pair):.2g} in {len(gloo['losses'])} steps"
    )


def show(
    console: Console, pairs: list[list[dict[str, Any]]], arguments: argparse.Namespace
) -> None:
    """The table and the report."""
    arguments.output.mkdir(parents=True, exist_ok=True)
    table = table_of(pairs)
    console.print(table)
    fine = all(apart(pair, BOUND_STEPS) <= BOUND for pair in pairs)
    verdict = (
        f"In the first {BOUND_STEPS} steps the losses {'stay' if fine else 'do NOT stay'} within "
        f"{BOUND:g} of each other."
    )
    console.print(f"[{'green' if fine else 'bold red'}]{verdict}[/]")
    report = arguments.output / "report.html"
    notes = " ".join([*(f"{row_of(pair)}." for pair in pairs), verdict])
    write_report(report, pairs, notes)
    console.print(f"report: {report}")
    if arguments.save:
        save(arguments, pairs, table, verdict)


def table_of(pairs: list[list[dict[str, Any]]]) -> Table:
    """Each kind's numbers, and the ratios."""
    table = Table(header_style="bold", pad_edge=False, box=None)
    for name in ("", "", *BACKENDS, "ratio"):
        table.add_column(name, justify="right" if name else "left")
    for pair in pairs:
        kind = pair[0]["parallel"]
        for label, key, form, scale in ROWS:
            a, b = (one[key] for one in pair)
            ratio = b / a if key == "tokens_per_second" else a / b
            numbers = (format(scale * one, form) for one in (a, b))
            table.add_row(kind, label, *numbers, f"{ratio:.2f}")
            kind = ""
        last = (one["losses"][-1][1] for one in pair)
        table.add_row("", "loss of the last step", *(f"{loss:.5f}" for loss in last), "")
    return table


def save(
    arguments: argparse.Namespace, pairs: list[list[dict[str, Any]]], table: Table, verdict: str
) -> None:
    """What was measured, for people and for programs: without the time-lines."""
    options = {
        name: value for name, value in vars(arguments).items() if name not in ("output", "save")
    }
    where = {
        "date": time.strftime("%Y-%m-%d"),
        "pytorch": torch.__version__,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    results = [
        {name: value for name, value in one.items() if name != "timeline"}
        for pair in pairs
        for one in pair
    ]
    data = {"options": options, "where": where, "results": results}
    text = StringIO()
    Console(file=text, width=100, highlight=False).print(table)
    lines = [
        where["date"],
        f"A GPT of {results[0]['parameters']:,} parameters on {results[0]['ranks']} ranks, "
        f"{where['cores']} cores (load {where['load']:.1f}), PyTorch {where['pytorch']}: "
        f"batch {options['batch']}, context {options['context']}, width {options['width']}.",
        "Medians over rounds in turn; communication: with a collective under way, mean of ranks.",
        "",
        text.getvalue(),
        *(f"{row_of(pair)}." for pair in pairs),
        verdict,
    ]
    arguments.save.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    arguments.save.with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
