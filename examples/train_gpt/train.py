"""Trains a small GPT on real text, in parallel.

    torchrun --nproc-per-node 4 examples/train_gpt/train.py --backend unisono --parallel fsdp

Writes FOLDER/result.json, FOLDER/report.html and checkpoints; --resume goes on from the last one.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from communication import Recorder, make_recorder
from corpus import Batches, read_corpus
from model import Gpt, Size, loss_of
from parallel import KINDS, Parallel, make_parallel
from report import write_report
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

# Steps whose communication is recorded; they come after as many in which memory and connections
# are made.
RECORDED_STEPS = 10


@dataclass
class Result:
    """What a run did.

    Attributes:
        losses: (step, mean over the step's batch), of every step that this run made.
        tested_loss: At the end, on text that was not trained on.
        tokens_per_second: Of all ranks, without the first steps, reports and checkpoints.
        communication_share: Of the recorded steps' time, in which this rank had a collective under
            way; the mean of all ranks.
        timeline: By rank, the collectives of the recorded steps: name, start and end in seconds.
    """

    backend: str
    parallel: str
    ranks: int
    parameters: int
    corpus_bytes: int
    seconds: float = 0
    tokens_per_second: float = 0
    communication_share: float = 0
    communication_seconds: float = 0
    tested_loss: float = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    timeline: list[list[tuple[str, float, float]]] = field(default_factory=list)


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["WORLD_SIZE"])))
    if arguments.backend == "unisono":
        import unisono.torch  # noqa: F401 (registers the backend)
    dist.init_process_group(arguments.backend)
    try:
        train(arguments)
    finally:
        dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", choices=("gloo", "unisono"), default="unisono")
    parser.add_argument("--parallel", choices=KINDS, default="ddp")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long; 0: never")
    parser.add_argument("--batch", type=int, default=16, help="sequences in a step, of all ranks")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--rate", type=float, default=1e-3, help="of learning")
    parser.add_argument("--output", type=Path, default=Path("train_gpt"), metavar="FOLDER")
    parser.add_argument("--save-every", type=int, default=0, help="steps; 0: at the end only")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def train(arguments: argparse.Namespace) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    size = Size(arguments.layers, arguments.heads, arguments.width, arguments.context)
    text = read_corpus()
    batches = Batches(text, size.context, arguments.batch)
    if arguments.parallel != "tp" and arguments.batch % ranks:
        sys.exit(f"a batch of {arguments.batch} sequences cannot be divided by {ranks} ranks")
    torch.manual_seed(0)
    model = Gpt(size)
    parameters = sum(one.numel() for one in model.parameters())
    parallel = make_parallel(arguments.parallel, model)
    optimizer = torch.optim.AdamW(parallel.model.parameters(), lr=arguments.rate)
    result = Result(arguments.backend, arguments.parallel, ranks, parameters, len(text))
    first = resume(arguments.output, parallel, optimizer) if arguments.resume else 0
    recorder = make_recorder(arguments.backend)
    timed_from, timed_tokens, pauses = 0.0, 0, 0.0
    with progress_bar(arguments, result, rank) as bar:
        task = bar.add_task("", total=arguments.steps, completed=first)
        for step in range(first, arguments.steps):
            if step - first == RECORDED_STEPS:
                dist.barrier()
                timed_from = time.perf_counter()
                recorder.start()
            elif step - first == 2 * RECORDED_STEPS:
                paused = time.perf_counter()
                keep_timeline(recorder, result)
                pauses += time.perf_counter() - paused
            loss = make_step(parallel, optimizer, batches, step)
            result.losses.append((step, loss))
            if timed_from:
                timed_tokens += arguments.batch * size.context
            bar.update(task, completed=step + 1, description=f"loss {loss:.3f}")
            if arguments.save_every and (step + 1) % arguments.save_every == 0:
                paused = time.perf_counter()
                save(arguments.output, parallel, optimizer, step + 1)
                pauses += time.perf_counter() - paused
            if arguments.seconds and is_over(bar.tasks[task].elapsed or 0, arguments.seconds):
                break
    if timed_from:
        result.seconds = time.perf_counter() - timed_from - pauses
        result.tokens_per_second = timed_tokens / result.seconds
    result.tested_loss = tested_loss(parallel, batches)
    last = result.losses[-1][0] + 1 if result.losses else first
    save(arguments.output, parallel, optimizer, last)
    if rank == 0:
        (arguments.output / "result.json").write_text(json.dumps(asdict(result)) + "\n")
        report = arguments.output / "report.html"
        write_report(report, [asdict(result)])
        say(result, report)


def make_step(
    parallel: Parallel, optimizer: torch.optim.Optimizer, batches: Batches, step: int
) -> float:
    """One step of training; the loss of its whole batch."""
    tokens, following = batches.training(step, parallel.part, parallel.parts)
    loss = loss_of(parallel.model(tokens), following)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return mean_loss(parallel, loss)


def mean_loss(parallel: Parallel, loss: torch.Tensor) -> float:
    """Of all parts of a batch."""
    loss = loss.detach().clone()
    if parallel.parts > 1:
        dist.all_reduce(loss)
    return float(loss) / parallel.parts


@torch.no_grad()
def tested_loss(parallel: Parallel, batches: Batches) -> float:
    tokens, following = batches.tested(parallel.part, parallel.parts)
    return mean_loss(parallel, loss_of(parallel.model(tokens), following))


def keep_timeline(recorder: Recorder, result: Result) -> None:
    """Ends the recording, and brings the ranks' together."""
    calls, seconds = recorder.stop()
    everyone: list[tuple[list[tuple[str, float, float]], float]] = [
        ([], 0.0) for _ in range(result.ranks)
    ]
    dist.all_gather_object(everyone, (calls, seconds))
    result.timeline = [calls for calls, _ in everyone]
    busy = [covered_seconds(calls) for calls, _ in everyone]
    result.communication_seconds = sum(busy) / len(busy) / RECORDED_STEPS
    result.communication_share = sum(
        part / seconds for part, (_, seconds) in zip(busy, everyone, strict=True)
    ) / len(busy)


def covered_seconds(calls: list[tuple[str, float, float]]) -> float:
    """How long at least one call was under way."""
    total, covered_to = 0.0, float("-inf")
    for _, start, end in sorted(calls, key=lambda call: call[1]):
        total += max(0.0, end - max(start, covered_to))
        covered_to = max(covered_to, end)
    return total


def is_over(elapsed: float, limit: float) -> bool:
    """Whether the time is over, as rank 0 sees it: all ranks must stop after the same step."""
    over = torch.tensor([elapsed > limit], dtype=torch.int32)
    dist.broadcast(over, 0)
    return bool(over)


def save(folder: Path, parallel: Parallel, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Writes a checkpoint, then names it as the last one."""
    weights, moments = get_state_dict(parallel.model, optimizer)
    state = {"weights": weights, "optimizer": moments}
    checkpoint.save(state, checkpoint_id=folder / f"checkpoint-{steps}")
    if dist.get_rank() == 0:
        fresh = folder / "last.new"
        fresh.write_text(f"{steps}\n")
        fresh.rename(folder / "last")
    dist.barrier()


def resume(folder: Path, parallel: Parallel, optimizer: torch.optim.Optimizer) -> int:
    """Loads the last checkpoint, if there is one; the steps that were made."""
    if not (folder / "last").exists():
        return 0
    steps = int((folder / "last").read_text())
    weights, moments = get_state_dict(parallel.model, optimizer)
    state = {"weights": weights, "optimizer": moments}
    checkpoint.load(state, checkpoint_id=folder / f"checkpoint-{steps}")
    set_state_dict(
        parallel.model,
        optimizer,
        model_state_dict=state["weights"],
        optim_state_dict=state["optimizer"],
    )
    return steps


def progress_bar(arguments: argparse.Namespace, result: Result, rank: int) -> Progress:
    if rank == 0:
        arguments.output.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    return Progress(
        TextColumn(f"{arguments.backend:<8}{arguments.parallel:<5}{{task.description}}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        disable=rank != 0,
    )


def say(result: Result, report: Path) -> None:
    Console().print(
        f"{result.backend}, {result.parallel}, {result.ranks} ranks, {result.parameters:,} "
        f"parameters: loss {result.losses[0][1]:.4f} to {result.losses[-1][1]:.4f}, on unseen text "
        f"{result.tested_loss:.4f}; {result.tokens_per_second:,.0f} tokens/s, "
        f"{1e3 * result.communication_seconds:.1f} ms of communication in a step "
        f"({result.communication_share:.0%}); {report}",
        highlight=False,
    )


if __name__ == "__main__":
    main()
