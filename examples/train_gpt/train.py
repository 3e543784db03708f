"""Trains a small GPT on real text, in parallel.

    torchrun --nproc-per-node 4 examples/train_gpt/train.py --backend unisono --parallel fsdp

Writes FOLDER/result.json, FOLDER/report.html and checkpoints; --resume goes on from the last one.
"""

import argparse
import os
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from parallel import KINDS
from report import write_report
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from training import Training, add_options, is_over

# Steps whose communication is recorded; they come after as many in which memory and connections
# are made.
RECORDED_STEPS = 10


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["WORLD_SIZE"])))
    if arguments.backend == "unisono":
        import unisono.torch  # noqa: F401 (registers the backend)
    dist.init_process_group(arguments.backend)
    try:
        training = Training(arguments, arguments.backend, arguments.parallel)
        train(training, arguments)
        finish(training, arguments.output)
    finally:
        dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", choices=("gloo", "unisono"), default="unisono")
    parser.add_argument("--parallel", choices=KINDS, default="ddp")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long; 0: never")
    add_options(parser)
    parser.add_argument("--output", type=Path, default=Path("train_gpt"), metavar="FOLDER")
    parser.add_argument("--save-every", type=int, default=0, help="steps; 0: at the end only")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def train(training: Training, arguments: argparse.Namespace) -> None:
    first = training.resume(arguments.output) if arguments.resume else 0
    timed_from, timed_tokens, pauses = 0.0, 0, 0.0
    with progress_bar(arguments) as bar:
        task = bar.add_task("", total=arguments.steps, completed=first)
        for step in range(first, arguments.steps):
            paused = time.perf_counter()
            if step - first == RECORDED_STEPS:
                training.record()
                timed_from, pauses = time.perf_counter(), 0.0
                paused = timed_from
            elif step - first == 2 * RECORDED_STEPS:
                training.stop_recording(RECORDED_STEPS)
            pauses += time.perf_counter() - paused
            loss = training.step(step)
            timed_tokens += training.tokens_in_step if timed_from else 0
            bar.update(task, completed=step + 1, description=f"loss {loss:.3f}")
            if arguments.save_every and (step + 1) % arguments.save_every == 0:
                paused = time.perf_counter()
                training.save(arguments.output)
                pauses += time.perf_counter() - paused
            if arguments.seconds and is_over(bar.tasks[task].elapsed or 0, arguments.seconds):
                break
    if timed_from:
        seconds = time.perf_counter() - timed_from - pauses
        training.result.tokens_per_second = timed_tokens / seconds


def finish(training: Training, folder: Path) -> None:
    """Writes all that the training came to."""
    result = training.result
    if not result.losses:
        raise SystemExit("the checkpoint has made as many steps already; give --steps more")
    training.test()
    training.save(folder)
    if dist.get_rank() != 0:
        return
    result.write(folder / "result.json")
    report = folder / "report.html"
    write_report(report, [[asdict(result)]])
    Console().print(
        f"{result.backend}, {result.parallel}, {result.ranks} ranks, {result.parameters:,} "
        f"parameters: loss {result.losses[0][1]:.4f} to {result.losses[-1][1]:.4f}, on unseen text "
        f"{result.tested_loss:.4f}; {result.tokens_per_second:,.0f} tokens/s, "
        f"{1e3 * result.communication_seconds:.1f} ms of communication in a step "
        f"({result.communication_share:.0%}); {report}",
        highlight=False,
    )


def progress_bar(arguments: argparse.Namespace) -> Progress:
    is_first = dist.get_rank() == 0
    if is_first:
        arguments.output.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    return Progress(
        TextColumn(f"{arguments.backend:<8}{arguments.parallel:<5}{{task.description}}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=not is_first,
    )


if __name__ == "__main__":
    main()
